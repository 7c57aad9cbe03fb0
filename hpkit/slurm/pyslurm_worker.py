"""Asks Slurm through pyslurm for a parent that cannot wait for it: libslurm blocks for minutes, exits, or crashes.

Run as a script, `PYTHON -I -S pyslurm_worker.py FOLDER` with the folder that holds pyslurm; so it imports nothing of
hpkit. It reads one JSON object a line, {"id", "do", "limit_s", …}, and answers each with one line: {"id"} and "ok", or
"error" (Slurm's own words), or "cannot" (what pyslurm does not tell or do). Attributes go out as pyslurm gives them.
It ends with its input, when nothing was asked for a minute, and `limit_s` after a question at the latest.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # not typing's, which nothing else here needs
    from collections.abc import Callable, Mapping
    from typing import Any

IDLE_S = 60.0  # a parent that waits for days for its job step needs no companion
EXPEDITED, EXPEDITED_SINCE = "enable_expedited_requeue", [25, 11]
NODE = (
    "name", "state", "reason", "reason_user", "reason_time", "hostname", "address", "partitions", "configured_gres",
    "boot_time", "active_features", "total_cpus", "real_memory", "allocated_cpus", "allocated_tres",
)  # fmt: skip
JOB = (
    "id", "user_id", "state", "state_reason", "partition", "allocated_nodes", "required_nodes", "excluded_nodes",
    "batch_host", "num_nodes", "max_nodes", "is_requeueable", "is_batch_job", "requeue_count", "priority", "array_id",
    "array_task_id", "array_tasks_waiting", "array_tasks_parallel", "eligible_time", "start_time", "end_time",
    "time_limit", "constraints", "submit_time",
)  # fmt: skip


class Worker:
    """The questions, each a method; `lib` is the pyslurm module."""

    def __init__(self, lib: Any) -> None:
        self.lib = lib

    def hello(self) -> str:
        """That it is up: its version."""
        return str(self.lib.__version__)

    def nodes(self, names: list[str] | None) -> list[dict[str, Any]]:
        """The named nodes that there are, or all.

        Always read with all others, as scontrol does: asked about one node, slurmctld does not count its CPUs in use
        anew, and it finds a node by its host's name, too.
        """
        found = {node.name: node for node in self.lib.Nodes.load().values()}
        wanted = found if names is None else names
        return [_record(found[name], NODE, "name") for name in wanted if name in found]

    def job(self, number: int) -> dict[str, Any]:
        """One job by Slurm's own number; of an array that number may stand for all tasks."""
        return self._jobs([self.lib.Job.load(number)])[0]

    def jobs_on(self, name: str) -> list[dict[str, Any]]:
        """The jobs, in whatever state, that have the node."""
        expand = self.lib.utils.helpers.nodelist_from_range_str
        jobs = [job for job in self.lib.Jobs.load().values() if job.allocated_nodes]
        there = [job for job in jobs if name in expand(job.allocated_nodes)]
        if not there and not self.nodes([name]):
            raise self.lib.RPCError(msg="Invalid node name specified")
        return self._jobs(there)

    def update_node(self, name: str, changes: Mapping[str, Any]) -> None:
        """Set a node's state, with or without a reason."""
        self.lib.Node(name).modify(self.lib.Node(**changes))

    def update_job(self, number: int, changes: Mapping[str, Any]) -> None:
        """Change a job by Slurm's own number."""
        self.lib.Job(number).modify(self.lib.JobSubmitDescription(**changes))

    def release(self, number: int) -> None:
        """Release a held job."""
        self.lib.Job(number).release()

    def _jobs(self, jobs: list[Any]) -> list[dict[str, Any]]:
        """Records of jobs; with "cannot" where pyslurm cannot tell all that is wanted of one."""
        records = [_record(job, JOB, "id") for job in jobs]
        config = self.lib.slurmctld.Config.load() if records else None  # later than the jobs
        for record in records:
            if "cannot" not in record and _perhaps_expedited(record, config):
                record["cannot"] = "pyslurm does not tell whether a job has expedited requeue"
            elif record.get("allocated_nodes"):
                listed = self.lib.hostlist()
                listed.create(record["allocated_nodes"])
                listed.uniq()  # it sorts, as scontrol does
                record["allocated_nodes"] = listed.ranged_string()
        return records


def _record(thing: Any, names: tuple[str, ...], key: str) -> dict[str, Any]:
    """The attributes; with "cannot" when pyslurm stumbles over one (a count of `4G`, bytes that are no text)."""
    try:
        return {name: getattr(thing, name) for name in names}
    except (ValueError, IndexError) as error:
        return {key: getattr(thing, key), "cannot": f"{type(error).__name__}: {error}"}


def _perhaps_expedited(record: Mapping[str, Any], config: Any) -> bool:
    """Whether a job may have expedited requeue: not before 25.11, nor when it was submitted to a controller without.

    Every change of slurm.conf begins a new controller, with a new boot time. A requeue gives a new time of submission.
    """
    if _release(str(config.version)) < EXPEDITED_SINCE:
        return False
    if any(str(name).lower() == EXPEDITED for name in config.slurmctld_parameters):
        return True
    return bool(record["requeue_count"] or (record["submit_time"] or 0) <= config.slurmctld_boot_time)


def _release(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2] if part.isdecimal()]


def answer(worker: Worker, request: dict[str, Any]) -> dict[str, Any]:
    """What to say to one request."""
    given = {key: value for key, value in request.items() if key not in ("id", "do", "limit_s")}
    asked: Callable[..., Any] = getattr(worker, request["do"])
    try:
        return {"ok": asked(**given)}
    except worker.lib.RPCError as error:
        return {"error": str(error), "errno": getattr(error, "errno", None)}
    except Exception as error:  # noqa: BLE001 - whatever pyslurm stumbles over, the parent has other means
        return {"cannot": f"{type(error).__name__}: {error}"}


def lacking(lib: Any) -> str:
    """What of pyslurm's interface is not there: another release of it than those that we know."""
    missing = [f"Node.{name}" for name in NODE if not hasattr(lib.Node, name)]
    missing += [f"Job.{name}" for name in JOB if not hasattr(lib.Job, name)]
    return ", ".join(missing)


def main() -> int:
    """Serve until the input ends."""
    sys.path += sys.argv[1:2]
    out = os.dup(1)
    os.dup2(2, 1)  # whatever libslurm prints is no answer
    import pyslurm

    if told := lacking(pyslurm):
        os.write(2, f"pyslurm {pyslurm.__version__} has no {told}\n".encode())
        return 1
    worker = Worker(pyslurm)
    while select.select([0], [], [], IDLE_S)[0] and (line := sys.stdin.buffer.readline()):
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, request["limit_s"])  # it ends us even inside libslurm
        told_back = json.dumps({"id": request["id"], **answer(worker, request)}).encode() + b"\n"
        signal.setitimer(signal.ITIMER_REAL, 0)
        while told_back:
            told_back = told_back[os.write(out, told_back) :]
    return 0


if __name__ == "__main__":
    os._exit(main())  # taking libslurm down costs time, and may hang
