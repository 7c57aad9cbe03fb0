"""Taking a node out: only when it is nobody else's, the budget allows it, and Slurm answers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpkit.config import Config, DrainConfig
from hpkit.errors import SlurmError
from hpkit.model import Action, Clock, Finding, Report, Status, View, action_of, verdict_of
from hpkit.node import record
from hpkit.node.remedy import Outcome, take_out
from hpkit.paths import Paths
from tests.support.fake_slurm import FakeSlurm

NOW = 1_780_000_000.0
CLOCK = Clock(NOW, 500.0, "boot-a")
REASON = "hpkit: gpu.xid: gpu3: Xid 79"
ENFORCE = Config(mode="enforce")


def failed(check: str = "gpu.xid", message: str = "Xid 79", action: Action = Action.REBOOT) -> Report:
    finding = Finding(check, "gpu3", Status.FAIL, action, message, data={"serials": ["s1", "s2"]})
    return Report(
        "n1", "health", View.NODE, NOW, 0.1, verdict_of([finding]), action_of([finding]), (finding,)
    )


class World:
    """A cluster whose clock our pauses move, and the node's own files."""

    def __init__(self, folder: Path, size: int = 12) -> None:
        self.now = NOW
        self.slurm = FakeSlurm.of(size, clock=lambda: self.now)
        self.paths = Paths(str(folder))
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def take_out(self, report: Report | None = None, config: Config = ENFORCE, **more: float) -> Outcome:
        clock = CLOCK._replace(wall=self.now)
        return take_out(
            self.slurm,
            report or failed(),
            self.paths,
            config,
            clock,
            "n1",
            instance_id="i-1",
            pause=self.pause,
            **more,
        )

    @property
    def verbs(self) -> list[str]:
        return [write[0] for write in self.slurm.writes]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_failing_node_is_drained_with_its_reason_and_a_record(world: World) -> None:
    assert world.take_out() == Outcome("drained", REASON)
    assert world.slurm.writes == [("drain", "n1", REASON)]
    kept = record.load(world.paths)
    assert kept is not None
    assert (kept.node, kept.boot_id, kept.instance_id, kept.reason) == ("n1", "boot-a", "i-1", REASON)
    assert (kept.check, kept.subject, kept.action, kept.state) == (
        "gpu.xid",
        "gpu3",
        Action.REBOOT,
        "drained",
    )
    assert kept.devices == ("s1", "s2")


def test_the_record_is_there_before_the_drain(world: World) -> None:
    seen: list[str] = []

    def look() -> None:
        kept = record.load(world.paths)
        seen.append(kept.state if kept else "none")

    world.slurm.before_write = look
    world.take_out()
    assert seen == ["intended"]


def test_observe_changes_nothing(world: World) -> None:
    outcome = world.take_out(config=Config())
    assert (outcome.kind, REASON in outcome.text) == ("observe", True)
    assert (world.slurm.reads, world.slurm.writes, record.load(world.paths)) == (0, [], None)


def test_nothing_failed(world: World) -> None:
    good = failed()._replace(findings=())
    assert world.take_out(good).kind == "failed"
    assert (world.slurm.reads, world.slurm.writes) == (0, [])


@pytest.mark.parametrize(
    ("flags", "reason", "by"),
    [
        ("IDLE+DRAIN", "psu swap", "alice"),
        ("MIXED+DRAIN", "RMA 4711 do not touch", "bob"),
        ("IDLE+DRAIN", "", ""),
        ("DOWN", "Not responding", "slurm"),
        ("IDLE+FAIL", "Action:Replace", "root"),
        ("ALLOCATED+FAIL", "Action:Reboot", "root"),
        ("IDLE+MAINTENANCE+RESERVED", "", ""),
        ("IDLE+POWERED_DOWN", "", ""),
        ("IDLE+REBOOT_REQUESTED", "", ""),
        ("IDLE+DRAIN", "Kill task failed", "root"),
    ],
)
def test_what_others_took_out_is_never_written(world: World, flags: str, reason: str, by: str) -> None:
    world.slurm.put("n1", flags=flags, reason=reason, by=by)
    before = world.slurm.table["n1"]
    outcome = world.take_out()
    assert outcome.kind == "foreign"
    assert by in outcome.text or flags.startswith("IDLE+")
    assert (world.slurm.writes, world.slurm.table["n1"]) == ([], before)
    assert record.load(world.paths) is None


@pytest.mark.parametrize("kind", ["unreachable", "timeout", "missing", "garbled"])
def test_no_answer_no_drain(world: World, kind: str) -> None:
    world.slurm.down = kind
    assert world.take_out().kind == "no-answer"
    assert world.slurm.writes == []


def test_a_node_that_slurm_does_not_know(world: World) -> None:
    del world.slurm.table["n1"]
    assert world.take_out().kind == "no-answer"
    assert world.slurm.writes == []


def test_without_rights_nothing_is_kept(world: World) -> None:
    world.slurm.user = "nobody"
    assert world.take_out().kind == "failed"
    assert record.load(world.paths) is None


def test_a_write_without_an_answer_keeps_the_record(world: World) -> None:
    def silent() -> None:
        world.slurm.down = "timeout"

    world.slurm.before_write = silent
    assert world.take_out().kind == "no-answer"
    kept = record.load(world.paths)
    assert kept is not None
    assert kept.state == "intended"


def test_the_second_look_may_fail(world: World) -> None:
    plain = world.slurm.drain

    def drain(name: str, reason: str) -> None:
        plain(name, reason)
        world.slurm.down = "unreachable"

    world.slurm.drain = drain  # type: ignore[method-assign]
    assert world.take_out().kind == "drained"
    kept = record.load(world.paths)
    assert kept is not None
    assert kept.state == "intended"


def test_a_second_failing_round_writes_nothing_to_slurm(world: World) -> None:
    world.take_out()
    outcome = world.take_out(failed("gpu.count", "7 of 8", Action.REPLACE))
    assert outcome == Outcome("already-ours", REASON)
    assert world.verbs == ["drain"]
    kept = record.load(world.paths)
    assert kept is not None
    assert (kept.reason, kept.action, kept.checks) == (REASON, Action.REPLACE, ("gpu.xid", "gpu.count"))


def test_slurm_may_have_appended_to_our_reason(world: World) -> None:
    world.take_out()
    world.slurm.put("n1", flags="IDLE+DRAIN", reason=f"{REASON} : reboot timed out", by="slurm")
    assert world.take_out().kind == "already-ours"
    assert world.verbs == ["drain"]


def test_no_record_is_made_up_for_an_administrators_drain(world: World) -> None:
    world.slurm.put("n1", flags="IDLE+DRAIN", reason="hpkit: admin: swap", by="alice")
    assert world.take_out().kind == "already-ours"
    assert record.load(world.paths) is None


def test_a_lost_record_of_this_very_drain_is_made_again(world: World) -> None:
    world.take_out()
    record.clear(world.paths)
    world.take_out()
    kept = record.load(world.paths)
    assert kept is not None
    assert (kept.reason, kept.state) == (REASON, "drained")


def test_beyond_the_budget_nothing_is_written(world: World) -> None:
    for name in ("n8", "n9", "n10", "n11", "n12"):
        world.slurm.put(name, flags="IDLE+DRAIN", reason="hpkit: host.mounts: /fsx", by="root", at=NOW - 60)
    outcome = world.take_out()
    assert outcome.kind == "no-budget"
    assert "shared cause" in outcome.text
    assert (world.slurm.writes, record.load(world.paths)) == ([], None)


def test_a_drain_that_came_too_late_steps_back(world: World) -> None:
    def others() -> None:
        world.slurm.before_write = None
        for name in ("n8", "n9", "n10", "n11", "n12"):
            world.slurm.put(name, flags="IDLE+DRAIN", reason="hpkit: a.b: x", by="root", at=NOW - 1)

    world.slurm.before_write = others
    assert world.take_out().kind == "no-budget"
    assert world.verbs == ["drain", "undrain"]
    assert world.slurm.table["n1"].flags == {"IDLE"}
    assert record.load(world.paths) is None


def test_somebody_who_drained_after_us_keeps_the_node(world: World) -> None:
    plain = world.slurm.drain

    def drain(name: str, reason: str) -> None:
        plain(name, reason)
        world.slurm.put("n1", flags="IDLE+DRAIN", reason="psu swap", by="alice")

    world.slurm.drain = drain  # type: ignore[method-assign]
    assert world.take_out().kind == "foreign"
    assert world.slurm.table["n1"].reason == "psu swap"
    assert record.load(world.paths) is None


def test_jitter_comes_first_and_the_second_look_two_seconds_after_the_write(world: World) -> None:
    world.take_out(config=ENFORCE._replace(drain=DrainConfig(jitter_s=3.0)))
    assert len(world.pauses) == 2
    assert 0 <= world.pauses[0] < 3
    assert world.pauses[1] > 2
    assert world.slurm.reads == 2


def test_a_short_deadline_leaves_the_second_look_to_the_background(world: World) -> None:
    assert world.take_out(deadline=0.0).kind == "drained"
    assert len(world.pauses) == 1


def test_a_drain_without_time_to_read_it_back_is_told_at_once(world: World) -> None:
    """Else the hook is ended while it waits for a slow controller, and the job starts on the drained node."""
    assert world.take_out(deadline=time.monotonic() + 1.0).kind == "drained"
    assert world.slurm.reads == 1
    kept = record.load(world.paths)
    assert kept is not None


def test_a_full_disk_costs_the_record_and_not_the_drain(world: World) -> None:
    Path(world.paths.base, "var/lib").mkdir(parents=True)
    Path(world.paths.lib).write_text("in the way")
    assert world.take_out().kind == "drained"
    assert world.verbs == ["drain"]


def test_a_storm_of_all_nodes_keeps_the_budget(tmp_path: Path) -> None:
    """64 nodes fail the same check, one after the other and without waiting for the window."""
    world = World(tmp_path, size=64)
    kinds = []
    for number in range(1, 65):
        world.paths = Paths(str(tmp_path / f"n{number}"))
        clock = CLOCK._replace(wall=world.now)
        kinds.append(
            take_out(world.slurm, failed(), world.paths, ENFORCE, clock, f"n{number}", pause=world.pause).kind
        )
    assert kinds.count("drained") == 6
    assert set(kinds[6:]) == {"no-budget"}


def test_slurm_errors_do_not_escape(world: World) -> None:
    def refuse(_name: str, _reason: str) -> None:
        raise SlurmError("refused", "Invalid node state specified")

    world.slurm.drain = refuse  # type: ignore[method-assign]
    assert world.take_out() == Outcome("failed", "refused: Invalid node state specified")
