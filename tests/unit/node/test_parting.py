"""The job that an epilog sees off: what is known of it, and when the epilogs of an expedited one end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpkit.errors import SlurmError
from hpkit.node import parting
from hpkit.node.parting import Parting
from hpkit.paths import Paths
from hpkit.slurm.client import Job
from tests.support.fake_slurm import FakeSlurm, running

ENV = {
    "SLURM_JOB_ID": "812", "SLURM_JOB_UID": "1000", "SLURM_JOB_EXIT_CODE2": "7:0", "SLURM_JOB_RESTART_COUNT": "2",
    "SLURM_JOB_END_TIME": "1700000000", "SLURM_JOB_NODELIST": "n[1-2]",
}  # fmt: skip
JOB = Parting("812", 1000, 7, 2, 1_700_000_000.0, True)
ENDING = running("812", "n[1-2]")._replace(flags=frozenset({"COMPLETING"}), restarts=2, expedited=True)


def test_slurmd_tells_the_epilog_of_the_job() -> None:
    assert parting.of(ENV, "n1") == JOB
    assert not parting.of(ENV, "n2").first


@pytest.mark.parametrize("text", ["", "x", "-1", "1" * 30, "7"])
def test_what_slurmd_does_not_tell_is_harmless(text: str) -> None:
    found = parting.of(dict.fromkeys(ENV, text), "n1")
    assert found.known is (text in ("1" * 30, "7") and found.uid >= 0)
    assert parting.of({}, "n1") == Parting("")
    assert not parting.of({}, "n1").known


@pytest.mark.parametrize(
    ("change", "asked", "expected"),
    [
        ({}, JOB, True),
        ({}, JOB._replace(code=0), False),  # requeued from inside, or ended well
        ({"expedited": False}, JOB, False),
        ({"requeue": False}, JOB, False),  # hp-srun switched it off: it ends for good
        ({"restarts": 3}, JOB, False),  # requeued by somebody, a hold of theirs included
        ({"flags": frozenset({"RUNNING"})}, JOB, False),
        ({"flags": frozenset({"EXPEDITING"})}, JOB, False),
    ],
)
def test_whether_slurm_puts_the_job_back_for_its_code(
    change: dict[str, Any], asked: Parting, expected: bool
) -> None:
    slurm = FakeSlurm.of(2)
    slurm.queue["812"] = ENDING._replace(**change)
    assert parting.expedited(slurm, "n1", asked) is expected
    assert slurm.reads == (1 if asked.code else 0)


def test_no_answer_means_no(monkeypatch: pytest.MonkeyPatch) -> None:
    slurm = FakeSlurm.of(2)
    slurm.queue["812"] = ENDING
    slurm.down = "timeout"
    assert not parting.expedited(slurm, "n1", JOB)
    assert parting.taken_out(slurm, "n1") == ""


def test_an_arrays_task_is_asked_for_by_its_own_name() -> None:
    task = ENDING._replace(id="812_3", array_job_id="812", array_task_id="3")

    class Array(FakeSlurm):
        def job(self, job_id: str) -> Job:
            if job_id == "812":
                raise SlurmError("refused", "812 is an array")
            return super().job(job_id)

    assert parting.expedited(Array(FakeSlurm.of(2).table.values(), [task]), "n1", JOB)


@pytest.mark.parametrize(
    ("flags", "reason", "expected"),
    [
        ("MIXED+DRAIN", "hpkit: gpu.count: 7 of 8", "hpkit: gpu.count: 7 of 8"),
        ("MIXED+DRAIN", "hpkit: admin: look at this", "hpkit: admin: look at this"),
        ("MIXED+DRAIN", "psu swap", ""),
        ("MIXED+FAIL", "hpkit: gpu.count: 7 of 8", ""),
        ("MIXED", "hpkit: gpu.count: 7 of 8", ""),
    ],
)
def test_only_a_drain_of_hpkits_takes_the_node_out(flags: str, reason: str, expected: str) -> None:
    slurm = FakeSlurm.of(2)
    slurm.put("n1", flags=flags, reason=reason, by="root")
    assert parting.taken_out(slurm, "n1") == expected


def test_only_the_jobs_owner_suspects(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    os.makedirs(f"{paths.run}/answered")
    Path(paths.run, "answered", "812").write_text("1000 1001")
    assert parting.suspected(paths, JOB)
    assert not parting.suspected(paths, JOB._replace(uid=1002))
    assert not parting.suspected(paths, JOB._replace(job="813"))
    assert not parting.suspected(paths, Parting("../812", 1000))


@pytest.mark.parametrize(
    ("ended", "now", "until", "waits"),
    [
        (1000.0, 1000.5, 1020.0, parting.TOGETHER_S - 0.5),
        (1000.0, 1003.9, 1020.0, parting.TOGETHER_S - 3.9),
        (1000.0, 1004.5, 1020.0, 0.0),  # late already
        (1000.0, 1000.5, 1002.0, 1.5),  # no longer than the hook may take
        (1000.0, 1000.5, 1000.0, 0.0),
        (1000.0, 999.5, 1020.0, parting.TOGETHER_S + 0.5),  # our clock is a little slow
        (1000.0, 900.0, 1020.0, 0.0),  # or quite wrong: then not at all
        (0.0, 1000.0, 1020.0, 0.0),  # Slurm did not tell
    ],
)
def test_all_epilogs_end_at_the_same_moment(ended: float, now: float, until: float, waits: float) -> None:
    waited: list[float] = []
    found = parting.end_together(JOB._replace(ended=ended), until, now=lambda: now, pause=waited.append)
    assert found == pytest.approx(waits) and waited == ([pytest.approx(waits)] if waits else [])
