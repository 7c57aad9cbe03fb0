"""Jobs submitted with `sbatch --requeue=expedite`: Slurm itself puts them back for their batch script's exit code.

Measured on 26.05.5: with a code other than 0 the job runs again at once and before all others when an epilog failed on
one of its nodes, and is held (REQUEUE_HOLD) when none did, even after its time limit; 0 completes it; a script that a
signal ended is FAILED. With Requeue=0 every bad code makes it FAILED. So hp-srun leaves the requeue to its exit code
only where it is the script itself and an epilog of hpkit's is sure to fail, and switches the requeue off where the job
shall end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpkit.config import DrainConfig
from hpkit.errors import SlurmError
from hpkit.policy import budget, ownership
from hpkit.resume.attempts import Record, switched_off
from hpkit.resume.evidence import read_job
from hpkit.resume.facts import Cause, NodeFacts
from hpkit.resume.requeue import AGAIN, OVER, Batch, persist
from hpkit.slurm import hooked
from hpkit.slurm.client import Client, Job

SETTLE_S = 2.0  # root drains after its answer: at most drain.jitter_s and two calls of Slurm later
JITTER_MAX_S = 10.0  # but nodes stand idle meanwhile
POLL_S = 0.3
UNREACHABLE = frozenset({"DOWN", "NOT_RESPONDING"})  # no epilog runs there that could fail
# Measured on 26.05.5: neither Requeue=1 nor a requeue is accepted once such a job has ended.
AGAIN_BY_HAND = "to run it again, submit it again"
ENDING = OVER | AGAIN | {"COMPLETING", "EXPEDITING", "SPECIAL_EXIT"}

Say = Callable[[str], None]
Pause = Callable[[float], None]
Clock = Callable[[], float]


class Way(NamedTuple):
    """How a job is put back: by the exit code of its script, or as any other.

    `why` is "" for a job that is not expedited, else why not by its code, or the node whose epilog fails.
    """

    by_code: bool = False
    why: str = ""


def choose(
    client: Client,
    job: Job | None,
    batch: Batch,
    cause: Cause,
    nodes: Sequence[NodeFacts],
    rules: DrainConfig,
    *,
    pause: Pause = time.sleep,
    clock: Clock = time.monotonic,
) -> Way:
    """The way for this failure. Waits a few seconds for a drain that root's answer has announced.

    `rules` are the site's for drains: what they forbid is not waited for.
    """
    if job is None or not job.expedited:
        return Way()
    if why := hindrance(batch):
        return Way(False, why)
    acting = [n for n in nodes if n.name in cause.nodes and _rejects(n)]
    if not acting:
        return Way(False, "no faulty node of it is one where hpkit acts")
    try:
        if not hooked.named(client.config(), "Epilog"):
            return Way(False, "Slurm's Epilog is not hpkit's")
        return _drained(client, frozenset(n.name for n in acting), rules, pause, clock)
    except SlurmError as error:
        return Way(False, f"Slurm did not tell whether an epilog will fail ({error.message})")


def hindrance(batch: Batch) -> str:
    """Why the exit code of the script is not ours to choose; "" when it is."""
    if batch.place.is_shell:
        return ""
    return "the batch script may go on after hp-srun; it cannot after `exec hp-srun`"


def needs_switch(job: Job | None) -> bool:
    """Whether Slurm would hold this job, and not end it, when its script ends with a bad code."""
    return job is not None and job.expedited and job.requeue and not job.flags & ENDING


def too_late(job: Job | None) -> bool:
    """Whether Slurm has ended this job itself, refuses the switch therefore, and would still hold it for a bad code.

    Measured on 26.05.5 at the time limit; a job that is cancelled or requeued is not held for it.
    """
    return job is not None and job.expedited and job.requeue and bool(job.flags & ENDING)


def switch_off(
    client: Client,
    job_id: str,
    record: Record,
    *,
    say: Say,
    pause: Pause = time.sleep,
    clock: Clock = time.monotonic,
) -> bool:
    """Requeue=0, so that the job ends as FAILED with the code that follows; says what will be when that fails.

    False when it is not switched off; nothing is said where Slurm has ended the job meanwhile (see too_late).
    """
    over = False

    def once() -> tuple[str, str] | None:
        nonlocal over
        try:
            client.no_requeue(job_id)
        except SlurmError as error:
            job, _ = read_job(client, job_id)
            over = too_late(job)
            done = over or (job is not None and not needs_switch(job))
            return None if done else (error.kind, error.message)
        return None

    why = persist(once, say, pause, clock)
    if over:
        return False
    record.append("no_requeue", state="failed" if why else "done", why=why)
    if why:
        say(
            f"the requeue of job {job_id} could not be switched off ({why}): it will be held, in state REQUEUE_HOLD; "
            f"end it with: scancel {job_id}, or run it again with: scontrol release {job_id}"
        )
        return False
    say(f"job {job_id} ends as FAILED: its expedited requeue is switched off")
    return True


def switch_on_again(client: Client, job: Job | None, record: Record, *, say: Say) -> Job | None:
    """Requeue=1 where an earlier hp-srun of the same script switched it off; the job as it is then."""
    if job is None or not job.expedited or job.requeue:
        return job
    if not switched_off(record.read().events, record.restart):
        return job
    try:
        client.allow_requeue(job.id)
    except SlurmError as error:
        say(f"the requeue that an earlier step switched off could not be switched on again ({error.message})")
        return job
    record.append("no_requeue", state="undone")
    return job._replace(requeue=True)


def promise(job: Job | None, batch: Batch) -> str:
    """What a node that fails will mean, for the line at the start."""
    if job is None or not job.expedited:
        return "if a node fails, the job is requeued"
    if why := hindrance(batch):
        return f"if a node fails, the job is requeued, but not expedited: {why}"
    return "if a node fails, the job has an expedited requeue"


def by_code(job_id: str, code: int, way: Way) -> str:
    """What is said when Slurm is left to it."""
    return (
        f"expedited requeue: ending with code {code}; Slurm puts job {job_id} back at once and before all others, "
        f"because {way.why} is drained and its epilog fails; {if_held(job_id)}"
    )


def if_held(job_id: str) -> str:
    """What a person may type where a hold is possible, but not known."""
    return f"should Slurm hold it (state REQUEUE_HOLD): scontrol release {job_id}, or scancel {job_id}"


def told(way: Way, begin_in_s: int | None) -> str:
    """What is said of a requeue of our own."""
    if begin_in_s is not None:
        return f"to start again in {begin_in_s} s"
    return f"to start again as soon as its nodes are free (not by its exit code: {way.why})"


def left(job_id: str) -> str:
    """What will be when the requeue of an expedited job was not possible, and what a person may type then."""
    return (
        "when the script ends with a code other than 0, Slurm runs the job again if an epilog fails, else holds it "
        f"(then: scontrol release {job_id}, or scancel {job_id})"
    )


def _rejects(node: NodeFacts) -> bool:
    """Whether hpkit's epilog rejects this node once it is drained: it acts there, knows our note, and can run."""
    witness = node.witness
    if witness is None or not (witness.noted and witness.enforce) or node.flags & UNREACHABLE:
        return False
    return witness.root == "unhealthy" or ("DRAIN" in node.flags and node.reason.startswith(ownership.PREFIX))


def _drained(client: Client, names: frozenset[str], rules: DrainConfig, pause: Pause, clock: Clock) -> Way:
    """By the exit code as soon as Slurm shows one of these nodes drained by hpkit. Raises SlurmError."""
    until = clock() + min(rules.jitter_s, JITTER_MAX_S) + SETTLE_S
    ledger = client.nodes()
    shown = [node for node in ledger if node.name in names]
    refused = [ownership.foreign(n) or budget.permit(n, ledger, rules, time.time()) for n in shown]
    while True:
        up = [node for node in shown if not node.flags & UNREACHABLE]
        if mine := next((node.name for node in up if ownership.ours(node)), ""):
            return Way(True, mine)
        if refused and all(refused):
            return Way(False, f"hpkit may not drain it: {refused[0]}")
        if not up or clock() >= until:
            return Way(False, "no faulty node of it was drained in time")
        pause(POLL_S)
        shown = list(client.nodes(sorted(names)))
