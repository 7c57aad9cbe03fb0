"""Carries a requeue out, and ends the batch script so that nothing after hp-srun runs and no KillWait passes.

Order: the record is written first (from then on a SIGTERM is our own requeue's), the ending signals are ignored, one
scontrol requeues and sets the begin time, then the shells between us and slurmstepd are killed, and the caller exits at
once. An expedited job whose script's exit code requeues it (see expedite.py) needs the record only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hpkit import proc
from hpkit.errors import SlurmError
from hpkit.resume.attempts import Record
from hpkit.resume.evidence import read_job
from hpkit.resume.facts import Cause, Plan
from hpkit.resume.signals import Place, ignore_ending
from hpkit.slurm.client import Client, Job

RETRY = frozenset({"unreachable", "timeout", "garbled"})
RETRY_S = 300.0  # a backup takes over after SlurmctldTimeout, 120 s by default; a restart may take minutes
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
AGAIN = frozenset({"REQUEUED", "PENDING", "EXPEDITING", "REQUEUE_HOLD", "REQUEUE_FED"})
BY_CODE = "exit code"  # in the record: how the job is put back
OVER = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED", "COMPLETED", "FAILED", "NODE_FAIL"})


class Order(NamedTuple):
    """What to ask of Slurm: the job, seconds until it may begin, its new ExcNodeList (None: as it is).

    `begin_in_s` is None for an expedited job: Slurm starts it without a delay, and no credential of the former run
    stands in its way, since each run has an id of its own (measured on 26.05.5: 45 restarts within a second).
    """

    job: str
    begin_in_s: int | None
    exclude: tuple[str, ...] | None = None


class Batch(NamedTuple):
    """The batch script that we run in: where we are, and the shells between us and slurmstepd, topmost first."""

    place: Place = Place()
    shells: tuple[proc.Stamp, ...] = ()


def find_batch(kin: Sequence[proc.Kin], uid: int, job_id: str) -> Batch:
    """Our place in the batch step of job `job_id` (Slurm's number); no shells where anything is not as it must be.

    Every process between us and slurmstepd must be the user's own, and slurmstepd's title must name this job's batch
    step: nothing else may be killed.
    """
    shells: list[proc.Stamp] = []
    for one in kin:
        if one.name == "slurmstepd":
            if f"[{job_id}.batch]" not in one.title:
                return Batch()
            return Batch(Place(one.stamp.pid, not shells), tuple(reversed(shells)))
        if one.uid != uid:
            return Batch()
        shells.append(one.stamp)
    return Batch()


def carry_out(
    client: Client,
    order: Order,
    plan: Plan,
    cause: Cause,
    record: Record,
    *,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Requeue the job; "" when it is requeued, else why not (the record says so too).

    A controller that does not answer is asked again with growing pauses for `RETRY_S` seconds.
    """
    ours = [n for n in order.exclude or () if n in cause.nodes]
    mark = _note(cause, record, say, excluded=ours)
    why = persist(lambda: _once(client, order, record.restart, say), say, pause, clock)
    if why:
        record.append("requeue", state="refused", of=mark, why=why)
    return why


def leave_to_slurm(cause: Cause, record: Record, *, say: Callable[[str], None]) -> None:
    """Prepare for a requeue by the script's exit code: the caller must exit with a code other than 0 right after."""
    _note(cause, record, say, way=BY_CODE)


def _note(cause: Cause, record: Record, say: Callable[[str], None], **facts: Any) -> str:
    """Record that a requeue is asked for, and be deaf to its signals from now on; the mark of the request."""
    mark = os.urandom(6).hex()
    if not record.append("requeue", state="asked", id=mark, cause=cause.kind, nodes=cause.nodes, **facts):
        say(f"the attempt could not be recorded ({record.trouble}); going on without")
    ignore_ending()
    return mark


def end_batch(batch: Batch) -> None:
    """Kill the batch script's shells at once, the topmost first; the caller must exit right after."""
    for shell in batch.shells:
        proc.kill(shell)


def by_hand(job: str) -> str:
    """What a person may type once the job has ended; `incomplete`, which hp-srun itself uses, has no effect then."""
    return f"to run it again yourself: scontrol requeue {job}"


def commands(order: Order) -> tuple[str, ...]:
    """The lines that one scontrol process is fed, as --hp-dry-run shows them."""
    start = "" if order.begin_in_s is None else f" starttime=now+{order.begin_in_s}"
    listed = "" if order.exclude is None else f" excnodelist={','.join(order.exclude)}"
    update = (f"update jobid={order.job}{start}{listed}",) if start or listed else ()
    return (f"requeue incomplete {order.job}", *update)


def persist(
    once: Callable[[], tuple[str, str] | None],
    say: Callable[[str], None],
    pause: Callable[[float], None],
    clock: Callable[[], float],
) -> str:
    """Try `once` until it succeeds with None or fails for good; "" or why it failed.

    It tells the kind of SlurmError and its text; a controller that does not answer is asked for `RETRY_S` seconds.
    """
    until = clock() + RETRY_S
    pauses = iter(PAUSES_S)
    while True:
        why = once()
        if why is None:
            return ""
        kind, text = why
        if kind not in RETRY or clock() >= until:
            return text
        wait_s = min(next(pauses, PAUSES_S[-1]), max(until - clock(), 0.0))
        say(f"Slurm does not answer ({text}); asking again in {wait_s:.0f} s")
        pause(wait_s)


def _once(client: Client, order: Order, run: int, say: Callable[[str], None]) -> tuple[str, str] | None:
    """One try: None when the job is requeued, else the kind of refusal and its text.

    `run` is how often Slurm had restarted the job before.
    """
    exclude = None if order.exclude is None else ",".join(order.exclude)
    try:
        refused = client.requeue(order.job, begin_in_s=order.begin_in_s, exclude=exclude)
    except SlurmError as error:
        job, _ = read_job(client, order.job)
        if job is not None and _again(job, run):
            return None
        if job is not None and job.flags & OVER:
            return "over", f"the job is {'+'.join(sorted(job.flags & OVER)).lower()} meanwhile"
        return error.kind, error.message
    for text in refused:
        say(f"requeued, but Slurm refused a part of it: {text}")
    return None


def _again(job: Job, run: int) -> bool:
    """Whether Slurm runs the job again anyway: a request that timed out may have arrived.

    Until its nodes are free such a job shows itself as COMPLETING only, like one that ends; its count tells.
    """
    return bool(job.flags & AGAIN) or ("COMPLETING" in job.flags and job.restarts > run)
