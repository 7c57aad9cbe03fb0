"""A person brought the node back: the kept failure is accepted; anything less leaves all as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpkit import past
from hpkit.model import Action, Clock, Finding, Report, Status, Verdict, View
from hpkit.node import by_hand, record
from hpkit.past import Past
from hpkit.paths import Paths
from hpkit.policy.returning import DRAINED, INTENDED, Record
from tests.support.fake_slurm import FakeSlurm

NOW = 1_780_000_000.0
REASON = "hpkit: gpu.xid: gpu3: Xid 79"
HERE = Clock(NOW, 900.0, "boot-1")
KEPT = Finding("gpu.xid", "gpu3", Status.FAIL, Action.REBOOT, "Xid 79")
COUNTED = Finding(
    "gpu.ecc", "gpu1", Status.PASS, Action.NONE, "no errors", data={"counters": {"gpu.ecc/GPU-1": 2}}
)


class World:
    """A node with a drain record and a kept failure."""

    def __init__(self, folder: Path, state: str = DRAINED) -> None:
        self.slurm = FakeSlurm.of(2, clock=lambda: NOW)
        self.paths = Paths(str(folder))
        made = Record("n1", "boot-1", "", REASON, NOW - 100, "gpu.xid", "gpu3", Action.REBOOT, "Xid 79")
        record.save(self.paths, made._replace(state=state))
        past.save(self.paths, Past("boot-1", NOW - 900, 0.0, "boot", latched=(KEPT,)))

    def accept(self) -> bool:
        report = Report("n1", "health", View.NODE, NOW, 0.1, Verdict.HEALTHY, Action.NONE, (COUNTED,))
        return by_hand.accept(lambda: self.slurm, self.paths, HERE, "n1", lambda: report)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_node_in_service_was_brought_back_by_a_person(world: World) -> None:
    assert world.accept()
    now = past.load(world.paths)
    assert (now.latched, now.accepted_why, now.accepted_uptime) == ((), "operator", 900.0)
    assert dict(now.counters) == {"gpu.ecc/GPU-1": 2}
    assert record.load(world.paths) is None
    assert world.slurm.writes == []


@pytest.mark.parametrize(
    "flags", ["IDLE+DRAIN", "DOWN", "IDLE+FAIL", "DOWN+DRAIN+NOT_RESPONDING", "IDLE+NEWFLAG", "NEWBASE"]
)
def test_a_node_that_is_still_out_was_not(world: World, flags: str) -> None:
    world.slurm.put("n1", flags=flags, reason=REASON, by="root", at=NOW - 50)
    assert not world.accept()
    assert past.load(world.paths).latched == (KEPT,)
    assert record.load(world.paths) is not None


def test_a_record_of_another_name_is_not_this_nodes(world: World) -> None:
    """A node that was renamed, or an image that was made of a drained one."""
    held = record.load(world.paths)
    assert held is not None
    record.save(world.paths, held._replace(node="n7"))
    assert not world.accept()
    assert past.load(world.paths).latched == (KEPT,)


def test_without_an_answer_nothing_is_accepted(world: World) -> None:
    world.slurm.down = "unreachable"
    assert not world.accept()
    assert past.load(world.paths).latched == (KEPT,)
    assert record.load(world.paths) is not None


def test_a_drain_that_never_arrived_is_nobodys_return(tmp_path: Path) -> None:
    world = World(tmp_path, INTENDED)
    assert not world.accept()
    assert past.load(world.paths).latched == (KEPT,)
    assert world.slurm.reads == 0


def test_without_a_record_slurm_is_not_asked(world: World) -> None:
    record.clear(world.paths)
    assert not world.accept()
    assert world.slurm.reads == 0
