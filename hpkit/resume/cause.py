"""Evidence → cause. Pure.

Order of evidence: what Slurm itself did to the job, then each node: root's answer, Slurm's node state, the witness's
own look. `user` needs a root answer from every node; anything less is `unknown`, and so is a step that Slurm could not
start on healthy nodes: the program did not fail, it did not run.
"""

from __future__ import annotations

import signal

from hpkit.model import Finding
from hpkit.resume.facts import Cause, Evidence, NodeFacts
from hpkit.slurm.client import Job

GOOD = frozenset({"healthy", "degraded"})
SKEW_S = 5.0  # clocks of the batch host and of slurmctld may differ by this much
OURS = "hpkit: "
ENVIRONMENT = frozenset({"host.disk"})
"""Checks of what a job itself can spoil: a job that fills / would go from node to node and take each out of service.
Their failure blames no node, and clears neither the node nor the program."""

_SCHEDULER = (
    (("CANCELLED",), "the job was cancelled"),
    (("TIMEOUT", "DEADLINE"), "the job reached its time limit"),
    (("PREEMPTED",), "the job was preempted"),
    (
        ("REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "PENDING"),
        "Slurm requeues the job already",
    ),
    (("NODE_FAIL",), "Slurm ended the job because a node failed"),
    (("COMPLETED", "FAILED", "OUT_OF_MEMORY", "BOOT_FAIL", "REVOKED"), "the job has ended"),
)


def judge(evidence: Evidence) -> Cause:
    """Why the step failed."""
    outside = _by_scheduler(evidence)
    if outside:
        return Cause("scheduler", (), outside)
    blamed = [(n.name, why) for n in evidence.nodes if (why := blame(n, evidence.begun))]
    if blamed:
        return Cause("hardware", tuple(name for name, _ in blamed), _joined(blamed))
    if evidence.lost:
        return Cause("hardware", (), f"Slurm told srun that {evidence.lost} failed")
    if evidence.cancelled:
        return Cause("scheduler", (), "the step was cancelled")
    if evidence.unlaunched:
        return Cause("unknown", (), f"the step was not started everywhere ({evidence.unlaunched})")
    silent = [(n.name, why) for n in evidence.nodes if (why := _missing(n, evidence.begun))]
    if evidence.nodes and not silent:
        count = len(evidence.nodes)
        where = {1: f"{evidence.nodes[0].name} is", 2: "both nodes are"}.get(count, f"all {count} nodes are")
        return Cause("user", (), f"{where} healthy, so the program itself failed")
    return Cause("unknown", (), _joined(silent) or "the nodes of the job are not known")


def blame(node: NodeFacts, begun: float) -> str:
    """Why this node is faulty; "" when nothing says so. `begun` is when the attempt began (wall seconds)."""
    witness = node.witness
    if witness and witness.root == "unhealthy":
        faults = _faults(witness.failures)
        if faults or not witness.failures:
            return _finding(faults) or "unhealthy"
    answered = witness is not None and witness.root in (*GOOD, "unhealthy")
    for flag, text in (
        ("DOWN", "is down"),
        ("FAIL", "is set to fail"),
        ("NOT_RESPONDING", "does not respond"),
    ):
        if flag in node.flags and not (flag == "NOT_RESPONDING" and answered):
            return f"{text} ({node.reason})" if node.reason else text
    drained = _drained_for(node, begun)
    if drained and not _environment(drained):
        return drained
    return _finding(_faults(witness.own_failures)) if witness else ""


def _by_scheduler(evidence: Evidence) -> str:
    job = evidence.job
    if job is not None:
        for flags, text in _SCHEDULER:
            if job.flags.intersection(flags):
                return text
        if (
            "COMPLETING" in job.flags
        ):  # measured on 22.05: a cancelled job shows only this while its step ends
            return "Slurm is ending the job: it was cancelled, or reached its time limit"
        if _out_of_time(job, evidence.ended):
            return "the job reached its time limit"
    if evidence.signal:
        return f"hp-srun was sent {signal.Signals(evidence.signal).name}"
    return ""


def _out_of_time(job: Job, ended: float) -> bool:
    return job.end_at is not None and job.end_at <= ended


def _missing(node: NodeFacts, begun: float) -> str:
    """Why this node, which is not blamed, is not cleared either; "" when it is."""
    witness = node.witness
    if full := _spoiled(node, begun):
        return f"the disk is full or not writable, which a job can do to any node ({full})"
    if witness is None:
        return "did not answer"
    if witness.root in GOOD:
        return ""
    if witness.root:
        return "root could not tell"
    if witness.trouble:
        return witness.trouble
    return "no answer from root" if witness.noted else "hpkit is not active there"


def _drained_for(node: NodeFacts, begun: float) -> str:
    """What hpkit drained the node for since the attempt began; "" when it did not."""
    recent = node.reason_at is None or node.reason_at >= begun - SKEW_S
    ours = "DRAIN" in node.flags and node.reason.startswith(OURS) and recent
    return node.reason[len(OURS) :] if ours else ""


def _spoiled(node: NodeFacts, begun: float) -> str:
    """What an environment check said about the node: root's answer, the witness's own look, or a drain of hpkit's."""
    witness = node.witness
    told = (*witness.failures, *witness.own_failures) if witness else ()
    found = tuple(f for f in told if f.check in ENVIRONMENT)
    if found:
        return _finding(found[:1])
    drained = _drained_for(node, begun)
    return drained if _environment(drained) else ""


def _environment(reason: str) -> bool:
    return reason.partition(":")[0] in ENVIRONMENT


def _faults(failures: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(f for f in failures if f.check not in ENVIRONMENT)


def _finding(failures: tuple[Finding, ...]) -> str:
    if not failures:
        return ""
    first = failures[0]
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return f"{first.check}: {first.message}{more}"


def _joined(pairs: list[tuple[str, str]]) -> str:
    """`n2 is down; n3, n4: did not answer`: nodes with the same text together, four texts at most."""
    texts: dict[str, list[str]] = {}
    for name, text in pairs:
        texts.setdefault(text, []).append(name)
    shown = [f"{_names(names)}: {text}" for text, names in list(texts.items())[:4]]
    return "; ".join(shown) + (" …" if len(texts) > 4 else "")


def _names(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
