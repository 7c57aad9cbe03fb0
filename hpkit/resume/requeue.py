"""Carries a requeue out, and ends the batch script so that nothing after hp-srun runs and no KillWait passes.

Order: the record is written first (from then on a SIGTERM is our own requeue's), the ending signals are ignored, one
scontrol requeues and sets the begin time, then the shells between us and slurmstepd are killed, and the caller exits at
once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpkit import proc
from hpkit.errors import SlurmError
from hpkit.resume.attempts import Record
from hpkit.resume.evidence import read_job
from hpkit.resume.facts import Cause, Plan
from hpkit.resume.signals import Place, ignore_ending
from hpkit.slurm.client import Client, Job

RETRY = frozenset({"unreachable", "timeout", "garbled"})
RETRY_S = 60.0
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)
AGAIN = frozenset({"REQUEUED", "PENDING", "REQUEUE_HOLD", "REQUEUE_FED"})
OVER = frozenset({"CANCELLED", "TIMEOUT", "DEADLINE", "PREEMPTED", "COMPLETED", "FAILED", "NODE_FAIL"})


class Order(NamedTuple):
    """What to ask of Slurm: the job, seconds until it may begin, its new ExcNodeList (None: as it is)."""

    job: str
    begin_in_s: int
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

    A controller that does not answer is asked again with growing pauses for about a minute.
    """
    mark = os.urandom(6).hex()
    ours = [n for n in order.exclude or () if n in cause.nodes]
    if not record.append(
        "requeue", state="asked", id=mark, cause=cause.kind, nodes=cause.nodes, excluded=ours
    ):
        say(f"the attempt could not be recorded ({record.trouble}); going on without")
    ignore_ending()
    why = _ask(client, order, say, pause, clock)
    if why:
        record.append("requeue", state="refused", of=mark, why=why)
    return why


def end_batch(batch: Batch) -> None:
    """Kill the batch script's shells at once, the topmost first; the caller must exit right after."""
    for shell in batch.shells:
        proc.kill(shell)


def by_hand(job: str) -> str:
    """What a person may type once the job has ended; `incomplete`, which hp-srun itself uses, has no effect then."""
    return f"to run it again yourself: scontrol requeue {job}"


def commands(order: Order) -> tuple[str, ...]:
    """The lines that one scontrol process is fed, as --hp-dry-run shows them."""
    update = f"update jobid={order.job} starttime=now+{order.begin_in_s}"
    listed = "" if order.exclude is None else f" excnodelist={','.join(order.exclude)}"
    return (f"requeue incomplete {order.job}", update + listed)


def _ask(
    client: Client,
    order: Order,
    say: Callable[[str], None],
    pause: Callable[[float], None],
    clock: Callable[[], float],
) -> str:
    until = clock() + RETRY_S
    pauses = iter(PAUSES_S)
    while True:
        why = _once(client, order, say)
        if why is None:
            return ""
        kind, text = why
        if kind not in RETRY or clock() >= until:
            return text
        wait_s = min(next(pauses, PAUSES_S[-1]), max(until - clock(), 0.0))
        say(f"Slurm does not answer ({text}); asking again in {wait_s:.0f} s")
        pause(wait_s)


def _once(client: Client, order: Order, say: Callable[[str], None]) -> tuple[str, str] | None:
    """One try: None when the job is requeued, else the kind of refusal and its text."""
    exclude = None if order.exclude is None else ",".join(order.exclude)
    try:
        refused = client.requeue(order.job, begin_in_s=order.begin_in_s, exclude=exclude)
    except SlurmError as error:
        job, _ = read_job(client, order.job)
        if job is not None and _again(job):
            return None
        if job is not None and job.flags & OVER:
            return "over", f"the job is {'+'.join(sorted(job.flags & OVER)).lower()} meanwhile"
        return error.kind, error.message
    for text in refused:
        say(f"requeued, but Slurm refused a part of it: {text}")
    return None


def _again(job: Job) -> bool:
    """Whether Slurm runs the job again anyway: a request that timed out may have arrived."""
    return bool(job.flags & AGAIN)
