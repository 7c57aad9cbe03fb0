"""The witness: its note, root's answer to it, and its own look, on a simulated node."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpkit.model import Clock
from hpkit.paths import Paths
from hpkit.resume.wire import Joiner
from hpkit.resume.witness import enforcing, leave_note, read_answer, wait_for_root
from hpkit.sandbox import nodes

TOP = Path(__file__).parents[3]
NOW = Clock(wall=1_700_000_000.0, uptime=100.0, boot_id="boot-a")
ANSWER = {
    "schema": "hpkit.answer/1",
    "boot_id": "boot-a",
    "written": 100.5,
    "verdict": "healthy",
    "failures": [],
}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's answers count")


@pytest.fixture
def place(tmp_path: Path) -> Paths:
    here = Paths(str(tmp_path))
    os.makedirs(here.suspects)
    return here


def answer(place: Paths, **change: Any) -> None:
    Path(place.run, "answer.json").write_text(json.dumps({**ANSWER, **change}))


def test_a_note_says_which_job_and_when(place: Paths) -> None:
    assert leave_note(place, "7", NOW) == (True, "")
    (name,) = os.listdir(place.suspects)
    path = Path(place.suspects, name)
    assert name.startswith("job-7-") and stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444
    assert json.loads(path.read_text()) == {"job": "7", "uptime": 100.0}


def test_each_witness_leaves_its_own_note(place: Paths) -> None:
    for _ in range(3):
        leave_note(place, "7", NOW)
    assert len(os.listdir(place.suspects)) == 3


def test_without_hpkit_there_is_no_note(tmp_path: Path) -> None:
    assert leave_note(Paths(str(tmp_path)), "7", NOW) == (False, "")
    (tmp_path / "run").write_text("no folder")
    noted, why = leave_note(Paths(str(tmp_path)), "7", NOW)
    assert not noted and why


@needs_root
@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True),
        ({"verdict": "unhealthy"}, True),
        ({"written": 100.0}, False),  # not newer than the note
        ({"written": 99.9}, False),
        ({"boot_id": "boot-b"}, False),
        ({"schema": "hpkit.answer/2"}, False),
        ({"written": "101"}, False),
    ],
)
def test_only_an_answer_to_the_note_counts(place: Paths, change: Mapping[str, Any], counts: bool) -> None:
    answer(place, **change)
    assert (read_answer(place, NOW) is not None) is counts


@needs_root
@pytest.mark.parametrize("text", ["", "{", "[]", "7"])
def test_garbage_is_no_answer(place: Paths, text: str) -> None:
    Path(place.run, "answer.json").write_text(text)
    assert read_answer(place, NOW) is None


@needs_root
def test_an_answer_of_a_user_is_none_of_roots(place: Paths) -> None:
    answer(place)
    os.chown(Path(place.run, "answer.json"), 12345, 12345)
    assert read_answer(place, NOW) is None


@needs_root
def test_a_link_is_not_followed(place: Paths, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps(ANSWER))
    os.symlink(tmp_path / "elsewhere", Path(place.run, "answer.json"))
    assert read_answer(place, NOW) is None


@needs_root
def test_roots_answer_is_waited_for(place: Paths) -> None:
    later = threading.Timer(0.3, answer, (place,))
    later.start()
    found = wait_for_root(place, NOW, time.monotonic() + 30)
    later.join()
    assert found is not None and found["verdict"] == "healthy"


def test_the_wait_ends(place: Paths) -> None:
    assert wait_for_root(place, NOW, time.monotonic() + 0.2) is None


@pytest.mark.parametrize(
    ("text", "acts"),
    [('mode = "enforce"\n', True), ('mode = "observe"\n', False), ("", False), ("mode = [\n", False)],
)
def test_whether_hpkit_acts_here_is_told(tmp_path: Path, text: str, acts: bool) -> None:
    place = Paths(str(tmp_path))
    os.makedirs(place.etc)
    Path(place.etc, "hpkit.toml").write_text(text)
    assert enforcing(place) is acts
    assert not enforcing(Paths(str(tmp_path / "nowhere")))


@needs_root
def test_the_whole_witness_on_a_simulated_node(tmp_path: Path) -> None:
    folder = tmp_path / "n1"
    nodes.create(str(folder), nodes.boot("n1", 4), 'mode = "enforce"\n[want]\ngpus = 4\nmounts = ["/fsx"]\n')
    here = Paths(str(folder / "root"))
    os.makedirs(here.suspects, exist_ok=True)
    boot_id = Path(here.base, "proc/sys/kernel/random/boot_id").read_text().strip()
    answer(here, boot_id=boot_id, written=1e12, verdict="unhealthy")
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(TOP), "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1",
        "HPKIT_ROOT": str(tmp_path / "%n"),
    }  # fmt: skip
    code = "import sys; from hpkit.resume.witness import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", code, "5"], env=env, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    joiner = Joiner()
    ((node, document),) = [told for line in ran.stdout.splitlines() if (told := joiner.feed(line))]
    assert (node, document["note"], document["trouble"]) == ("n1", True, "")
    assert document["root"]["verdict"] == "unhealthy" and document["enforce"] is True
    report = document["report"]
    assert report["view"] == "step" and report["findings"]
    assert not [f for f in report["findings"] if f["status"] == "fail"]
