"""The two detached helpers: each does one thing, once, for the right job, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit.node import helpers
from hpkit.paths import Paths
from hpkit.slurm.client import Job
from tests.support.fake_slurm import FakeSlurm, running

LAUNCH_FAILED = "launch_failed_requeued_held"


def pending(reason: str, *, restarts: int = 1, begin_in_s: float = 3000.0, user_id: int = 1000) -> Job:
    job = running("812", "", user_id=user_id)
    return job._replace(
        flags=frozenset({"PENDING"}), reason=reason, restarts=restarts, eligible_at=time.time() + begin_in_s
    )


COMPLETING = running("812", "n[1-2]")._replace(flags=frozenset({"PENDING", "COMPLETING"}), restarts=1)
RUNNING = running("812", "n[1-2]")
HELD = pending(LAUNCH_FAILED, begin_in_s=0)


class Story:
    """A controller whose job 812 moves on with each pause; the last state stays."""

    def __init__(self, *states: Job | None) -> None:
        self.slurm = FakeSlurm.of(3)
        self.slurm.put("n1", flags="IDLE+DRAIN", reason="hpkit: gpu.count: 7 of 8", by="root")
        self.states: Iterator[Job | None] = iter(states)
        self.pauses = 0
        self.move()

    def move(self, _seconds: float = 0.0) -> None:
        self.pauses += 1
        state = next(self.states, ...)
        if state is None:
            self.slurm.queue.clear()
        elif state is not ...:
            self.slurm.queue[state.id] = state

    @property
    def writes(self) -> list[tuple[str, ...]]:
        return self.slurm.writes


def start(story: Story, uids: tuple[int, ...] = (1000,)) -> str:
    return helpers.start_requeued(story.slurm, "n1", "812", uids, watch_s=10, pause=story.move)


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ((COMPLETING, COMPLETING, pending("BeginTime")), "started"),
        ((RUNNING._replace(flags=frozenset({"COMPLETING", "RUNNING"})), pending("BeginTime")), "started"),
        ((pending("None", begin_in_s=0), pending("BeginTime")), "started"),
        ((pending("None"),), "started"),
        ((pending("JobArrayTaskLimit"),), "started"),
        ((pending("JobArrayTaskLimit", begin_in_s=0),), "waits for JobArrayTaskLimit"),
        ((COMPLETING, pending("Resources")), "waits for Resources"),
        ((COMPLETING, pending("JobHeldUser")), "waits for JobHeldUser"),
        ((COMPLETING, pending("BeginTime", restarts=0)), "never ran"),
        ((COMPLETING, pending("BeginTime", begin_in_s=86400)), "begins later by somebody's wish"),
        ((COMPLETING, RUNNING), "running again"),
        ((COMPLETING, RUNNING._replace(flags=frozenset({"FAILED"}))), "over"),
        ((COMPLETING, RUNNING._replace(flags=frozenset({"CANCELLED"}))), "over"),
        ((COMPLETING, None), "gone"),
        ((COMPLETING,), "gave up: under way"),
    ],
)
def test_a_requeued_job_is_started_once_and_only_when_it_waits_for_its_begin_time(
    states: tuple[Job | None, ...], outcome: str
) -> None:
    story = Story(*states)
    assert start(story) == outcome
    assert story.writes == ([("start_now", "812")] if outcome == "started" else [])


def test_nobody_elses_job_is_started() -> None:
    story = Story(pending("BeginTime", user_id=1001))
    assert start(story, (1000, 1002)) == "not the note's owner"
    assert story.writes == []


def test_a_controller_that_is_away_for_a_moment_is_asked_again() -> None:
    story = Story(COMPLETING, pending("BeginTime"))
    story.slurm.down = "timeout"

    def pause(_seconds: float) -> None:
        story.slurm.down = ""
        story.move()

    assert helpers.start_requeued(story.slurm, "n1", "812", (1000,), pause=pause) == "started"


def test_a_controller_that_stays_away_ends_the_helper() -> None:
    story = Story(COMPLETING)
    story.slurm.down = "unreachable"
    assert start(story) == "gave up: unreachable"
    assert story.pauses < 30


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


OWN_HOLD = pending("job_requeued_in_held_state", restarts=3)._replace(
    flags=frozenset({"REQUEUE_HOLD"}), expedited=True, priority=0
)
ENDING = running("812", "n[1-2]")._replace(flags=frozenset({"COMPLETING"}), restarts=2, expedited=True)


def after_failure(story: Story, paths: Paths, **flags: bool) -> str:
    return helpers.after_failure(
        story.slurm,
        paths,
        "n1",
        "812",
        1000,
        2,
        "n[1-2]",
        watch_s=10,
        pause=story.move,
        **flags,  # type: ignore[arg-type] # a dict of one kind for keywords of several
    )


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ((ENDING, ENDING, OWN_HOLD), "released"),
        ((OWN_HOLD,), "released"),
        ((ENDING, OWN_HOLD._replace(reason="job requeued in held state")), "released"),
        # A person's requeuehold has the same text in another state, and its count had grown before.
        ((OWN_HOLD._replace(flags=frozenset({"PENDING"})),), "waits for job_requeued_in_held_state"),
        ((OWN_HOLD._replace(restarts=2),), "held: job_requeued_in_held_state"),
        ((OWN_HOLD._replace(restarts=4),), "held: job_requeued_in_held_state"),
        ((OWN_HOLD._replace(reason="JobHeldAdmin"),), "held: JobHeldAdmin"),
        ((OWN_HOLD._replace(reason="JobHeldUser"),), "held: JobHeldUser"),
        ((OWN_HOLD._replace(reason="None", priority=1),), "held: None"),  # somebody released it already
        (
            (OWN_HOLD._replace(reason="launch_failure_limit_exceeded_requeued_held"),),
            "held: launch_failure_limit_exceeded_requeued_held",
        ),
        ((OWN_HOLD._replace(expedited=False),), "held: job_requeued_in_held_state"),
        ((OWN_HOLD._replace(user_id=1001),), "not the note's owner"),
        (
            (ENDING, OWN_HOLD._replace(flags=frozenset({"EXPEDITING"}))),
            "put back by Slurm, before all others",
        ),
        ((ENDING, RUNNING), "running again"),
        ((ENDING, pending("BeginTime")), "started"),
        ((ENDING, pending("Resources")), "waits for Resources"),
        ((ENDING, RUNNING._replace(flags=frozenset({"FAILED"}))), "over"),
        ((ENDING, None), "gone"),
        ((ENDING,), "gave up: under way"),
    ],
)
def test_only_slurms_own_hold_of_an_expedited_job_is_released(
    paths: Paths, states: tuple[Job | None, ...], outcome: str
) -> None:
    story = Story(*states)
    assert after_failure(story, paths) == outcome
    verb = {"released": "release", "started": "start_now"}.get(outcome)
    assert story.writes == ([(verb, "812")] if verb else [])


@pytest.mark.parametrize("seen", [(), (ENDING,), (ENDING._replace(nodes="n1"),)])
@pytest.mark.parametrize(("drained", "released"), [("n1", True), ("n2", True), ("n3", False)])
def test_a_hold_is_released_only_while_a_node_of_that_run_is_drained_by_hpkit(
    paths: Paths, seen: tuple[Job, ...], drained: str, released: bool
) -> None:
    """Else a program with a bug, whose requeue could not be switched off, would run for ever.

    Of a job that completes Slurm shows only the nodes that are not done yet.
    """
    story = Story(*seen, OWN_HOLD)
    story.slurm.put("n1", flags="IDLE")
    story.slurm.put(drained, flags="DOWN+DRAIN", reason="hpkit: gpu.count: 7 of 8")
    wanted = "released" if released else "left held: no node of it is drained by hpkit"
    assert after_failure(story, paths) == wanted


def test_a_job_that_waits_for_a_dead_node_is_watched_until_slurm_gives_the_node_up(paths: Paths) -> None:
    """With the default SlurmdTimeout an expedited job is held only after five minutes."""
    story, passed = Story(ENDING), 0.0

    def pause(seconds: float) -> None:
        nonlocal passed
        passed += seconds
        if passed > 330:
            story.slurm.queue["812"] = OWN_HOLD

    assert helpers.after_failure(story.slurm, paths, "n1", "812", 1000, 2, "n1", pause=pause) == "released"
    assert passed < 340


def test_each_hold_of_an_expedited_job_is_released_once(paths: Paths) -> None:
    assert after_failure(Story(OWN_HOLD), paths) == "released"
    assert after_failure(Story(OWN_HOLD), paths) == "released before"
    later = helpers.after_failure(
        Story(OWN_HOLD._replace(restarts=4)).slurm, paths, "n1", "812", 1000, 3, "n1"
    )
    assert later == "released", "the hold at the end of a later run"


@pytest.mark.parametrize(
    ("states", "flags", "outcome"),
    [
        ((OWN_HOLD,), {"release": False}, "left held"),
        ((ENDING, pending("BeginTime")), {"start": False}, "left to wait"),
        ((OWN_HOLD,), {"start": False}, "released"),
    ],
)
def test_a_site_may_forbid_each(
    paths: Paths, states: tuple[Job, ...], flags: dict[str, bool], outcome: str
) -> None:
    story = Story(*states)
    assert after_failure(story, paths, **flags) == outcome
    assert bool(story.writes) is (outcome == "released")


def test_the_end_of_a_hold_that_got_no_answer_is_asked_for_again(paths: Paths) -> None:
    story = Story(OWN_HOLD)
    calls = iter(("timeout", ""))

    def fail_once() -> None:
        story.slurm.down = next(calls)

    def pause(_seconds: float) -> None:
        story.slurm.down = ""

    story.slurm.before_write = fail_once
    assert helpers.after_failure(story.slurm, paths, "n1", "812", 1000, 2, "n1", pause=pause) == "released"
    assert story.writes == [("release", "812")]


def release(story: Story, paths: Paths) -> str:
    return helpers.release_held(story.slurm, paths, "n1", "812", watch_s=10, pause=story.move)


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ((RUNNING, COMPLETING, HELD), "released"),
        ((HELD._replace(reason="launch failed requeued held"),), "released"),
        ((RUNNING, pending("JobHoldMaxRequeue")), "not held by a failed launch: JobHoldMaxRequeue"),
        ((RUNNING, pending("launch_failure_limit_exceeded_requeued_held")), None),
        ((RUNNING, pending("JobHeldUser")), "not held by a failed launch: JobHeldUser"),
        ((RUNNING, pending("JobHeldAdmin")), "not held by a failed launch: JobHeldAdmin"),
        ((RUNNING, pending("job_requeued_in_held_state")), None),
        ((RUNNING, pending("BeginTime")), "not held by a failed launch: BeginTime"),
        ((RUNNING, pending("Resources")), "not held by a failed launch: Resources"),
        ((RUNNING, RUNNING._replace(flags=frozenset({"CANCELLED"}))), "over"),
        ((RUNNING, None), "gone"),
        ((RUNNING,), "gave up: under way"),
    ],
)
def test_only_slurms_own_hold_after_a_failed_launch_is_released(
    paths: Paths, states: tuple[Job | None, ...], outcome: str | None
) -> None:
    story = Story(*states)
    found = release(story, paths)
    assert found == outcome if outcome else found.startswith("not held by a failed launch: ")
    assert story.writes == ([("release", "812")] if outcome == "released" else [])


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("IDLE", ""),
        ("IDLE+DRAIN", "Prolog error"),
        ("IDLE+DRAIN", "ticket 4711"),
        ("IDLE+FAIL", "hpkit: x: y"),
        ("IDLE", "hpkit: x: y"),
    ],
)
def test_nothing_is_released_before_this_node_is_drained_by_us(paths: Paths, flags: str, reason: str) -> None:
    story = Story(HELD)
    story.slurm.put("n1", flags=flags, reason=reason)
    assert release(story, paths) == "gave up: launch failed"
    assert story.writes == []


def test_it_waits_for_the_drain(paths: Paths) -> None:
    story = Story(HELD)
    story.slurm.put("n1", flags="IDLE")

    def pause(_seconds: float) -> None:
        story.slurm.put("n1", flags="IDLE+DRAIN", reason="hpkit: gpu.count: 7 of 8")

    assert helpers.release_held(story.slurm, paths, "n1", "812", pause=pause) == "released"


def test_never_a_second_time_on_this_node_not_even_when_the_first_was_refused(paths: Paths) -> None:
    story = Story(HELD)

    def refuse() -> None:
        story.slurm.down = "denied"

    story.slurm.before_write = refuse
    assert release(story, paths) == "refused"
    story.slurm.before_write, story.slurm.down = None, ""
    assert release(story, paths) == "released before"
    assert story.writes == []


@pytest.mark.parametrize("kind", ["timeout", "unreachable"])
def test_a_write_that_got_no_answer_is_asked_for_again(paths: Paths, kind: str) -> None:
    story = Story(HELD)
    calls = iter((kind, "", kind, ""))

    def fail_once() -> None:
        story.slurm.down = next(calls)

    def pause(_seconds: float) -> None:
        story.slurm.down = ""
        if story.writes:
            story.slurm.queue["812"] = pending("BeginTime")

    story.slurm.before_write = fail_once
    outcome = helpers.after_reject(story.slurm, paths, "n1", "812", 1000, watch_s=10, pause=pause)
    assert outcome == "released, started"
    assert [verb for verb, *_ in story.writes] == ["release", "start_now"]


@pytest.mark.parametrize("kind", ["timeout", "unreachable"])
def test_a_release_that_was_heard_without_an_answer_is_not_made_twice(paths: Paths, kind: str) -> None:
    story = Story(HELD)

    def heard() -> None:
        story.slurm.down = kind

    def pause(_seconds: float) -> None:
        story.slurm.down = ""
        story.slurm.queue["812"] = pending("Priority")

    story.slurm.before_write = heard
    assert helpers.release_held(story.slurm, paths, "n1", "812", pause=pause).endswith("Priority")
    assert story.writes == []


def test_what_was_released_is_remembered_in_bounds(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers, "RELEASED_MAX", 2)
    for job in ("1", "2", "3"):
        story = Story(HELD._replace(id=job))
        helpers.release_held(story.slurm, paths, "n1", job, pause=story.move)
    assert Path(paths.lib, "released.json").read_text() == '["2", "3"]\n'
    Path(paths.lib, "released.json").write_text("{broken")
    assert release(Story(HELD), paths) == "released"


@pytest.mark.parametrize(
    ("states", "flags", "outcome", "writes"),
    [
        (
            (RUNNING, pending("BeginTime")),
            {},
            "not held by a failed launch: BeginTime, started",
            ["start_now"],
        ),
        ((RUNNING, HELD, pending("BeginTime")), {}, "released, started", ["release", "start_now"]),
        ((RUNNING, HELD, pending("BeginTime")), {"start": False}, "released", ["release"]),
        ((RUNNING, pending("BeginTime")), {"release": False}, None, ["start_now"]),
        ((RUNNING, HELD), {"release": False}, "left held", []),
        ((RUNNING, pending("JobHeldAdmin")), {}, None, []),
        ((RUNNING, None), {}, "gone", []),
    ],
)
def test_a_rejected_job_is_helped_on(
    paths: Paths,
    states: tuple[Job | None, ...],
    flags: dict[str, bool],
    outcome: str | None,
    writes: list[str],
) -> None:
    story = Story(*states)
    found = helpers.after_reject(
        story.slurm,
        paths,
        "n1",
        "812",
        1000,
        watch_s=10,
        pause=story.move,
        **flags,  # type: ignore[arg-type]
    )
    assert [verb for verb, *_ in story.writes] == writes
    assert outcome is None or found == outcome


def test_an_array_task_is_found_by_its_own_name() -> None:
    """Slurm tells a hook the number of an array's last task as the whole array's, which no client takes for one job."""
    from hpkit.errors import SlurmError

    task = COMPLETING._replace(id="812_3", array_job_id="812", array_task_id="3")

    class Array(FakeSlurm):
        def job(self, job_id: str) -> Job:
            if job_id == "812":
                raise SlurmError("refused", "812 is an array")
            return super().job(job_id)

    story = Story(task)
    slurm = Array(story.slurm.table.values(), [task])

    def pause(_seconds: float) -> None:
        slurm.queue["812_3"] = pending("BeginTime")._replace(id="812_3", array_job_id="812")

    assert helpers.start_requeued(slurm, "n1", "812", (1000,), watch_s=5, pause=pause) == "started"
    assert slurm.writes == [("start_now", "812_3")]
    two = Array(story.slurm.table.values(), [task, task._replace(id="812_4")])
    assert helpers.start_requeued(two, "n1", "812", (1000,), watch_s=2, pause=pause).startswith("gave up")
    assert two.writes == []
