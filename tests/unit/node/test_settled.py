"""A drain that a crash of slurmctld may have taken back is no person's undrain; one that was seen later is."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpkit import past
from hpkit.config import Config
from hpkit.model import Action, Clock, Finding, Report, Status, View, action_of, verdict_of
from hpkit.node import by_hand, record, remedy, returning
from hpkit.past import Past
from hpkit.paths import Paths
from hpkit.policy.returning import DRAINED, INTENDED, REBUILT, SETTLED, Record
from tests.support.fake_slurm import FakeSlurm

NOW = 1_780_000_000.0
REASON = "hpkit: gpu.xid: gpu3: Xid 79"
KEPT = Finding("gpu.xid", "gpu3", Status.FAIL, Action.REBOOT, "Xid 79")
ENFORCE = Config(mode="enforce")


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")


def clock(now: float) -> Clock:
    return Clock(now, 900.0, "boot-1")


def report(*findings: Finding) -> Report:
    return Report("n1", "health", View.NODE, NOW, 0.1, verdict_of(findings), action_of(findings), findings)


@pytest.fixture
def slurm() -> FakeSlurm:
    return FakeSlurm.of(4, clock=lambda: NOW)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


def keep(paths: Paths, state: str, at: float = NOW) -> None:
    made = Record(
        "n1", "boot-1", "", REASON, at, "gpu.xid", "gpu3", Action.REBOOT, "Xid 79", checks=("gpu.xid",)
    )
    record.save(paths, made._replace(state=state))
    past.save(paths, Past("boot-1", NOW - 900, 0.0, "boot", latched=(KEPT,)))


def state(paths: Paths) -> str:
    held = record.load(paths)
    assert held is not None
    return held.state


@pytest.mark.parametrize(
    ("kept", "began", "backup", "accepted"),
    [
        (DRAINED, NOW - 1000, False, True),
        (DRAINED, NOW + 3, False, False),  # slurmctld came back with what it had saved before
        (DRAINED, NOW, False, False),
        (DRAINED, NOW - 1000, True, False),  # a backup that took over says when it was started
        (DRAINED, None, False, False),
        (SETTLED, NOW + 3, True, True),
        (REBUILT, NOW + 3, True, True),
        (INTENDED, NOW - 1000, False, False),
    ],
)
def test_a_node_in_service(
    slurm: FakeSlurm, paths: Paths, kept: str, began: float | None, backup: bool, accepted: bool
) -> None:
    keep(paths, kept)
    slurm.settings["BOOT_TIME"] = "" if began is None else iso(began)
    if backup:
        slurm.settings["SlurmctldHost[1]"] = "ctl2"
    assert by_hand.accept(lambda: slurm, paths, clock(NOW + 60), "n1", lambda: None) is accepted
    assert past.load(paths).latched == (() if accepted else (KEPT,))


@pytest.mark.parametrize(("later_s", "expected"), [(2.0, DRAINED), (14.0, DRAINED), (16.0, SETTLED)])
def test_a_round_that_fails_again_settles_it(
    slurm: FakeSlurm, paths: Paths, later_s: float, expected: str
) -> None:
    keep(paths, DRAINED)
    slurm.put("n1", flags="IDLE+DRAIN", reason=REASON, by="root", at=NOW)
    done = remedy.take_out(
        slurm, report(KEPT), paths, ENFORCE, clock(NOW + later_s), "n1", pause=lambda s: None
    )
    assert (done.kind, state(paths)) == ("already-ours", expected)


@pytest.mark.parametrize(
    ("kept", "later_s", "expected"),
    [(INTENDED, 2.0, DRAINED), (DRAINED, 16.0, SETTLED), (INTENDED, 16.0, SETTLED), (REBUILT, 16.0, REBUILT)],
)
def test_a_round_that_passes_settles_it(
    slurm: FakeSlurm, paths: Paths, kept: str, later_s: float, expected: str
) -> None:
    keep(paths, kept)
    slurm.put("n1", flags="IDLE+DRAIN", reason=REASON, by="root", at=NOW)
    good = report(KEPT._replace(status=Status.PASS))
    done = returning.consider(slurm, good, paths, ENFORCE, clock(NOW + later_s), "n1")
    assert (done.text, state(paths)) == ("a reboot", expected)


def test_the_first_look_back_is_too_early(slurm: FakeSlurm, paths: Paths) -> None:
    done = remedy.take_out(slurm, report(KEPT), paths, ENFORCE, clock(NOW), "n1", pause=lambda s: None)
    assert (done.kind, state(paths)) == ("drained", DRAINED)
