"""What hpkit asks of Slurm and tells it, whatever backend does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from hpkit.slurm.abilities import Abilities


class Node(NamedTuple):
    """A node as Slurm shows it. `flags` are upper-case words, base state included (`IDLE`, `DRAIN`, `NOT_RESPONDING`).

    `reason` is one line without Slurm's `[user@time]` tail; `reason_by` and `reason_at` (Unix seconds, None when not
    told) come from that tail. `gres` is Slurm's text without the sockets, `gpu:h100:8`. `boot_time` Unix seconds or
    None. `features` are the active ones; `cpus` and `memory_mib` what Slurm counts, 0 when not told.
    """

    name: str
    flags: frozenset[str]
    reason: str = ""
    reason_by: str = ""
    reason_at: float | None = None
    hostname: str = ""
    addr: str = ""
    partitions: tuple[str, ...] = ()
    gres: str = ""
    boot_time: float | None = None
    features: tuple[str, ...] = ()
    cpus: int = 0
    memory_mib: int = 0


class Job(NamedTuple):
    """A job as Slurm shows it. Nothing here was written by the user except what is listed as user text.

    `flags` are the upper-case words that scontrol's text shows, mostly one, the strongest; `reason` is the state reason
    (`BeginTime`, `JobHeldUser`, …). `nodes`, `req_nodes` and `exc_nodes` are hostlist expressions as Slurm prints them
    ("" for none). Times are Unix seconds. `features` is the user's constraint, user text. `expedited` is true for a job
    submitted with `--requeue=expedite` to a Slurm that has it.
    """

    id: str
    user_id: int
    flags: frozenset[str]
    reason: str = ""
    partition: str = ""
    nodes: str = ""
    req_nodes: str = ""
    exc_nodes: str = ""
    batch_host: str = ""
    num_nodes: int = 0
    requeue: bool = False
    batch: bool = False
    restarts: int = 0
    priority: int = 0
    array_job_id: str = ""
    array_task_id: str = ""
    eligible_at: float | None = None
    start_at: float | None = None
    end_at: float | None = None
    features: str = ""
    expedited: bool = False


class Client(Protocol):
    """Reads raise SlurmError when they fail (never an empty answer); writes raise it when Slurm refuses."""

    def node(self, name: str) -> Node:
        """One node; SlurmError kind "unknown" when Slurm has none of that name."""

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        """The named nodes, or all."""

    def job(self, job_id: str) -> Job:
        """One job (or array task `A_T`)."""

    def jobs_on(self, name: str) -> tuple[Job, ...]:
        """Jobs that run or complete on a node."""

    def hostnames(self, expression: str) -> tuple[str, ...]:
        """A hostlist's names in Slurm's order."""

    def config(self) -> dict[str, str]:
        """`scontrol show config` as key → value."""

    def abilities(self) -> Abilities:
        """What this Slurm can do; asked once, then remembered."""

    def no_requeue(self, job_id: str) -> None:
        """Requeue=0, also for a running job: a script that ends badly then ends it as FAILED, expedited or not."""

    def allow_requeue(self, job_id: str) -> None:
        """Requeue=1: takes `no_requeue` back."""

    def drain(self, name: str, reason: str) -> None:
        """state=drain with a reason (root only)."""

    def undrain(self, name: str) -> None:
        """state=undrain (root only); never resume, which would also clear Slurm's own DOWN."""

    def requeue(self, job_id: str, *, begin_in_s: int | None, exclude: str | None = None) -> tuple[str, ...]:
        """`requeue incomplete`, then StartTime=now+N and ExcNodeList ("" clears it), all fed to one scontrol process.

        Raises SlurmError when the job was not requeued. Returns what Slurm refused of the rest (usually nothing).
        """

    def start_now(self, job_id: str) -> None:
        """StartTime=now for a pending job; never within the second of its requeue, which would fail it for good."""

    def release(self, job_id: str) -> None:
        """Release a held job."""
