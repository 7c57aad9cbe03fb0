"""What pyslurm tells of nodes and jobs, as the same tuples that Slurm's commands give. Pure.

pyslurm shows Slurm's records through properties; where scontrol shows something else, scontrol is followed: its code is
node_info.c and info_job.c, and both backends must agree. A record with "cannot" has no more than a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpkit.errors import SlurmError
from hpkit.slurm.client import Job, Node
from hpkit.slurm.parse import array_of
from hpkit.slurm.states import active, job_flags, node_flags

NO_VALUE = 0xFFFFFFFE  # slurm.h; scontrol prints it as a number

Record = Mapping[str, Any]


def node(record: Record) -> Node:
    """A node; SlurmError "garbled" when the record has another form."""
    try:
        return _node(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SlurmError("garbled", f"a node that cannot be read: {type(error).__name__}: {error}") from error


def job(record: Record, now: float, asked: str = "") -> Job:
    """A job at `now` (Unix seconds); SlurmError "refused" when `asked` is the number of a whole array."""
    try:
        return _job(record, now, asked)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SlurmError("garbled", f"a job that cannot be read: {type(error).__name__}: {error}") from error


def may_be_active(record: Record) -> bool:
    """Whether a job may hold its nodes: it does, or the record does not tell its state."""
    return "state" not in record or active(job_flags(record["state"]))


def _node(record: Record) -> Node:
    flags = node_flags(_state(record))
    if not flags:
        raise ValueError(f"state {record['state']!r}")
    lines = [line for line in (record["reason"] or "").split("\n") if line]
    by = record["reason_user"] or str(NO_VALUE)
    return Node(
        name=record["name"],
        flags=flags,
        reason=lines[0] if lines else "",
        reason_by=by if lines and record["reason_time"] else "",
        reason_at=_moment(record["reason_time"]) if lines else None,
        hostname=record["hostname"] or "",
        addr=record["address"] or "",
        partitions=tuple(record["partitions"]),
        gres=",".join(f"{name}:{count}" for name, count in record["configured_gres"].items()),
        boot_time=_moment(record["boot_time"]),
        features=tuple(record["active_features"]),
        cpus=record["total_cpus"] or 0,
        memory_mib=record["real_memory"] or 0,
    )


def _state(record: Record) -> str:
    """The state; MIXED also where something but no CPU is allocated: scontrol says so, pyslurm does not."""
    state: str = record["state"]
    if not record["allocated_cpus"] and record["allocated_tres"]:
        return "+".join(["MIXED", *state.split("+")[1:]])
    return state


def _job(record: Record, now: float, asked: str) -> Job:
    array, task = str(record["array_id"] or ""), _task(record)
    if array and asked and (asked == array or not task.isdigit()):
        raise array_of(asked, array)
    flags = job_flags(record["state"])
    return Job(
        id=f"{array}_{task}" if task.isdigit() else str(record["id"]),
        user_id=record["user_id"],
        flags=flags,
        reason="".join("_" if each.isspace() else each for each in record["state_reason"] or "None"),
        partition=record["partition"] or "",
        nodes=record["allocated_nodes"] or "",
        req_nodes=record["required_nodes"] or "",
        exc_nodes=record["excluded_nodes"] or "",
        batch_host=record["batch_host"] or "",
        num_nodes=_size(record, "PENDING" in flags),
        requeue=record["is_requeueable"],
        batch=record["is_batch_job"],
        restarts=record["requeue_count"],
        priority=NO_VALUE if record["priority"] is None else record["priority"],
        array_job_id=array,
        array_task_id=task,
        eligible_at=_moment(record["eligible_time"]),
        start_at=_moment(record["start_time"]),
        end_at=_end(record, now),
        features=",".join(record["constraints"]),
    )


def _task(record: Record) -> str:
    """`3`, or the tasks that wait in one record; "" outside an array. pyslurm has no word for task 0 but None."""
    if not record["array_id"]:
        return ""
    waiting, limit = record["array_tasks_waiting"], record["array_tasks_parallel"]
    if waiting:
        return f"{waiting}%{limit}" if limit else str(waiting)
    return str(record["array_task_id"] or 0)


def _size(record: Record, pending: bool) -> int:
    size, most = record["num_nodes"] or 0, record["max_nodes"] or 0
    return min(size, most) if pending and most else size


def _end(record: Record, now: float) -> float | None:
    """None while a job without a time limit goes on: Slurm then counts with a year, which scontrol does not show."""
    end = _moment(record["end_time"])
    return None if record["time_limit"] is None and end is not None and end > now else end


def _moment(seconds: int | None) -> float | None:
    return float(seconds) if seconds else None
