"""Detached root helpers that hooks leave behind: a requeued job starts at once, one that Slurm itself holds goes on.

Each watches one job for a while, does at most one thing, and ends. Neither acts on anything a user wrote except the
suspect note's job id, which counts only when the note's owner owns the job.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from itertools import chain, repeat

from hpkit import files, log
from hpkit.errors import SlurmError
from hpkit.paths import Paths
from hpkit.policy import ownership
from hpkit.slurm.client import Client, Job

WATCH_S = 90.0  # the epilogs of all nodes, PrologEpilogTimeout included, are usually over by then
POLL_S = 0.5
# A node that dies before its epilog keeps the job completing until Slurm gives it up: SlurmdTimeout (300 s unless the
# site says otherwise) and a ping later. An expedited job is held then (measured on 26.05.5).
SLOW_S, SLOW_POLL_S = 1800.0, 5.0
FAR_S = 3600.0  # Slurm's own delay after a requeue is minutes; a later begin time is somebody's wish
RELEASED_MAX = 256
HELD = "launch failed"
NO_ANSWER = "no answer"
AWAY = frozenset(
    {"unreachable", "timeout"}
)  # the controller may have heard us all the same: look again, then ask again
NOT_HELD = "not held by a failed launch: "
REJECTED = "held by Slurm after this node's prolog rejected it"
# The text of Slurm's own hold after a failed prolog (job_mgr.c, _job_requeue_op).
LAUNCH_FAILED = "launch failed requeued held"
# Its hold of an expedited job without a failed epilog (job_mgr.c, batch_requeue_fini), in the state REQUEUE_HOLD. A
# person's `scontrol requeuehold` gives the same text in the state PENDING (measured on 26.05.5).
EXPEDITED_HELD = "job requeued in held state"
UNDER_WAY = frozenset(
    {"RUNNING", "CONFIGURING", "SUSPENDED", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT"}
)
UNDECIDED = frozenset({"", "None"})  # the state reason until the scheduler has looked at the job
BESIDE = UNDECIDED | {
    "JobArrayTaskLimit"
}  # reasons that Slurm shows though the begin time has not come either

Pause = Callable[[float], None]


def start_requeued(
    client: Client,
    node: str,
    job_id: str,
    uids: Iterable[int],
    *,
    watch_s: float = WATCH_S,
    pause: Pause = time.sleep,
) -> str:
    """Wait until the job is pending for its begin time after a requeue, then set StartTime=now once.

    `uids` are the owners of the suspect notes that named the job; the job must belong to one of them. Returns what came
    of it in a few words; "started" when the start time was set.
    """
    allowed = frozenset(uids)
    name = own_name(client, node, job_id)
    return _watch(client, name, lambda job: _help(client, name, job, allowed), watch_s, pause)


def after_failure(
    client: Client,
    paths: Paths,
    node: str,
    job_id: str,
    uid: int,
    restarts: int,
    nodes: str,
    *,
    release: bool = True,
    start: bool = True,
    watch_s: float = WATCH_S,
    pause: Pause = time.sleep,
) -> str:
    """What follows for a job whose owner `uid` left a suspect note: `start_requeued`, or the end of Slurm's own hold.

    Slurm holds an expedited job whose script ended with a bad code when no epilog failed. `restarts` is how often the
    job had been started again before the run that ended, `nodes` all nodes of that run (Slurm itself shows those that
    still complete). Only the hold that came with this end is released, once, never a person's, and only while hpkit has
    drained a node of that run: else a program with a bug would run for ever.
    Returns what came of it in a few words; "released" when the job was released.
    """
    name, asked = own_name(client, node, job_id), False

    def look(job: Job) -> str:
        nonlocal asked
        if job.user_id != uid or not _held_for_its_code(job, restarts):
            return _help(client, name, job, frozenset({uid}), start)
        if not _one_is_ours(client, nodes):
            return "left held: no node of it is drained by hpkit"
        mark = f"{name}:{job.restarts}"
        if not asked and (why := _barred(paths, mark, release)):
            return why
        asked = True
        return _release(client, paths, name, mark, "held by Slurm, though its owner suspected this node")

    return _watch(client, name, look, watch_s, pause, SLOW_S)


def _help(client: Client, name: str, job: Job, uids: frozenset[int], start: bool = True) -> str:
    """Start the job if it waits for nothing but its begin time; what came of it."""
    if job.user_id not in uids:
        return "not the note's owner"
    found = _waits_for(job, time.time())
    if found != "begin time":
        return found
    return _start(client, name) if start else "left to wait"


def _watch(
    client: Client,
    name: str,
    look: Callable[[Job], str],
    watch_s: float,
    pause: Pause,
    slow_s: float = 0.0,
) -> str:
    """Show the job to `look` until that knows what came of it; "gave up: …" when it does not in time.

    After `watch_s` it looks only now and then, for `slow_s` more.
    """
    last = NO_ANSWER
    often = repeat(POLL_S, max(1, int(watch_s / POLL_S)))
    for wait_s in chain(often, repeat(SLOW_POLL_S, int(slow_s / SLOW_POLL_S))):
        job, last = _look(client, name, last)
        if job is not None:
            last = look(job)
            if last not in ("under way", HELD, NO_ANSWER):
                return last
        elif last == "unknown":
            return "gone"
        pause(wait_s)
    return f"gave up: {last}"


def release_held(
    client: Client,
    paths: Paths,
    node: str,
    job_id: str,
    *,
    allowed: bool = True,
    watch_s: float = WATCH_S,
    pause: Pause = time.sleep,
) -> str:
    """Wait until Slurm holds the job because our prolog rejected it and this node is drained by us; release it once.

    Only Slurm's own hold after a failed launch counts, never a person's and never JobHoldMaxRequeue; never twice for a
    job on this node, and not at all unless `allowed`. Returns what came of it in a few words; "released" when the job
    was released.
    """
    name, asked = own_name(client, node, job_id), False

    def look(job: Job) -> str:
        nonlocal asked
        found = _held_as(job)
        if found == HELD and not asked and (why := _barred(paths, name, allowed)):
            return why
        if found == HELD and _drained_by_us(client, node):
            asked = True
            return _release(client, paths, name, name, REJECTED)
        return found

    return _watch(client, name, look, watch_s, pause)


def _barred(paths: Paths, mark: str, allowed: bool) -> str:
    """Why a hold is not ours to end: the site forbids it, or we ended this one before; "" when it is."""
    if not allowed:
        return "left held"
    return "released before" if mark in _released(paths) else ""


def after_reject(
    client: Client,
    paths: Paths,
    node: str,
    job_id: str,
    uid: int,
    *,
    release: bool = True,
    start: bool = True,
    watch_s: float = WATCH_S,
    pause: Pause = time.sleep,
) -> str:
    """What follows for the job that our prolog rejected: `release_held`, then `start_requeued` for its owner `uid`.

    Slurm puts a rejected job back with a begin time some two minutes away; on other nodes it can start now.
    """
    job_id = own_name(client, node, job_id)  # later it is not on this node any more
    outcome = release_held(client, paths, node, job_id, allowed=release, watch_s=watch_s, pause=pause)
    if start and (outcome == "released" or outcome.startswith(NOT_HELD)):
        then = start_requeued(client, node, job_id, (uid,), watch_s=watch_s, pause=pause)
        return f"{outcome}, {then}"
    return outcome


def own_name(client: Client, node: str, job_id: str) -> str:
    """The name that means this one job: hooks know an array's task by a number that may be the whole array's, too.

    While the job is still on this node, its only task of that array here is the one meant. Otherwise the number stays,
    and a client refuses what is ambiguous.
    """
    try:
        client.job(job_id)
    except SlurmError as error:
        if error.kind != "refused":
            return job_id
        try:
            here = [job.id for job in client.jobs_on(node) if job.array_job_id == job_id]
        except SlurmError:
            return job_id
        return here[0] if len(here) == 1 else job_id
    return job_id


def _look(client: Client, job_id: str, last: str) -> tuple[Job | None, str]:
    """The job, or None and why there is no answer; a controller that is away for a moment is asked again."""
    try:
        return client.job(job_id), last
    except SlurmError as error:
        return None, error.kind


def _waits_for(job: Job, now: float) -> str:
    """ "begin time" when a requeued job waits for nothing else; "under way" when it is too early to tell."""
    if "COMPLETING" in job.flags:
        return "under way"
    if job.flags & UNDER_WAY:
        return "running again" if job.flags & {"RUNNING", "CONFIGURING"} else "under way"
    if "EXPEDITING" in job.flags:
        return "put back by Slurm, before all others"
    if "REQUEUE_HOLD" in job.flags:
        return f"held: {job.reason}"
    if "PENDING" not in job.flags:
        return "over"
    if job.restarts < 1:
        return "never ran"
    begin = job.eligible_at or job.start_at
    if begin is not None and begin > now + FAR_S:
        return "begins later by somebody's wish"
    if job.reason == "BeginTime" or (job.reason in BESIDE and begin is not None and begin > now + 1):
        return "begin time"
    return "under way" if job.reason in UNDECIDED else f"waits for {job.reason}"


def _held_for_its_code(job: Job, restarts: int) -> bool:
    """Whether Slurm itself holds this expedited job since the end of the run after `restarts` restarts."""
    own = "REQUEUE_HOLD" in job.flags and job.reason.replace("_", " ").lower() == EXPEDITED_HELD
    return own and job.expedited and job.restarts == restarts + 1


def _held_as(job: Job) -> str:
    """ "launch failed" for Slurm's hold after a failed prolog; "under way" while the job has not been put back yet."""
    if job.flags & UNDER_WAY:
        return "under way"
    if "PENDING" not in job.flags:
        return "over"
    reason = job.reason.replace("_", " ")
    if reason.lower() == LAUNCH_FAILED:
        return HELD
    return NOT_HELD + reason


def _start(client: Client, job_id: str) -> str:
    try:
        client.start_now(job_id)
    except SlurmError as error:
        log.warning("start-refused", job=job_id, why=error.message)
        return NO_ANSWER if error.kind in AWAY else "refused"
    log.audit("job-start-now", job=job_id, why="requeued because of this node")
    return "started"


def _one_is_ours(client: Client, nodes: str) -> bool:
    """Whether hpkit has drained one of these nodes (a hostlist expression); no without an answer."""
    try:
        return any(ownership.ours(one) for one in client.nodes(client.hostnames(nodes)))
    except SlurmError as error:
        log.warning("nodes-not-known", nodes=nodes, why=error.message)
        return False


def _drained_by_us(client: Client, node: str) -> bool:
    try:
        seen = client.node(node)
    except SlurmError:
        return False
    return ownership.ours(seen)


def _release(client: Client, paths: Paths, job_id: str, mark: str, why: str) -> str:
    """Remember first, then release: after a crash in between the job stays held rather than being released twice."""
    try:
        _remember(paths, mark)
        client.release(job_id)
    except (SlurmError, OSError) as error:
        log.warning("release-failed", job=job_id, why=error)
        return NO_ANSWER if isinstance(error, SlurmError) and error.kind in AWAY else "refused"
    log.audit("job-released", job=job_id, why=why)
    return "released"


def _released_path(paths: Paths) -> str:
    return f"{paths.lib}/released.json"


def _released(paths: Paths) -> list[str]:
    """The jobs released on this node (`JOB`, or `JOB:RESTARTS` of an expedited one), oldest first."""
    found = files.read_json(_released_path(paths))
    return [str(job) for job in found] if isinstance(found, list) else []


def _remember(paths: Paths, mark: str) -> None:
    files.ensure_dir(paths.lib)
    jobs = [*_released(paths), mark][-RELEASED_MAX:]
    files.write_atomic(_released_path(paths), json.dumps(jobs) + "\n")
