"""The training program: its result depends on the steps alone, its checkpoints are complete or not, its deaths."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hpkit.sandbox
from hpkit import checkpoints
from hpkit.sandbox import faults, nodes

TRAIN = Path(hpkit.sandbox.__file__).parent / "data" / "train.py"


def start(
    folder: Path, *words: str, world: int = 1, launch: str = "0", env: dict[str, str] | None = None
) -> list[subprocess.Popen[str]]:
    """All ranks of one launch."""
    given = {"PATH": os.environ["PATH"], "SLURM_NTASKS": str(world), "SLURM_JOB_ID": launch, **(env or {})}
    argv = [
        sys.executable,
        str(TRAIN),
        f"--dir={folder}",
        "--steps=6",
        "--save-every=2",
        "--step-seconds=0",
        *words,
    ]
    return [
        subprocess.Popen(
            argv,
            env={**given, "SLURM_PROCID": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


def finish(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    done = []
    for rank in ranks:
        _, err = rank.communicate(timeout=60)
        done.append((rank.returncode, err))
    return done


def result(folder: Path) -> str:
    return (folder / "result").read_text()


def test_the_result_is_the_same_for_any_number_of_ranks_and_after_a_resume(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "resumed")]
    for folder in folders:
        folder.mkdir()
    assert finish(start(folders[0])) == [(0, "")]
    assert [code for code, _ in finish(start(folders[1], world=2))] == [0, 0]
    chosen = checkpoints.choose(str(folders[1]))
    assert (chosen.answer, chosen.step) == ("found", 6)
    assert finish(start(folders[2], f"--resume={folders[1]}/step-4", world=3))[0][0] == 0
    assert len({result(folder) for folder in folders}) == 1
    events = [json.loads(line) for line in (folders[2] / "progress.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if event["event"] == "step"] == [5, 6]


def test_another_number_of_steps_gives_another_result(tmp_path: Path) -> None:
    finish(start(tmp_path))
    first = result(tmp_path)
    finish(start(tmp_path, "--steps=7", launch="1"))
    assert result(tmp_path) != first


def test_a_bug_of_the_user_is_exit_3_with_a_traceback(tmp_path: Path) -> None:
    [(code, err)] = finish(start(tmp_path, "--die-at=3"))
    assert (code, "Traceback" in err) == (3, True)


def test_a_lost_gpu_ends_it_and_leaves_a_half_written_checkpoint(tmp_path: Path) -> None:
    node, folder = tmp_path / "nodes" / "n1", tmp_path / "run"
    folder.mkdir()
    nodes.create(str(node), nodes.boot("n1", 8), "")
    env = {"HPKIT_ROOT": f"{tmp_path}/nodes/%n", "SLURMD_NODENAME": "n1", "CUDA_VISIBLE_DEVICES": "2,3"}
    [rank] = start(folder, "--save-seconds=60", env=env)
    while not (folder / "step-2/__0_0.distcp").exists():
        time.sleep(0.01)
    nodes.save(str(node), faults.inject(str(node), nodes.load(str(node)), "gpu-lost:1"))
    with pytest.raises(subprocess.TimeoutExpired):  # not one of ours
        rank.wait(0.3)
    nodes.save(str(node), faults.inject(str(node), nodes.load(str(node)), "gpu-lost:3"))
    [(code, err)] = finish([rank])
    assert (code, "GPU 3 is lost" in err) == (1, True)
    assert checkpoints.choose(str(folder)).answer == "none complete"


def test_it_dies_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "die").touch()
    [(code, err)] = finish(start(tmp_path, f"--die-when={tmp_path}/die"))
    assert (code, "CUDA error" in err) == (1, True)
