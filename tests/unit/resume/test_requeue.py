"""The order of a requeue, its refusals, and whom it may kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpkit.errors import SlurmError
from hpkit.proc import Kin, Stamp
from hpkit.resume.attempts import Key, Record
from hpkit.resume.facts import Cause, Plan
from hpkit.resume.requeue import (
    RETRY_S,
    Batch,
    Order,
    by_hand,
    carry_out,
    commands,
    end_batch,
    find_batch,
    leave_to_slurm,
)
from hpkit.resume.signals import Place
from tests.support.fake_slurm import FakeSlurm, running

PLAN, CAUSE = Plan("requeue", ""), Cause("hardware", ("n2",), "n2 is down")
ORDER = Order("7", 8)


@pytest.fixture(autouse=True)
def unshielded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own process keeps its signals."""
    monkeypatch.setattr("hpkit.resume.requeue.ignore_ending", lambda: None)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(Key("c", "7"), [str(tmp_path)], 0)


@pytest.fixture
def slurm() -> FakeSlurm:
    made = FakeSlurm.of(4)
    made.queue["7"] = running("7", "n[1-2]")
    return made


class Clock:
    """Time that passes only by waiting."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def carried(slurm: FakeSlurm, record: Record, order: Order = ORDER) -> tuple[str, Clock, list[str]]:
    clock, said = Clock(), list[str]()
    why = carry_out(slurm, order, PLAN, CAUSE, record, say=said.append, pause=clock.pause, clock=clock)
    return why, clock, said


def states(record: Record) -> list[str]:
    return [e["state"] for e in record.read().events if e["event"] == "requeue"]


def test_the_record_is_written_before_slurm_is_asked(slurm: FakeSlurm, record: Record) -> None:
    before: list[list[str]] = []
    slurm.before_write = lambda: before.append(states(record))
    assert carried(slurm, record)[0] == ""
    assert before == [["asked"]]
    assert slurm.writes[0][:3] == ("requeue", "7", "8")
    assert states(record) == ["asked"]


def test_the_exclusion_goes_with_it_and_only_ours_is_remembered(slurm: FakeSlurm, record: Record) -> None:
    assert carried(slurm, record, Order("7", 8, ("n4", "n2")))[0] == ""
    assert slurm.queue["7"].exc_nodes == "n4,n2"
    assert record.read().events[0]["excluded"] == ["n2"]


def test_an_empty_exclusion_clears_the_list(slurm: FakeSlurm, record: Record) -> None:
    slurm.queue["7"] = slurm.queue["7"]._replace(exc_nodes="n2")
    assert carried(slurm, record, Order("7", 8, ()))[0] == ""
    assert slurm.queue["7"].exc_nodes == ""


def test_a_cancelled_job_is_not_revived(slurm: FakeSlurm, record: Record) -> None:
    def cancel() -> None:
        slurm.queue["7"] = slurm.queue["7"]._replace(flags=frozenset({"CANCELLED", "COMPLETING"}))

    slurm.before_write = cancel
    why, clock, _ = carried(slurm, record)
    assert "cancelled" in why and clock.waits == []
    assert "CANCELLED" in slurm.queue["7"].flags
    assert states(record) == ["asked", "refused"]


@pytest.mark.parametrize("change", [{"requeue": False}, {"batch": False}])
def test_a_refusal_is_final(slurm: FakeSlurm, record: Record, change: dict[str, bool]) -> None:
    slurm.queue["7"] = slurm.queue["7"]._replace(**change)
    why, clock, _ = carried(slurm, record)
    assert why and clock.waits == []
    assert states(record) == ["asked", "refused"]


def test_a_controller_that_is_down_is_asked_again_for_a_minute(slurm: FakeSlurm, record: Record) -> None:
    slurm.down = "unreachable"
    why, clock, said = carried(slurm, record)
    assert "contact" in why
    assert clock.now == pytest.approx(RETRY_S)
    assert clock.waits[:4] == [1, 2, 4, 8] and len(said) == len(clock.waits)
    assert states(record) == ["asked", "refused"]


def test_a_controller_that_comes_back_is_used(slurm: FakeSlurm, record: Record) -> None:
    slurm.down = "timeout"
    clock = Clock()

    def pause(seconds: float) -> None:
        clock.pause(seconds)
        slurm.down = "" if clock.now > 5 else "timeout"

    why = carry_out(slurm, ORDER, PLAN, CAUSE, record, say=lambda _: None, pause=pause, clock=clock)
    assert why == "" and clock.waits == [1, 2, 4]


def test_a_request_that_arrived_although_its_answer_was_lost(slurm: FakeSlurm, record: Record) -> None:
    class Losing(FakeSlurm):
        def requeue(
            self, job_id: str, *, begin_in_s: int | None, exclude: str | None = None
        ) -> tuple[str, ...]:
            super().requeue(job_id, begin_in_s=begin_in_s, exclude=exclude)
            raise SlurmError("timeout", "no answer")

    losing = Losing(slurm.table.values(), slurm.queue.values())
    why, clock, _ = carried(losing, record)
    assert why == "" and clock.waits == [] and len(losing.writes) == 1


def test_a_requeue_whose_answer_was_lost_shows_in_the_count(slurm: FakeSlurm, record: Record) -> None:
    """Until its nodes are free a requeued job shows itself as COMPLETING only, like one that ends."""

    class Losing(FakeSlurm):
        heard = True

        def requeue(
            self, job_id: str, *, begin_in_s: int | None, exclude: str | None = None
        ) -> tuple[str, ...]:
            job = self.queue[job_id]
            completing = job._replace(flags=frozenset({"COMPLETING"}), restarts=job.restarts + self.heard)
            self.queue[job_id] = completing
            raise SlurmError("refused", "killed by signal 15")

    losing = Losing(slurm.table.values(), slurm.queue.values())
    assert carried(losing, record)[0] == ""
    ending = Losing(slurm.table.values(), slurm.queue.values())
    ending.heard = False
    assert "signal 15" in carried(ending, record)[0]


def test_an_expedited_job_needs_no_begin_time(slurm: FakeSlurm, record: Record) -> None:
    slurm.queue["7"] = slurm.queue["7"]._replace(expedited=True)
    assert carried(slurm, record, Order("7", None))[0] == ""
    assert slurm.writes == [("requeue", "7", "None", "-")]
    assert slurm.queue["7"].start_at == slurm.clock()


def test_a_requeue_by_the_exit_code_is_recorded_before(
    record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[list[str]] = []
    monkeypatch.setattr("hpkit.resume.requeue.ignore_ending", lambda: before.append(states(record)))
    leave_to_slurm(CAUSE, record, say=lambda _: None)
    (event,) = record.read().events
    assert before == [["asked"]]
    assert (event["way"], event["cause"], event["nodes"]) == ("exit code", "hardware", ["n2"])


def test_a_part_that_slurm_refused_is_said(slurm: FakeSlurm, record: Record) -> None:
    class Partly(FakeSlurm):
        def requeue(
            self, job_id: str, *, begin_in_s: int | None, exclude: str | None = None
        ) -> tuple[str, ...]:
            super().requeue(job_id, begin_in_s=begin_in_s, exclude=exclude)
            return ("Job is no longer pending",)

    why, _, said = carried(Partly(slurm.table.values(), slurm.queue.values()), record)
    assert why == "" and "no longer pending" in said[0]


def test_a_record_that_cannot_be_written_does_not_stop_it(slurm: FakeSlurm, tmp_path: Path) -> None:
    (tmp_path / "c-7.jsonl").mkdir()
    why, _, said = carried(slurm, Record(Key("c", "7"), [str(tmp_path)], 0))
    assert why == "" and "could not be recorded" in said[0]


ME, ROOT = 1000, 0
SHELL = Kin(Stamp(30, 1), ME, "bash", "/bin/bash /var/spool/slurmd/job7/slurm_script")
INNER = Kin(Stamp(40, 1), ME, "bash", "bash -c hp-srun")
STEPD = Kin(Stamp(20, 1), ROOT, "slurmstepd", "slurmstepd: [7.batch]")
INIT = Kin(Stamp(1, 1), ROOT, "systemd", "/sbin/init")


@pytest.mark.parametrize(
    ("kin", "expected"),
    [
        ([SHELL, STEPD, INIT], Batch(Place(20), (SHELL.stamp,))),
        ([INNER, SHELL, STEPD, INIT], Batch(Place(20), (SHELL.stamp, INNER.stamp))),
        ([STEPD, INIT], Batch(Place(20, is_shell=True), ())),
        ([SHELL, STEPD._replace(title="slurmstepd: [77.batch]")], Batch()),  # another job's
        ([SHELL, STEPD._replace(title="slurmstepd: [7.0]")], Batch()),  # a job step, not the batch step
        ([SHELL._replace(uid=0), STEPD], Batch()),  # not ours to kill
        ([SHELL, INIT], Batch()),  # no slurmstepd above us: a login shell
        ([], Batch()),
    ],
)
def test_only_this_jobs_batch_shells_are_found(kin: list[Kin], expected: Batch) -> None:
    assert find_batch(kin, ME, "7") == expected


def test_the_shells_are_killed_whatever_they_trap() -> None:
    shell = subprocess.Popen(
        ["bash", "-c", "trap '' TERM INT; echo up; sleep 60; echo later"], stdout=subprocess.PIPE
    )
    assert shell.stdout is not None and shell.stdout.readline() == b"up\n"
    from hpkit.proc import stamp

    found = stamp(shell.pid)
    assert found is not None
    end_batch(Batch(Place(), (found,)))
    assert shell.wait(timeout=10) == -9
    shell.stdout.close()


def test_our_own_ancestors_are_read() -> None:
    from hpkit.proc import ancestors

    kin = ancestors()
    assert kin[0].stamp.pid == os.getppid() and kin[0].uid == os.getuid()
    assert kin[-1].stamp.pid == 1 or kin[-1].stamp.pid > 0
    child = "from hpkit.proc import ancestors; import os; print(ancestors()[0].stamp.pid)"
    ran = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
    assert int(ran.stdout) == os.getpid()


def test_texts_for_people() -> None:
    assert by_hand("7_2").endswith("requeue 7_2")
    assert commands(Order("7", 8)) == ("requeue incomplete 7", "update jobid=7 starttime=now+8")
    assert commands(Order("7", 8, ("n1",)))[1].endswith("excnodelist=n1")
    assert commands(Order("7", None)) == ("requeue incomplete 7",)
    assert commands(Order("7", None, ("n1",)))[1] == "update jobid=7 excnodelist=n1"
