"""Cause, job and history → what to do. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

from hpkit.resume.facts import Cause, Past, Plan
from hpkit.resume.loops import futile
from hpkit.slurm.client import Job, Node
from hpkit.slurm.states import usable

NO_RESTART_CODE = 93  # the program's way to say "do not restart me", as in NVIDIA's resiliency extension
UNKNOWN_PER_RUN = 1
SET_ASIDE = frozenset({"DRAIN", "FAIL", "DOWN"})


def decide(
    cause: Cause,
    code: int,
    job: Job | None,
    past: Past,
    *,
    resume_on: str,
    max_restarts: int,
    het: bool,
    seconds: float = math.inf,
) -> Plan:
    """Requeue or stop. `job` is None when Slurm did not answer: then the requeue itself finds out what is possible.

    `seconds` is how long the attempt ran.
    """
    if code == NO_RESTART_CODE:
        return Plan("stop", f"the program asked not to be restarted (exit code {NO_RESTART_CODE})")
    if cause.kind == "scheduler":
        return Plan("stop", cause.why)
    if cause.kind == "user" and resume_on != "any":
        return Plan("stop", "the program itself failed")
    hindrance = _hindrance(job, het)
    if hindrance:
        return Plan("stop", hindrance, gives_up=True)
    spent = _spent(cause, past, resume_on, max_restarts) or futile(cause, past, seconds)
    if spent:
        return Plan("stop", spent, gives_up=True, offer=True)
    return Plan("requeue", cause.why)


def _hindrance(job: Job | None, het: bool) -> str:
    """Why this kind of job cannot be requeued; "" when it can."""
    if het:
        return "a heterogeneous job is not requeued by hp-srun"
    if job is None:
        return ""
    if not job.batch:
        return "an interactive allocation cannot be requeued; submit with sbatch"
    if not job.requeue:
        return "the job may not be requeued (--no-requeue, or JobRequeue=0 at this site); submit with sbatch --requeue"
    return ""


def _spent(cause: Cause, past: Past, resume_on: str, max_restarts: int) -> str:
    """Which limit is reached; "" for none."""
    doubt = f" ({past.trouble}, so every restart by Slurm counts)" if past.trouble else ""
    if max_restarts and past.restarts >= max_restarts:
        return f"{past.restarts} of {max_restarts} restarts are used{doubt}"
    if cause.kind == "unknown" and resume_on != "any" and past.unknown >= UNKNOWN_PER_RUN:
        return f"the cause is unknown, and one restart for an unknown cause was made already{doubt}"
    return ""


def exclusion(
    job: Job,
    blamed: Sequence[str],
    nodes: Mapping[str, Node],
    *,
    required: Collection[str],
    excluded: Sequence[str],
    ours: Collection[str],
) -> tuple[str, ...] | None:
    """The job's new ExcNodeList; None when it need not change.

    `nodes` are all nodes; `required` and `excluded` the names in the job's ReqNodeList and ExcNodeList; `ours` those
    that hp-srun added earlier. A node is added only when nothing else keeps the job away from it, and only when enough
    nodes are left: too short a list would park the job for good. Earlier ones are let in again when nothing is blamed
    now, or when the new one needs their room; else two bad nodes would take turns.
    """
    kept = [name for name in excluded if name not in ours]
    before = [name for name in excluded if name in ours and name not in blamed]
    added = [
        name
        for name in blamed
        if name not in kept and name not in required and name in nodes and not nodes[name].flags & SET_ASIDE
    ]
    choices = ([*kept, *before, *added], [*kept, *added]) if added else ()
    new = next((c for c in choices if _enough(job, nodes, c, added)), kept)
    return None if set(new) == set(excluded) else tuple(new)


def _enough(job: Job, nodes: Mapping[str, Node], excluded: Collection[str], added: Sequence[str]) -> bool:
    """Whether enough nodes of the job's partitions are left that could take the place of any of those added."""
    partitions = set(job.partition.split(","))
    free = [
        node
        for node in nodes.values()
        if node.name not in excluded and partitions.intersection(node.partitions) and usable(node.flags)
    ]
    words = frozenset(re.findall(r"[\w.:-]+", job.features))
    return all(
        sum(_replaces(node, nodes[name], words) for node in free) >= max(job.num_nodes, 1) for name in added
    )


def _replaces(node: Node, bad: Node, words: frozenset[str]) -> bool:
    """Whether a node can take a job that ran on the bad one; `words` are those of the job's constraint."""
    return (
        words.intersection(node.features) == words.intersection(bad.features)
        and node.gres == bad.gres
        and node.cpus >= bad.cpus
        and node.memory_mib >= bad.memory_mib
        and ("RESERVED" in node.flags) == ("RESERVED" in bad.flags)
    )
