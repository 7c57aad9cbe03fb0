"""The job that an epilog sees off, where it may start again soon: what Slurm does with an expedited one.

Such a job (`sbatch --requeue=expedite`) whose batch script ends with a code other than 0 runs again at once when one of
its epilogs fails, and is held when none does. Measured on 26.05.5: to fail on a node that is drained already changes
nothing there, neither its state nor its reason. And Slurm gives each node to waiting jobs as soon as the node's own
epilog has ended, while the job still waits for the last one; so the epilogs of such a job end at the same moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from hpkit import hostlist, log
from hpkit.errors import SlurmError
from hpkit.node import notes
from hpkit.paths import Paths
from hpkit.policy import ownership
from hpkit.slurm.client import Client, Job

TOGETHER_S = (
    4.0  # after the job's end in slurmctld's whole seconds: round and step daemons (3 s) are over then
)
CLOCKS_S = 1.0  # the clocks of node and slurmctld may differ by this much


class Parting(NamedTuple):
    """The ended job as slurmd tells the epilog: its owner (-1 unknown), the script's exit code, its end (wall seconds).

    `restarts` is how often it had been started again before this run; `first` whether the batch script ran here.
    """

    job: str
    uid: int = -1
    code: int = 0
    restarts: int = 0
    ended: float = 0.0
    first: bool = False

    @property
    def known(self) -> bool:
        """Whether it can be asked about and helped."""
        return self.job.isdecimal() and self.uid >= 0


def of(env: Mapping[str, str], node: str) -> Parting:
    """The job of this epilog, from its environment."""
    return Parting(
        env.get("SLURM_JOB_ID", ""),
        _number(env.get("SLURM_JOB_UID", ""), -1),
        _number(env.get("SLURM_JOB_EXIT_CODE2", "").partition(":")[0], 0),
        _number(env.get("SLURM_JOB_RESTART_COUNT", ""), 0),
        float(_number(env.get("SLURM_JOB_END_TIME", ""), 0)),
        is_batch_host(env, node),
    )


def nodes(env: Mapping[str, str]) -> str:
    """All nodes of the job of this epilog; Slurm before 23.02 tells the list by its old name only."""
    return env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST", "")


def is_batch_host(env: Mapping[str, str], node: str) -> bool:
    """The batch script ran on the first node of the job."""
    try:
        return hostlist.expand(nodes(env))[:1] == (node,)
    except ValueError:
        return False


def suspected(paths: Paths, job: Parting) -> bool:
    """Whether the job's owner left a suspect note for it here; it need not be answered yet.

    hp-srun does not wait for that when the node is drained already.
    """
    return job.known and job.uid in notes.naming(paths, job.job)


def expedited(client: Client, node: str, job: Parting) -> bool:
    """Whether Slurm puts this job back for its exit code; no without an answer. Asks only after a bad code."""
    if not job.code:
        return False
    try:
        shown = _own(client, node, job.job)
    except SlurmError as error:
        log.warning("job-not-known", job=job.job, why=error.message)
        return False
    return (
        shown.expedited and shown.requeue and "COMPLETING" in shown.flags and shown.restarts == job.restarts
    )


def taken_out(client: Client, node: str) -> str:
    """The reason for which hpkit has drained this node; "" when it has not, or Slurm does not tell."""
    try:
        seen = client.node(node)
    except SlurmError as error:
        log.warning("node-not-known", node=node, why=error.message)
        return ""
    return seen.reason if ownership.ours(seen) else ""


def end_together(
    job: Parting,
    until: float,
    *,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> float:
    """Wait for the moment at which all epilogs of an expedited job end, at most to `until` (wall); seconds waited."""
    wait_s = min(job.ended + TOGETHER_S, until) - now()
    if not job.ended or not 0 < wait_s <= TOGETHER_S + CLOCKS_S:
        return 0.0
    pause(wait_s)
    return wait_s


def _own(client: Client, node: str, job_id: str) -> Job:
    """The job; a number that may be a whole array's is that of its task here. Raises SlurmError."""
    try:
        return client.job(job_id)
    except SlurmError as error:
        if error.kind != "refused":
            raise
    from hpkit.node import helpers

    return client.job(helpers.own_name(client, node, job_id))


def _number(text: str, otherwise: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else otherwise
