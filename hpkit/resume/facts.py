"""The shapes that evidence, cause and plan share."""

from __future__ import annotations

from typing import NamedTuple

from hpkit.model import Finding
from hpkit.slurm.client import Job


class Witness(NamedTuple):
    """What one node said after a failed step.

    `noted`: a suspect note was left there. `root` is the verdict of a root round that began after the note, "" without
    one; `failures` its failed findings. `own_failures` are those of the witness's own look, as the user, in the step.
    `trouble` says what went wrong with the witness itself. `enforce`: hpkit's hooks act there, and do not only observe.
    """

    noted: bool = False
    root: str = ""
    failures: tuple[Finding, ...] = ()
    own_failures: tuple[Finding, ...] = ()
    trouble: str = ""
    enforce: bool = False


class NodeFacts(NamedTuple):
    """One node of the job: Slurm's flags and reason (empty when Slurm did not answer), and its witness if any."""

    name: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    reason_at: float | None = None
    witness: Witness | None = None


class Evidence(NamedTuple):
    """Everything known about a failed step. Times are wall seconds.

    `code` is the step's exit code; `signal` the ending signal that hp-srun itself got around the failure, 0 for none;
    `unlaunched` is what srun said of tasks that it could not start, "" for none;
    `cancelled` whether somebody ended the step before a task of it failed; `lost` a failed node that srun was told of;
    `job` is the job as Slurm shows it after the failure, None when Slurm did not answer (`job_trouble` says why).
    """

    code: int
    begun: float
    ended: float
    signal: int = 0
    job: Job | None = None
    job_trouble: str = ""
    nodes: tuple[NodeFacts, ...] = ()
    unlaunched: str = ""
    cancelled: bool = False
    lost: str = ""


class Cause(NamedTuple):
    """Why the step failed: kind "hardware", "user", "unknown" or "scheduler"; the nodes to blame; why, for people."""

    kind: str
    nodes: tuple[str, ...]
    why: str


class Plan(NamedTuple):
    """What to do now: "requeue" or "stop", and why, for people.

    `gives_up`: a restart was wanted and is not possible. `exclude` is the job's new ExcNodeList: None leaves it alone,
    () clears it. `offer`: the user may requeue by hand.
    """

    action: str
    why: str
    gives_up: bool = False
    exclude: tuple[str, ...] | None = None
    offer: bool = False


class Past(NamedTuple):
    """What earlier attempts of this run used up.

    `restarts` requeues by hp-srun, `unknown` of them for an unknown cause; `excluded` are the nodes that hp-srun put
    into ExcNodeList. `attempt` is the number of the present attempt, from 1. `trouble`: the record could not be read,
    and the figures are the most that can have been used. `row`: the nodes blamed by each of the latest attempts that
    got nowhere (see loops.py), oldest first.
    """

    attempt: int = 1
    restarts: int = 0
    unknown: int = 0
    excluded: frozenset[str] = frozenset()
    trouble: str = ""
    row: tuple[frozenset[str], ...] = ()
