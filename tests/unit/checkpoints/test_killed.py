"""Real processes killed while they save: what is chosen is always the newest checkpoint that was finished."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from hpkit.checkpoints import choose
from hpkit.sandbox.data import dcp_like

KILLS = 40
RANKS = 3
SIZE = 400_000
WRITER = f"""
import os, sys
sys.path.insert(0, {str(Path(dcp_like.__file__).parent)!r})
import dcp_like
step = 0
while True:
    step += 10
    folder = os.path.join(sys.argv[1], f"step_{{step}}")
    sizes = {{}}
    for rank in range({RANKS}):
        payload = (b"%08d" % (step + rank)) * ({SIZE} // 8)
        sizes[dcp_like.save_shard(folder, rank, payload)] = len(payload)
    dcp_like.finish(folder, sizes)
    os.write(1, b"%d\\n" % step)
"""


def test_the_newest_finished_save_is_chosen_at_every_point_of_death(tmp_path: Path) -> None:
    chance = random.Random(8)
    torn = 0
    for number in range(KILLS):
        folder = tmp_path / str(number)
        folder.mkdir()
        told = kill_while_saving(folder, chance.uniform(0.0, 0.08))
        finished = [p for p in folder.iterdir() if (p / ".metadata").exists()]
        wanted = max((int(p.name.partition("_")[2]) for p in finished), default=None)
        found = choose(str(folder))
        assert found.step == wanted
        assert not told or (wanted is not None and wanted >= told[-1])
        torn += len(list(folder.iterdir())) > len(finished)
        if found.step is not None:
            for rank in range(RANKS):
                assert dcp_like.load_shard(found.path, rank) == (b"%08d" % (found.step + rank)) * (SIZE // 8)
        else:
            assert found.answer in ("nothing there", "none complete")
    assert torn > KILLS // 4  # most deaths must fall into a save, else this test shows nothing


def kill_while_saving(folder: Path, delay_s: float) -> list[int]:
    """Start the writer, SIGKILL it some time after its first save began; returns the steps that it told as finished."""
    argv = [sys.executable, "-I", "-S", "-c", WRITER, str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        end = time.monotonic() + 30
        while not any(folder.iterdir()) and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(delay_s)
        writer.send_signal(signal.SIGKILL)
        told = writer.stdout.read()
    assert writer.returncode == -signal.SIGKILL
    return [int(line) for line in told.split()]


def test_saving_again_into_the_same_folder_is_noticed(tmp_path: Path) -> None:
    for step in (10, 20):
        folder = str(tmp_path / f"step_{step}")
        sizes = {dcp_like.save_shard(folder, rank, b"old" * 100): 300 for rank in range(2)}
        dcp_like.finish(folder, sizes)
    old = os.stat(tmp_path / "step_20" / ".metadata").st_mtime - 600
    os.utime(tmp_path / "step_20" / ".metadata", (old, old))
    dcp_like.save_shard(str(tmp_path / "step_20"), 0, b"new" * 100)
    assert choose(str(tmp_path)).step == 10
