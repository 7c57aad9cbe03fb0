"""A node whose own files are lost at a reboot returns by the token in its drain reason."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hpkit.config import Config, DrainConfig
from hpkit.model import Action, Clock, Finding, Report, Status, View, action_of, verdict_of
from hpkit.node import diskless, record
from hpkit.node.remedy import Outcome, take_out
from hpkit.node.returning import consider
from hpkit.paths import Paths
from hpkit.policy.ownership import ours
from hpkit.policy.returning import Record
from tests.support.fake_slurm import FakeSlurm

NOW = 1_780_000_000.0
PLAIN = "hpkit: gpu.xid: gpu3: Xid 79"
DISKLESS = Config(mode="enforce", drain=DrainConfig(jitter_s=0.0, diskless=True))


def report(status: str = "pass", action: Action = Action.NONE, suite: str = "health") -> Report:
    finding = Finding("gpu.xid", "gpu3", Status(status), action, "Xid 79")
    return Report("n1", suite, View.NODE, NOW, 0.1, verdict_of([finding]), action_of([finding]), (finding,))


class World:
    """n1 without a disk: a reboot takes everything below its root."""

    def __init__(self, folder: Path) -> None:
        self.slurm = FakeSlurm.of(12, clock=lambda: NOW)
        self.paths = Paths(str(folder / "n1"))
        self.boot, self.instance = "boot-a", "i-1"
        self.config = DISKLESS

    @property
    def clock(self) -> Clock:
        return Clock(NOW, 50.0, self.boot)

    @property
    def kept(self) -> Record | None:
        return record.load(self.paths)

    @property
    def reason(self) -> str:
        return self.slurm.table["n1"].reason

    def reboot(self, instance: str = "") -> None:
        shutil.rmtree(self.paths.base, ignore_errors=True)
        self.boot, self.instance = self.boot + "+", instance or self.instance

    def fail(self, action: Action = Action.REBOOT) -> Outcome:
        made = report("fail", action)
        return take_out(
            self.slurm, made, self.paths, self.config, self.clock, "n1",
            instance_id=self.instance, pause=lambda seconds: None,
        )  # fmt: skip

    def adopt(self) -> bool:
        return diskless.adopt(lambda: self.slurm, self.paths, self.config, self.clock, "n1")

    def round(self, made: Report | None = None) -> Outcome:
        if self.kept is None and not self.adopt():
            return Outcome("none", "")
        return consider(
            self.slurm, made or report(), self.paths, self.config, self.clock, "n1", instance_id=self.instance
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_the_drain_carries_a_token_and_reads_back_as_ours(world: World) -> None:
    outcome = world.fail()
    assert outcome == Outcome("drained", world.reason)
    assert world.reason.startswith(f"{PLAIN} (reboot ")
    assert world.kept is not None
    assert (world.kept.reason, world.kept.boot_id, world.kept.state) == (world.reason, "boot-a", "drained")
    assert world.fail().kind == "already-ours"
    assert len(world.slurm.writes) == 1


def test_a_node_with_a_disk_has_no_token(world: World) -> None:
    world.config = DISKLESS._replace(drain=DrainConfig(jitter_s=0.0))
    world.fail()
    assert world.reason == PLAIN


def test_after_a_reboot_it_returns_without_its_record(world: World) -> None:
    world.fail()
    assert world.round() == Outcome("waiting", "a reboot")
    world.reboot()
    assert world.round() == Outcome("returned", "gpu.xid passes again")
    assert world.slurm.table["n1"].flags == {"IDLE"}
    assert world.kept is None


def test_lost_files_without_a_reboot_bring_nothing_back(world: World) -> None:
    world.fail()
    shutil.rmtree(world.paths.base)
    for _ in range(3):
        assert world.round() == Outcome("waiting", "a reboot")
    assert world.kept is not None and world.kept.state == "rebuilt"


def test_a_replacement_needs_another_instance_and_a_deep_round(world: World) -> None:
    world.fail(Action.REPLACE)
    world.reboot()
    assert "replacement" in world.round(report(suite="deep")).text
    world.reboot("i-2")
    assert "deep" in world.round().text
    assert world.round(report(suite="deep")).kind == "returned"


def test_slurm_appended_to_the_reason_and_signed_it(world: World) -> None:
    world.fail()
    world.slurm.settings["SlurmUser"] = "slurm(64030)"
    world.slurm.put("n1", flags="IDLE+DRAIN", reason=f"{world.reason} : reboot issued", by="slurm")
    world.reboot()
    assert world.round().kind == "returned"


@pytest.mark.parametrize("by", ["alice", "", "slurm", "0", "rooty"])
def test_a_drain_by_anybody_else_is_not_trusted(world: World, by: str) -> None:
    world.fail()
    world.slurm.settings["SlurmUser"] = "slurmd(64030)"
    world.slurm.put("n1", flags="IDLE+DRAIN", reason=world.reason, by=by)
    world.reboot()
    before = world.slurm.table["n1"]
    assert world.round().kind == "none"
    assert (world.kept, world.slurm.table["n1"]) == (None, before)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("IDLE", ""),
        ("IDLE+DRAIN", "RMA 4711"),
        ("IDLE+DRAIN", PLAIN),
        ("IDLE+DRAIN", "hpkit: admin: swap (reboot 1f3a9c2e-77aa)"),
        ("IDLE+FAIL", f"{PLAIN} (reboot 1f3a9c2e-77aa)"),
    ],
)
def test_one_question_per_boot_when_there_is_nothing_of_ours(world: World, flags: str, reason: str) -> None:
    world.slurm.put("n1", flags=flags, reason=reason, by="root")
    for _ in range(5):
        assert world.round().kind == "none"
    assert world.slurm.reads == 1
    world.reboot()
    assert world.round().kind == "none"
    assert world.slurm.reads == 2


def test_a_boot_is_told_by_its_id_and_not_by_an_empty_folder(world: World) -> None:
    world.round()
    world.boot = "boot-b"
    world.round()
    world.round()
    assert world.slurm.reads == 2


@pytest.mark.parametrize("kind", ["unreachable", "timeout", "garbled"])
def test_no_answer_is_asked_again(world: World, kind: str) -> None:
    world.fail()
    world.reboot()
    world.slurm.down = kind
    assert world.round().kind == "none"
    world.slurm.down = ""
    assert world.round().kind == "returned"


@pytest.mark.parametrize(
    "config",
    [
        Config(mode="enforce"),
        DISKLESS._replace(mode="observe"),
    ],
)
def test_only_an_enforcing_diskless_node_asks(world: World, config: Config) -> None:
    world.fail()
    world.reboot()
    world.config, reads = config, world.slurm.reads
    assert not world.adopt()
    assert world.slurm.reads == reads


def test_no_room_for_the_record_is_asked_again(world: World) -> None:
    world.fail()
    world.reboot()
    os.makedirs(os.path.dirname(world.paths.lib))
    Path(world.paths.lib).write_text("in the way")
    assert not world.adopt()
    os.unlink(world.paths.lib)
    assert world.adopt()


def test_a_failing_round_after_the_reboot_keeps_the_old_drain(world: World) -> None:
    """The old token says which boot and what action; this round's failure adds to it, as it does to a record."""
    world.fail(Action.RETEST)
    old = world.reason
    world.reboot()
    assert world.fail(Action.REPLACE).kind == "already-ours"
    assert world.reason == old
    assert world.kept is not None
    assert (world.kept.reason, world.kept.action, world.kept.passes) == (old, Action.REPLACE, 0)
    assert ours(world.slurm.table["n1"], world.kept.reason)
    assert "replacement" in world.round().text


def test_a_failing_round_trusts_nobody_else_either(world: World) -> None:
    world.fail()
    world.slurm.put("n1", flags="IDLE+DRAIN", reason=world.reason, by="alice")
    world.reboot()
    assert world.fail().kind == "already-ours"
    assert world.kept is None
