"""Bringing a node back: never by a pass alone, never against somebody else's will."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpkit import past
from hpkit.config import Config, DrainConfig
from hpkit.errors import SlurmError
from hpkit.model import Action, Clock, Finding, Report, Status, View, action_of, verdict_of
from hpkit.node import by_hand, record
from hpkit.node.remedy import Outcome
from hpkit.node.returning import consider
from hpkit.paths import Paths
from hpkit.policy.returning import Record
from tests.support.fake_slurm import FakeSlurm

NOW = 1_780_000_000.0
REASON = "hpkit: gpu.xid: gpu3: Xid 79"
ENFORCE = Config(mode="enforce")


def report(status: str = "pass", check: str = "gpu.xid") -> Report:
    finding = Finding(check, "", Status(status), Action.NONE, "text")
    return Report(
        "n1", "health", View.NODE, NOW, 0.1, verdict_of([finding]), action_of([finding]), (finding,)
    )


class World:
    """A drained n1 with its record, and rounds on it."""

    def __init__(self, folder: Path) -> None:
        self.slurm = FakeSlurm.of(4, clock=lambda: NOW)
        self.paths = Paths(str(folder))
        self.slurm.put("n1", flags="IDLE+DRAIN", reason=REASON, by="root", at=NOW - 100)
        self.keep()

    def keep(self, action: Action = Action.REBOOT, **more: object) -> None:
        made = Record(
            "n1", "boot-a", "i-1", REASON, NOW - 100, "gpu.xid", "gpu3", action, "Xid 79", ("gpu.xid",)
        )
        record.save(self.paths, made._replace(**more))  # type: ignore[arg-type]

    def round(self, made: Report | None = None, boot: str = "boot-a", config: Config = ENFORCE) -> Outcome:
        return consider(self.slurm, made or report(), self.paths, config, Clock(NOW, 50.0, boot), "n1")

    @property
    def kept(self) -> Record | None:
        return record.load(self.paths)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_passes_in_the_same_boot_bring_nothing_back(world: World) -> None:
    for _ in range(5):
        assert world.round() == Outcome("waiting", "a reboot")
    assert world.slurm.writes == []
    assert world.kept is not None


def test_after_a_reboot_and_a_pass_the_node_returns(world: World) -> None:
    assert world.round(boot="boot-b") == Outcome("returned", "gpu.xid passes again")
    assert world.slurm.writes == [("undrain", "n1")]
    assert world.slurm.table["n1"].flags == {"IDLE"}
    assert world.kept is None


@pytest.mark.parametrize("status", ["fail", "error", "skip"])
def test_after_a_reboot_without_a_pass_it_stays(world: World, status: str) -> None:
    assert world.round(report(status), boot="boot-b").kind == "waiting"
    assert world.round(report(check="gpu.count"), boot="boot-b").kind == "waiting"
    assert world.slurm.writes == []


def test_a_retest_needs_two_passes_in_a_row(world: World) -> None:
    world.keep(Action.RETEST)
    kinds = [world.round(made).kind for made in (report(), report("fail"), report(), report())]
    assert kinds == ["waiting", "waiting", "waiting", "returned"]


def test_an_operator_is_needed(world: World) -> None:
    world.keep(Action.OPERATOR)
    assert "undrain" in world.round(boot="boot-b").text
    assert world.slurm.writes == []


def test_slurm_may_have_appended_to_our_reason(world: World) -> None:
    world.slurm.put("n1", flags="IDLE+DRAIN", reason=f"{REASON} : reboot issued", by="slurm")
    assert world.round(boot="boot-b").kind == "returned"


@pytest.mark.parametrize(
    ("flags", "reason", "by", "text"),
    [
        ("IDLE+DRAIN", "RMA 4711", "bob", "bob"),
        ("IDLE+DRAIN", "hpkit: admin: swap", "alice", ""),
        ("IDLE+FAIL", "Action:Replace", "root", "FAIL"),
        ("IDLE", "", "", "in service"),
        ("DOWN", "broken", "carol", "carol"),
    ],
)
def test_a_drain_that_is_not_ours_any_more_is_given_up(
    world: World, flags: str, reason: str, by: str, text: str
) -> None:
    world.slurm.put("n1", flags=flags, reason=reason, by=by)
    before = world.slurm.table["n1"]
    outcome = world.round(boot="boot-b")
    assert outcome.kind == "lost"
    assert text in outcome.text
    assert (world.slurm.writes, world.slurm.table["n1"], world.kept) == ([], before, None)


@pytest.mark.parametrize(
    "flags", ["DOWN+DRAIN", "IDLE+DRAIN+REBOOT_REQUESTED", "DOWN+DRAIN+REBOOT_ISSUED", "IDLE+DRAIN+NEWFLAG", "IDLE+DRAIN+MAINTENANCE"]
)  # fmt: skip
def test_slurm_is_not_ready(world: World, flags: str) -> None:
    world.slurm.put("n1", flags=flags, reason=REASON, by="root")
    assert world.round(boot="boot-b").kind == "waiting"
    assert world.slurm.writes == []
    assert world.kept is not None


@pytest.mark.parametrize("kind", ["unreachable", "timeout"])
def test_no_answer_changes_nothing_but_counts(world: World, kind: str) -> None:
    world.keep(Action.RETEST)
    world.slurm.down = kind
    assert world.round().kind == "no-answer"
    assert world.kept is not None
    assert world.kept.passes == 1


def test_without_a_record_slurm_is_not_even_asked(world: World) -> None:
    record.clear(world.paths)
    assert world.round(boot="boot-b").kind == "none"
    assert world.slurm.reads == 0


def test_observe_brings_nothing_back(world: World) -> None:
    assert world.round(boot="boot-b", config=Config()).kind == "observe"
    assert (world.slurm.reads, world.slurm.writes) == (0, [])


def test_a_late_drain_steps_back_in_the_background_round(world: World) -> None:
    for name in ("n3", "n4"):
        world.slurm.put(name, flags="IDLE+DRAIN", reason="hpkit: a.b: x", by="root", at=NOW - 101)
    assert world.round(report("fail")).kind == "no-budget"
    assert world.slurm.writes == [("undrain", "n1")]
    assert world.kept is None


@pytest.mark.parametrize(
    "drain",
    [DrainConfig(max_nodes=0, max_share=0.0), DrainConfig(max_nodes=1, max_share=0.0)],
)
def test_a_budget_that_is_cut_later_brings_no_bad_node_back(world: World, drain: DrainConfig) -> None:
    for name in ("n1", "n3"):
        world.slurm.put(name, flags="IDLE+DRAIN", reason=REASON, by="root", at=NOW - 1000 - (name == "n3"))
    world.keep(at=NOW - 1000)
    assert world.round(report("fail"), config=ENFORCE._replace(drain=drain)).kind == "waiting"
    assert (world.slurm.writes, world.kept is None) == ([], False)


def test_a_step_back_without_an_answer_is_no_return_by_hand(world: World) -> None:
    """Slurm did it, and the answer was lost: the node is in service, and nobody said that it was cured."""
    for name in ("n3", "n4"):
        world.slurm.put(name, flags="IDLE+DRAIN", reason="hpkit: a.b: x", by="root", at=NOW - 101)
    world.keep(state="drained")
    plain = world.slurm.undrain

    def undrain(name: str) -> None:
        plain(name)
        raise SlurmError("timeout", "no answer")

    world.slurm.undrain = undrain  # type: ignore[method-assign]
    kept = past.Past("boot-a", latched=(report("fail").findings[0],))
    past.save(world.paths, kept)
    assert world.round(report("fail")).kind == "no-answer"
    assert world.slurm.table["n1"].flags == {"IDLE"}
    assert not by_hand.accept(
        lambda: world.slurm, world.paths, Clock(NOW, 50.0, "boot-a"), "n1", lambda: None
    )
    assert past.load(world.paths).latched == kept.latched


def test_a_time_that_slurm_moved_makes_nobody_step_back(world: World) -> None:
    for name in ("n3", "n4"):
        world.slurm.put(name, flags="IDLE+DRAIN", reason="hpkit: a.b: x", by="root", at=NOW - 50)
    world.slurm.put("n1", flags="IDLE+DRAIN", reason=f"{REASON} : reboot issued", by="slurm", at=NOW)
    assert world.round().kind == "waiting"
    assert world.slurm.writes == []
