"""Expedited jobs: which way they go, and that none ends in a hold that nobody asked for."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpkit.config import DrainConfig
from hpkit.errors import SlurmError
from hpkit.proc import Stamp
from hpkit.resume import expedite, requeue, timeline
from hpkit.resume.attempts import Key, Record
from hpkit.resume.expedite import Way, choose, needs_switch, switch_off, switch_on_again
from hpkit.resume.facts import Cause, NodeFacts, Witness
from hpkit.resume.requeue import Batch
from hpkit.resume.signals import Place
from tests.support.fake_slurm import FakeSlurm, running
from tests.support.fake_srun import FakeSrun
from tests.unit.resume.test_evidence import document
from tests.unit.resume.test_main import hp_srun

REASON = "hpkit: gpu.count: 7 of 8 GPUs"
CAUSE = Cause("hardware", ("n2",), "n2: gpu.count: 7 of 8 GPUs")
SHELL = Batch(Place(20, is_shell=True))
JOB = running("7", "n[1-2]")._replace(expedited=True)
ACTING = Witness(noted=True, root="unhealthy", enforce=True)


class Time:
    """Passes only by waiting; `at` is called after each wait."""

    def __init__(self, at: Callable[[float], object] = lambda _: None) -> None:
        self.now = 0.0
        self.at = at

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.at(self.now)

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def fake(tmp_path: Path) -> FakeSrun:
    return FakeSrun(tmp_path / "fake")


@pytest.fixture
def slurm() -> FakeSlurm:
    made = FakeSlurm.of(4)
    made.settings["Epilog[0]"] = "/opt/hpkit/hooks/epilog/hpkit"
    made.queue["7"] = JOB
    return made


def facts(flags: str = "MIXED", reason: str = "", witness: Witness | None = ACTING) -> tuple[NodeFacts, ...]:
    healthy = Witness(noted=True, root="healthy", enforce=True)
    bad = NodeFacts("n2", frozenset(flags.split("+")), reason, witness=witness)
    return (NodeFacts("n1", frozenset({"MIXED"}), witness=healthy), bad)


def chosen(
    slurm: FakeSlurm, *, nodes: tuple[NodeFacts, ...] = facts(), batch: Batch = SHELL, clock: Time | None = None,
    rules: DrainConfig = DrainConfig(),
) -> Way:  # fmt: skip
    clock = clock or Time()
    return choose(slurm, JOB, batch, CAUSE, nodes, rules, pause=clock.pause, clock=clock)


def drain(slurm: FakeSlurm, flags: str = "MIXED+DRAIN", reason: str = REASON) -> None:
    slurm.put("n2", flags=flags, reason=reason, by="root")


def test_by_its_exit_code_when_the_epilog_is_sure_to_fail(slurm: FakeSlurm) -> None:
    drain(slurm)
    assert chosen(slurm) == Way(True, "n2")


def test_a_drain_that_is_announced_is_waited_for(slurm: FakeSlurm) -> None:
    clock = Time(lambda now: drain(slurm) if now > 2 else None)
    assert chosen(slurm, clock=clock).by_code
    assert clock.now == pytest.approx(2, abs=expedite.POLL_S)


def test_a_drain_that_does_not_come_is_not_waited_for_longer_than_the_site_drains(slurm: FakeSlurm) -> None:
    clock = Time()
    found = chosen(slurm, clock=clock, rules=DrainConfig(jitter_s=1.0))
    assert found == Way(False, "no faulty node of it was drained in time")
    assert clock.now == pytest.approx(1 + expedite.SETTLE_S, abs=expedite.POLL_S)


def test_nodes_do_not_stand_idle_for_a_site_that_drains_late(slurm: FakeSlurm) -> None:
    clock = Time()
    assert not chosen(slurm, clock=clock, rules=DrainConfig(jitter_s=60.0)).by_code
    assert clock.now < expedite.JITTER_MAX_S + expedite.SETTLE_S + 2 * expedite.POLL_S


def test_a_drain_that_the_budget_forbids_is_not_waited_for(slurm: FakeSlurm) -> None:
    clock = Time()
    found = chosen(slurm, clock=clock, rules=DrainConfig(max_nodes=0, max_share=0))
    assert not found.by_code and "hpkit may not drain it: 0 of 4 nodes of the cluster drained" in found.why
    assert clock.now == 0


@pytest.mark.parametrize(
    ("nodes", "batch", "why"),
    [
        (facts(), Batch(Place(20), (Stamp(30, 1),)), "the batch script may go on"),
        (facts(), Batch(), "the batch script may go on"),
        (facts(witness=None), SHELL, "where hpkit acts"),
        (
            facts(witness=ACTING._replace(enforce=False)),
            SHELL,
            "where hpkit acts",
        ),  # observes: its epilog never fails
        (
            facts(witness=ACTING._replace(noted=False)),
            SHELL,
            "where hpkit acts",
        ),  # no note: it is not told of the job
        (facts(witness=ACTING._replace(root="")), SHELL, "where hpkit acts"),  # only the user's own look
        (facts(flags="DOWN+DRAIN"), SHELL, "where hpkit acts"),  # no epilog runs there
        (facts(flags="MIXED+NOT_RESPONDING"), SHELL, "where hpkit acts"),
    ],
)
def test_anything_less_than_sure_is_a_requeue_of_our_own(
    slurm: FakeSlurm, nodes: tuple[NodeFacts, ...], batch: Batch, why: str
) -> None:
    drain(slurm)
    found = chosen(slurm, nodes=nodes, batch=batch)
    assert not found.by_code and why in found.why


def test_a_drained_node_needs_no_answer_of_roots(slurm: FakeSlurm) -> None:
    drain(slurm)
    assert chosen(slurm, nodes=facts("MIXED+DRAIN", REASON, ACTING._replace(root=""))).by_code


@pytest.mark.parametrize(
    ("flags", "reason"),
    [("MIXED+DRAIN", "psu swap"), ("MIXED+FAIL", REASON), ("MIXED+DRAIN", "Epilog error")],
)
def test_somebody_elses_drain_makes_no_epilog_of_ours_fail(slurm: FakeSlurm, flags: str, reason: str) -> None:
    drain(slurm, flags, reason)
    assert "hpkit may not drain it" in chosen(slurm).why


def test_a_node_that_went_down_meanwhile_has_no_epilog(slurm: FakeSlurm) -> None:
    drain(slurm, "DOWN+DRAIN")
    assert chosen(slurm) == Way(False, "no faulty node of it was drained in time")


def test_without_an_answer_nothing_is_sure(slurm: FakeSlurm) -> None:
    slurm.down = "timeout"
    found = chosen(slurm)
    assert not found.by_code and "Slurm did not tell" in found.why


def test_other_jobs_are_none_of_this(slurm: FakeSlurm) -> None:
    for job in (None, JOB._replace(expedited=False)):
        assert choose(slurm, job, SHELL, CAUSE, facts(), DrainConfig()) == Way()
    assert slurm.reads == 0


@pytest.mark.parametrize(
    ("change", "needed"),
    [
        ({}, True),
        ({"flags": {"SIGNALING"}}, True),
        ({"expedited": False}, False),
        ({"requeue": False}, False),
        *(
            ({"flags": {word}}, False)
            for word in ("COMPLETING", "CANCELLED", "TIMEOUT", "PENDING", "EXPEDITING")
        ),
    ],
)
def test_only_a_job_that_would_be_held_is_switched_off(change: dict[str, Any], needed: bool) -> None:
    given: dict[str, Any] = {k: frozenset(v) if k == "flags" else v for k, v in change.items()}
    assert needs_switch(JOB._replace(**given)) is needed
    assert not needs_switch(None)


def switched(slurm: FakeSlurm, folder: Path, clock: Time) -> tuple[bool, list[str], Record]:
    record, said = Record(Key("c", "7"), [str(folder)], 0), list[str]()
    done = switch_off(slurm, "7", record, say=said.append, pause=clock.pause, clock=clock)
    return done, said, record


def test_the_switch_is_asked_for_again_while_slurm_is_away(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.down = "unreachable"

    def back(now: float) -> None:
        slurm.down = "" if now > 5 else "unreachable"

    done, said, record = switched(slurm, tmp_path, Time(back))
    assert done and slurm.writes == [("no_requeue", "7")]
    assert "does not answer" in said[0] and "ends as FAILED" in said[-1]
    assert [e["state"] for e in record.read().events] == ["done"]


def test_a_switch_that_never_comes_is_told_with_what_to_type(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.down = "unreachable"
    clock = Time()
    done, said, record = switched(slurm, tmp_path, clock)
    assert not done and clock.now == pytest.approx(requeue.RETRY_S)
    assert "REQUEUE_HOLD" in said[-1] and "scancel 7" in said[-1] and "scontrol release 7" in said[-1]
    assert [e["state"] for e in record.read().events] == ["failed"]


def test_a_job_that_slurm_ends_meanwhile_is_not_said_to_be_switched_off(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    def cancelled() -> None:
        slurm.queue["7"] = JOB._replace(flags=frozenset({"COMPLETING"}))
        raise SlurmError("refused", "Job has already finished")

    slurm.before_write = cancelled
    done, said, record = switched(slurm, tmp_path, Time())
    assert (done, said, record.read().events) == (False, [], ())


def test_a_switch_whose_answer_was_lost_is_made(slurm: FakeSlurm, tmp_path: Path) -> None:
    def lost() -> None:
        slurm.queue["7"] = JOB._replace(requeue=False)
        raise SlurmError("timeout", "scontrol did not answer within 5 s")

    slurm.before_write = lost
    done, _, record = switched(slurm, tmp_path, Time())
    assert done and [e["state"] for e in record.read().events] == ["done"]


def test_it_is_switched_on_again_only_where_we_switched_it_off(slurm: FakeSlurm, tmp_path: Path) -> None:
    off = JOB._replace(requeue=False)
    record = Record(Key("c", "7"), [str(tmp_path)], 0)
    assert switch_on_again(slurm, off, record, say=lambda _: None) == off
    _, _, record = switched(slurm, tmp_path, Time())
    assert switch_on_again(slurm, JOB._replace(requeue=False), record, say=lambda _: None) == JOB
    assert switch_on_again(slurm, off, record, say=lambda _: None) == off, "done already"
    later = Record(Key("c", "7"), [str(tmp_path)], 1)
    later.append("no_requeue", state="done")
    assert switch_on_again(slurm, off, record, say=lambda _: None) == off, "in another run of the job"
    assert [verb for verb, *_ in slurm.writes] == ["no_requeue", "allow_requeue"]


def test_what_is_promised_at_the_start() -> None:
    assert expedite.promise(None, SHELL) == expedite.promise(JOB._replace(expedited=False), SHELL)
    assert expedite.promise(JOB, SHELL).endswith("an expedited requeue")
    assert "exec hp-srun" in expedite.promise(JOB, Batch())


EXPEDITED: dict[str, Any] = {"job": {"expedited": True}}
BY_CODE: dict[str, Any] = {
    **EXPEDITED,
    "shell": True,
    "settings": {"Epilog[0]": "/opt/hpkit/hooks/epilog/hpkit"},
    "drained": {"n2": "hpkit: gpu.count: 7 of 8 GPUs"},
}
UNHEALTHY = (document("n1", enforce=True), document("n2", "unhealthy", enforce=True))


def test_an_expedited_job_is_left_to_its_exit_code(fake: FakeSrun) -> None:
    fake.step("exit 9")
    fake.answers(*UNHEALTHY)
    ran = hp_srun(fake, "--auto-resume", "p", slurm=BY_CODE)
    assert (ran.code, ran.writes, ran.job) == (9, [], [["EXPEDITING"], 1])
    assert "ending with code 9" in ran.err and "because n2 is drained" in ran.err
    (shown,) = timeline.document(ran.events(), "x")["attempts"]
    assert (shown["action"], shown["requeue"], shown["way"]) == ("requeue", "asked", "exit code")
    assert "requeued by its exit code (expedited)" in "\n".join(
        timeline.lines({"job": "7", "cluster": "c", "attempts": [shown]})
    )
    again = hp_srun(fake, "--auto-resume", "p", slurm=BY_CODE, env={"SLURM_RESTART_COUNT": "1"})
    assert "attempt 2 of job 7" in again.err
    assert [e["restart"] for e in again.events() if e["event"] == "requeue"] == [0, 1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"shell": False}, "the batch script may go on after hp-srun"),
        ({"settings": {}}, "Slurm's Epilog is not hpkit's"),
        ({"drained": {"n2": "psu swap"}}, "hpkit may not drain it: already drained by root: psu swap"),
        ({"job": {"expedited": True, "exc_nodes": "n2"}}, ""),  # not our entry: it stays
    ],
)
def test_where_the_exit_code_may_not_do_it_hp_srun_requeues(
    fake: FakeSrun, change: dict[str, Any], why: str
) -> None:
    fake.step("exit 9")
    fake.answers(*UNHEALTHY)
    ran = hp_srun(fake, "--auto-resume", "p", slurm={**BY_CODE, **change})
    if not why:
        assert ran.writes == [] and "ending with code 9" in ran.err
        return
    assert (ran.code, ran.writes, ran.job) == (9, [["requeue", "7", "None", "-"]], [["PENDING"], 1])
    assert f"as soon as its nodes are free (not by its exit code: {why}" in ran.err
    assert "way" not in timeline.document(ran.events(), "x")["attempts"][0]


def test_a_change_of_the_excluded_nodes_needs_a_requeue_of_ours(fake: FakeSrun) -> None:
    fake.step("exit 9")
    fake.answers(document("n1", enforce=True), document("n2", "unhealthy"))
    observed = {**BY_CODE, "drained": {}}
    assert hp_srun(fake, "--auto-resume", "p", slurm=observed).writes == [["requeue", "7", "None", "n2"]]
    fake.answers(*UNHEALTHY)
    excluded = {**BY_CODE, "job": {"expedited": True, "exc_nodes": "n3", "restarts": 1}}
    first = hp_srun(fake, "--auto-resume", "p", slurm=excluded, env={"SLURM_RESTART_COUNT": "1"})
    assert first.writes == [], "n3 is the user's own wish"
    excluded["job"] |= {"exc_nodes": "n2", "restarts": 2, "nodes": "n[3-4]"}
    fake.answers(document("n3", enforce=True), document("n4", "unhealthy", enforce=True))
    excluded["drained"] = {"n4": "hpkit: gpu.count: 7 of 8 GPUs"}
    second = hp_srun(fake, "--auto-resume", "p", slurm=excluded, env={"SLURM_RESTART_COUNT": "2"})
    assert second.writes == [["requeue", "7", "None", ""]], "n2 is let in again"
    assert "its list of excluded nodes changes" in second.err


@pytest.mark.parametrize("code", [3, 93])
def test_an_expedited_job_that_shall_end_is_not_held(fake: FakeSrun, code: int) -> None:
    fake.step(f"exit {code}")
    fake.answers(document("n1"), document("n2", "unhealthy" if code == 93 else "healthy"))
    ran = hp_srun(fake, "--auto-resume", "p", slurm=EXPEDITED)
    assert (ran.code, ran.writes, ran.job) == (code, [["no_requeue", "7"]], [["FAILED"], 0])
    assert "job 7 ends as FAILED" in ran.err


def test_an_expedited_job_whose_restarts_are_used_is_not_held(fake: FakeSrun) -> None:
    fake.step("exit 9")
    words = ("--auto-resume", "--hp-answer=0", "--hp-give-up-code=77", "p")
    assert hp_srun(fake, *words, slurm=EXPEDITED).writes == [["requeue", "7", "None", "-"]]
    again = hp_srun(fake, *words, slurm=EXPEDITED, env={"SLURM_RESTART_COUNT": "1"})
    assert (again.code, again.writes, again.job) == (77, [["no_requeue", "7"]], [["FAILED"], 0])
    assert "submit it again" in again.err and "scontrol requeue" not in again.err


def test_our_own_failure_after_the_step_holds_no_expedited_job(fake: FakeSrun) -> None:
    fake.step("exit 5")
    ran = hp_srun(fake, "--auto-resume", "--hp-answer=0", "p", slurm={**EXPEDITED, "bad_judge": True})
    assert "internal error after the step" in ran.err
    assert (ran.code, ran.writes, ran.job) == (5, [["no_requeue", "7"]], [["FAILED"], 0])


def test_a_switch_that_slurm_does_not_hear_is_said_with_what_to_type(fake: FakeSrun) -> None:
    fake.step("exit 93")
    deaf = {**EXPEDITED, "deaf": True}
    ran = hp_srun(fake, "--auto-resume", "--hp-answer=0", "p", slurm=deaf)
    assert (ran.code, ran.job) == (93, [["REQUEUE_HOLD"], 1])
    assert "it will be held, in state REQUEUE_HOLD" in ran.err
    assert "scancel 7" in ran.err and "scontrol release 7" in ran.err


def test_a_requeue_that_slurm_does_not_hear_leaves_it_to_the_exit_code(fake: FakeSrun) -> None:
    fake.step("exit 9")
    fake.answers(*UNHEALTHY)
    ran = hp_srun(fake, "--auto-resume", "p", slurm={**BY_CODE, "shell": False, "deaf": True})
    assert (ran.code, ran.writes) == (9, [])
    assert "NOT requeued" in ran.err and "Slurm runs the job again if an epilog fails" in ran.err


def test_what_one_step_switched_off_the_next_one_switches_on(fake: FakeSrun) -> None:
    fake.step("exit 3")
    fake.answers(document("n1"), document("n2"))
    hp_srun(fake, "--auto-resume", "p", slurm=EXPEDITED)
    off = {"job": {"expedited": True, "requeue": False}}
    again = hp_srun(fake, "--auto-resume", "p", slurm=off)
    assert again.writes == [["allow_requeue", "7"], ["no_requeue", "7"]]
    (again.home / ".local/state/hpkit/runs/cluster-7.jsonl").unlink()
    users = hp_srun(fake, "--auto-resume", "p", slurm=off)
    assert users.writes == [] and "no requeue possible" in users.err, "the user's own Requeue=0"


@pytest.mark.parametrize(
    ("shell", "part"), [(True, "end with the step's code"), (False, "not here: the batch script")]
)
def test_dry_run_tells_of_an_expedited_job(fake: FakeSrun, shell: bool, part: str) -> None:
    ran = hp_srun(fake, "--hp-dry-run", "--auto-resume", "p", slurm={**EXPEDITED, "shell": shell})
    assert ran.code == 0 and ran.writes == [] and part in ran.out
    assert "requeue incomplete 7" in ran.out and "starttime" not in ran.out
    assert "scontrol update jobid=7 requeue=0" in ran.out


def test_a_step_beside_one_that_switched_off_is_requeued_all_the_same(fake: FakeSrun) -> None:
    """Two hp-srun at once in one script: the program of one has a bug, the node of the other fails."""
    fake.step("exit 3")
    fake.answers(document("n1"), document("n2"))
    hp_srun(fake, "--auto-resume", "p", slurm=EXPEDITED)
    fake.step("exit 9")
    fake.answers(*UNHEALTHY)
    ran = hp_srun(fake, "--auto-resume", "p", slurm={**BY_CODE, "shell": False, "off_at_end": True})
    assert ran.writes == [["allow_requeue", "7"], ["requeue", "7", "None", "-"]]
    assert (ran.code, ran.job) == (9, [["PENDING"], 1])


@pytest.mark.parametrize("shell", [True, False])
def test_a_mistake_in_the_command_line_holds_no_expedited_job_unsaid(fake: FakeSrun, shell: bool) -> None:
    ran = hp_srun(fake, "--hp-max-restarts=x", "p", slurm={**EXPEDITED, "shell": shell})
    assert ran.code == 3 and "--hp-max-restarts" in ran.err and fake.calls == []
    if shell:
        assert (ran.writes, ran.job) == ([["no_requeue", "7"]], [["FAILED"], 0])
    else:
        assert (ran.writes, ran.job) == ([], [["REQUEUE_HOLD"], 1])
        assert "scontrol release 7" in ran.err


def test_a_mistake_in_the_command_line_asks_nothing_more_of_other_jobs(fake: FakeSrun) -> None:
    ran = hp_srun(fake, "--hp-max-restarts=x", "p", slurm={})
    assert (ran.code, ran.writes, ran.err.count("\n")) == (3, [], 1)
    away = hp_srun(fake, "--hp-max-restarts=x", "p", slurm={**EXPEDITED, "down": "unreachable"})
    assert away.code == 3 and "--hp-max-restarts" in away.err and "Traceback" not in away.err


ENDED: dict[str, Any] = {**EXPEDITED, "flags": ["COMPLETING"], "shell": True}


def test_at_the_time_limit_hp_srun_ends_with_a_signal_for_which_slurm_holds_nothing(fake: FakeSrun) -> None:
    fake.step("exit 5")
    ran = hp_srun(fake, "--auto-resume", "p", slurm=ENDED)
    assert (ran.code, ran.writes) == (-signal.SIGTERM, [])
    assert "ending with SIGTERM: with code 5 Slurm might hold this job" in ran.err


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"shell": False}, True),  # the code of the script is not ours to choose
        ({"job": {}}, False),
        ({"job": {"expedited": True, "requeue": False}}, False),
    ],
)
def test_in_any_other_way_its_code_comes_out(fake: FakeSrun, change: dict[str, Any], told: bool) -> None:
    fake.step("exit 5")
    ran = hp_srun(fake, "--auto-resume", "p", slurm={**ENDED, **change})
    assert (ran.code, ran.writes) == (5, [])
    assert ("scontrol release 7" in ran.err) is told


def test_a_time_limit_reached_just_before_the_switch_holds_nothing(fake: FakeSrun) -> None:
    fake.step("exit 93")
    late = {**EXPEDITED, "shell": True, "ends_first": True}
    ran = hp_srun(fake, "--auto-resume", "--hp-answer=0", "p", slurm=late)
    assert (ran.code, ran.writes) == (-signal.SIGTERM, [])
    assert "switched off" not in ran.err
