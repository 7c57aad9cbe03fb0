"""Main of prolog, epilog, background round, note round, watcher and the two helpers; standard library and hpkit only.

Started as `PYTHON -I -S LIB/hpkit/start.py KIND --root ROOT`. Exit status 101 means "the node is drained with our
reason: reject"; the sh hooks turn it into 1 and everything else into 0. Whatever hangs or breaks inside, a hook ends
within its budget, its children with it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hpkit import host as machine
from hpkit import log, past, proc
from hpkit.config import Config
from hpkit.errors import HpkitError, UsageError
from hpkit.model import Load, Report, Verdict, View
from hpkit.node import lock, notes, round, settings, verdict
from hpkit.node.watchdog import Watchdog
from hpkit.paths import Paths, paths

if TYPE_CHECKING:
    from hpkit.slurm.client import Client

REJECT = 101
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "start.py")
ROUNDS = ("prolog", "epilog", "health", "note")
HELPERS = ("watch", "start", "release")
FIRST_S = 10.0  # until the configuration has told the budget
SLURM_SHARE = 0.3  # of the budget is kept for telling Slurm
SLURM_MAX_S = 15.0
CALL_SHARE = 0.45  # of what is left for one call, so that a second one is possible
JITTER_SHARE = 0.2
STEPS_SPARE_S = 0.5  # of the budget is kept for ending after the wait for the job's step daemons
OURS = ("drained", "already-ours")


class Scene(NamedTuple):
    """One call of a hook: what it is, where, with which configuration, until when (time.monotonic)."""

    kind: str
    root: str
    paths: Paths
    settings: Config
    plan: round.Plan
    host: machine.Host
    deadline: float
    round_deadline: float

    @property
    def enforcing(self) -> bool:
        """Whether anything may be changed in Slurm."""
        return self.settings.mode == "enforce"


def main(argv: Sequence[str]) -> int:
    """`hpkit hook KIND [--root ROOT]`: 0, or 1 when the job or node is rejected, 3 on wrong usage."""
    try:
        code = run(argv)
    except UsageError as error:
        os.write(2, f"{error.message}\n{error.hint}\n".encode())
        return error.code
    return 1 if code == REJECT else code


def run(argv: Sequence[str]) -> int:
    """Do what the command line says; 0, or `REJECT`. Raises UsageError for wrong usage and nothing else."""
    kind, root, rest = _parse(argv)
    log.setup(root)
    begun = time.monotonic()
    watchdog = Watchdog(kind)
    try:
        if kind in HELPERS:
            return _helper(kind, root, rest)
        watchdog.arm(FIRST_S)
        code = _round_hook(kind, root, begun, watchdog)
    except Exception as error:  # noqa: BLE001 - fail open on ourselves: no fault of hpkit's may stop a job
        log.error("hook-crashed", hook=kind, why=f"{type(error).__name__}: {error}", where=_where(error))
        code = watchdog.code
    watchdog.disarm()
    return code


def _parse(argv: Sequence[str]) -> tuple[str, str, list[str]]:
    words = list(argv)
    root = ""
    if "--root" in words:
        at = words.index("--root")
        root = words[at + 1] if at + 1 < len(words) else ""
        del words[at : at + 2]
    kinds = ROUNDS + HELPERS
    if not words or words[0] not in kinds:
        raise UsageError(f"hook needs one of: {', '.join(kinds)}", "for example: hpkit hook health")
    if words[0] in ROUNDS and words[1:]:
        raise UsageError(f"the {words[0]} hook takes no {words[1]!r}", "for example: hpkit hook health")
    return words[0], root, words[1:]


def _round_hook(kind: str, root: str, begun: float, watchdog: Watchdog) -> int:
    """Prolog, epilog, background round and note round."""
    where = paths(root)
    name = "health" if kind == "note" else kind

    def usable(found: Config, suites: settings.Suites) -> round.Plan:
        # The background round keeps the good copy for all: none may be left with a configuration that it cannot use.
        hooks = round.HOOKS if kind == "health" else (name,)
        return {h: round.plan(found, suites, getattr(found.hooks, h).suite) for h in hooks}[name]

    config, plan = settings.load(where, usable, keep=kind == "health")
    log.setup(root, syslog=config.log.syslog)
    if kind == "note":
        watchdog.disarm()
        time.sleep(notes.due_in(where, config.hooks.note_interval_s, time.clock_gettime(time.CLOCK_BOOTTIME)))
        begun = time.monotonic()
    budget_s = getattr(config.hooks, name).budget_s
    watchdog.arm(begun + budget_s - time.monotonic())
    deadline = begun + budget_s
    round_deadline = deadline - min(SLURM_SHARE * budget_s, SLURM_MAX_S)
    host = machine.live(root, view=View.NODE)
    scene = Scene(kind, root, where, config, plan, host, deadline, round_deadline)
    rejected = _epilog(scene, watchdog) if kind == "epilog" else _locked_round(scene, watchdog)
    if kind == "health":
        _watch_over(scene)
    return REJECT if rejected else 0


def _epilog(scene: Scene, watchdog: Watchdog) -> bool:
    """The epilog; whether the node is to be rejected.

    An expedited job must not lose its nodes, or be held, because a round takes long or finds the fault gone: where
    root has judged already, its drain is the answer.
    """
    from hpkit.node import parting

    job = parting.of(os.environ, scene.host.node)
    suspected = scene.enforcing and parting.suspected(scene.paths, job)
    expedited = suspected and parting.expedited(_client(scene), scene.host.node, job)
    hooks = scene.settings.hooks
    if suspected and job.first and (hooks.release_held or hooks.start_requeued):
        _leave_helper(scene, "start", job.job, str(job.uid), str(job.restarts))
    reason = parting.taken_out(_client(scene), scene.host.node) if expedited else ""
    if reason:
        watchdog.code = REJECT
        verdict.remove(scene.paths)
        os.write(1, f"{reason}\n".encode())
    rejected = bool(reason) or (not _epilog_is_done(scene) and _locked_round(scene, watchdog))
    _see_the_job_off(scene, job.job)
    if expedited:
        waited_s = parting.end_together(job, time.time() + scene.deadline - time.monotonic() - STEPS_SPARE_S)
        log.info(
            "expedited", job=job.job, drained=bool(reason), rejected=rejected, waited_s=f"{waited_s:.2f}"
        )
    return rejected


def _epilog_is_done(scene: Scene) -> bool:
    """Whether the job ended well and the verdict still holds."""
    ended = f"{os.environ.get('SLURM_JOB_EXIT_CODE', '0')} {os.environ.get('SLURM_JOB_EXIT_CODE2', '0:0')}"
    if ended == "0 0:0" and not notes.any_left(scene.paths):
        return verdict.trusted(scene.paths, scene.host.now(), "epilog") is not None
    verdict.remove(scene.paths)
    return False


def _locked_round(scene: Scene, watchdog: Watchdog) -> bool:
    """Run the round under the lock, unless another hook just did; whether the job or node is to be rejected."""
    since = scene.host.now().uptime if scene.kind == "epilog" else 0.0
    held = lock.acquire(scene.paths, scene.round_deadline)
    if held is None:
        log.warning("hook-gave-way", hook=scene.kind, why="another hook held the lock for too long")
        return False
    with held:
        round.keep("notes", lambda: notes.prepare(scene.paths, scene.host.now().boot_id))
        taken = notes.take(scene.paths)
        if held.waited and not taken and _just_told(scene, since):
            return False
        if scene.kind == "note":
            if not taken:
                return False
            notes.mark(scene.paths, scene.host.now().uptime)
        return _round(scene, watchdog, taken)


def _just_told(scene: Scene, since: float) -> bool:
    """Whether the hook that held the lock left a verdict that this one may trust; the background round never does."""
    if scene.kind not in ("prolog", "epilog"):
        return False
    return verdict.trusted(scene.paths, scene.host.now(), scene.kind, since=since) is not None


def _round(scene: Scene, watchdog: Watchdog, taken: tuple[notes.Note, ...]) -> bool:
    """The round itself and what follows from it; whether the job or node is to be rejected."""
    before = round.last_report(scene.paths, scene.plan.suite)
    _accept_by_hand(scene, before)
    done = round.run(
        scene.paths,
        scene.settings,
        scene.host,
        scene.plan,
        budget_s=max(0.1, scene.round_deadline - time.monotonic()),
        jobs_here=_jobs_here(scene),
    )
    round.tell(before, done.report, scene.kind)
    outcome = _take_out(scene, done) if done.report.verdict is Verdict.UNHEALTHY else ""
    rejected = outcome in OURS and scene.kind in ("prolog", "epilog")
    if rejected:
        watchdog.code = REJECT
        _reject(scene, done)
    if scene.plan.answers:
        notes.consume(scene.paths, taken)
    if scene.kind == "health" and outcome != "drained":
        _consider_return(scene, done)
    return rejected


def _accept_by_hand(scene: Scene, before: Report | None) -> None:
    """Look whether a person brought the node back; costs nothing without a drain record."""
    from hpkit.node import record

    if scene.enforcing and record.load(scene.paths) is not None:
        from hpkit.node import by_hand

        here, now = scene.host.node, scene.host.now()
        round.keep(
            "past", lambda: by_hand.accept(lambda: _client(scene), scene.paths, now, here, lambda: before)
        )


def _jobs_here(scene: Scene) -> bool:
    """Whether a job of somebody else's is here; asked only for checks that disturb, and "yes" without an answer."""
    if all(check.load is Load.QUIET for check in scene.plan.checks):
        return False
    own = os.environ.get("SLURM_JOB_ID", "")
    try:
        return any(job.id != own for job in _client(scene).jobs_on(scene.host.node))
    except HpkitError as error:
        log.warning("jobs-not-known", why=error)
        return True


def _take_out(scene: Scene, done: round.Done) -> str:
    """Drain this node because of a failure, when that is allowed; what came of it in one word."""
    from hpkit.policy.verdict import reason_for

    reason = reason_for(done.report)
    if not scene.enforcing:
        log.warning("would-drain", node=scene.host.node, reason=reason, why="mode is observe")
        return "observe"
    from hpkit.node import record, remedy

    outcome = remedy.take_out(
        _client(scene),
        done.report,
        scene.paths,
        _hurried(scene),
        scene.host.now(),
        scene.host.node,
        instance_id=record.instance_id(scene.host),
        deadline=scene.deadline,
    )
    if outcome.kind not in OURS:
        log.warning(
            "not-drained", node=scene.host.node, reason=reason, outcome=outcome.kind, why=outcome.text
        )
    return outcome.kind


def _reject(scene: Scene, done: round.Done) -> None:
    """Say why, in the one line that Slurm logs; the job that Slurm puts back for it is helped on later."""
    from hpkit.policy.verdict import reason_for

    os.write(1, f"{reason_for(done.report)}\n".encode())
    hooks = scene.settings.hooks
    if scene.kind == "prolog" and (hooks.release_held or hooks.start_requeued):
        _leave_helper(
            scene, "release", os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_UID", "")
        )


def _consider_return(scene: Scene, done: round.Done) -> None:
    """A node with a drain record may come back, when its record says that enough was proven."""
    from hpkit.node import diskless, record

    now, name = scene.host.now(), scene.host.node
    if record.load(scene.paths) is None and not diskless.adopt(
        lambda: _client(scene), scene.paths, scene.settings, now, name
    ):
        return
    from hpkit.node import returning

    outcome = returning.consider(
        _client(scene),
        done.report,
        scene.paths,
        _hurried(scene),
        now,
        name,
        instance_id=record.instance_id(scene.host),
    )
    if outcome.kind != "waiting":
        log.info("return-considered", node=name, outcome=outcome.kind, why=outcome.text)
    if outcome.kind == "returned":
        accepted = past.accept(done.past, "return", now, past.counters_of(done.report.findings))
        round.keep("past", lambda: past.save(scene.paths, accepted))


def _see_the_job_off(scene: Scene, job: str) -> None:
    """After a job that may start again soon: nothing of it is left here when slurmctld is told that it has ended."""
    from hpkit.node import steps

    notes.forget(scene.paths, job)  # this epilog's own round has answered its notes
    steps.wait_for_end(job, min(time.monotonic() + steps.WAIT_S, scene.deadline - STEPS_SPARE_S))


def _leave_helper(scene: Scene, kind: str, job: str, *words: str) -> None:
    """Start a detached helper for the job of this hook; it holds nothing of ours open.

    The job is named while it is still on this node: for an array's task that is not possible later.
    """
    if not all(word.isdecimal() for word in (job, *words)):
        return
    from hpkit.node import helpers

    name = helpers.own_name(_client(scene), scene.host.node, job)
    try:
        proc.detach(
            (sys.executable, "-I", "-S", SCRIPT, kind, name, *words, "--root", scene.root),
            env=_kept("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
        )
    except OSError as error:
        log.error("helper-not-started", helper=kind, job=name, why=error)


def _kept(*more: str) -> dict[str, str]:
    """What a background process needs of Slurm's environment: the node's name, and what it asks for."""
    return {n: os.environ[n] for n in ("SLURMD_NODENAME", *more) if n in os.environ}


def _watch_over(scene: Scene) -> None:
    """Keep the background process for suspect notes alive."""
    from hpkit.node import watcher

    if scene.settings.hooks.watcher == "helper":
        watcher.ensure(scene.paths, scene.root, SCRIPT, _kept())


def _helper(kind: str, root: str, rest: Sequence[str]) -> int:
    """Be one of the background processes; nobody waits for its exit status."""
    where = paths(root)
    if kind == "watch":
        from hpkit.node import watcher

        watcher.watch(where, root, SCRIPT)
        return 0
    from hpkit.node import helpers, parting
    from hpkit.slurm import connect

    config = settings.load(where, lambda found, suites: None, keep=False)[0]
    log.setup(root, syslog=config.log.syslog)
    client = connect(config.slurm, trusted_only=os.geteuid() == 0)
    node = machine.live(root, view=View.NODE).node
    job, uid, release, start = rest[0], int(rest[1]), config.hooks.release_held, config.hooks.start_requeued
    if kind == "start":
        ran = int(rest[2]), parting.nodes(os.environ) or node
        outcome = helpers.after_failure(client, where, node, job, uid, *ran, release=release, start=start)
    else:
        outcome = helpers.after_reject(client, where, node, job, uid, release=release, start=start)
    log.info("helper-ended", helper=kind, job=rest[0], outcome=outcome)
    return 0


def _client(scene: Scene) -> Client:
    from hpkit.slurm import connect

    return connect(_hurried(scene).slurm, trusted_only=os.geteuid() == 0)


def _hurried(scene: Scene) -> Config:
    """The configuration with waiting times that fit into what is left of the budget."""
    left = max(0.5, scene.deadline - time.monotonic())
    slurm, drain = scene.settings.slurm, scene.settings.drain
    return scene.settings._replace(
        slurm=slurm._replace(timeout_s=min(slurm.timeout_s, left * CALL_SHARE)),
        drain=drain._replace(jitter_s=min(drain.jitter_s, left * JITTER_SHARE)),
    )


def _where(error: BaseException) -> str:
    """The innermost place of a fault, as file:line."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
