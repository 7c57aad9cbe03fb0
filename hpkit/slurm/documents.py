"""One job out of `scontrol --json show job`, in every shape that Slurm's data parsers give it (v0.0.39 to v0.0.45).

Here a user's text cannot pass for Slurm's fields. Shapes differ: `job_state` is a word or a list, a number is plain or
{"set", "infinite", "number"}, nothing is "", null, [] or {}. What has another shape than these is "garbled".

The document holds every task of the array or every component that the job belongs to, also when one was asked for. When
the controller does not answer it holds no job, no error, and scontrol ends with 0 (24.11, 26.05): so an empty list is
never taken for "no such job".
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

from hpkit.errors import SlurmError, UsageError
from hpkit.slurm.client import Job
from hpkit.slurm.names import JobName, job_name
from hpkit.slurm.parse import array_of, given
from hpkit.slurm.refusals import refusal
from hpkit.slurm.states import job_flags, shown

INFINITE = 0xFFFFFFFF  # slurm.h; text prints such a priority as this number
_NO_VALUE = (
    -1,
    -2,
    0xFFFFFFFE,
    0xFFFFFFFFFFFFFFFE,
)  # NO_VAL, NO_VAL64, and what became of them in signed numbers
_MOST = 0xFFFFFFFFFFFFFFFF  # Slurm's numbers have 64 bits
_ABSENT: tuple[object, ...] = (None, "", [], {})

Record = Mapping[str, Any]


def job(text: str, asked: str, now: float | None = None) -> Job:
    """The job that was asked for; SlurmError "garbled" when the document has no such job or cannot be read.

    What Slurm lists under "errors" is raised as what it means; "warnings" are passed over. The bare id of an array is
    "refused", as in the text form. `now` is wall time in Unix seconds.
    """
    name = job_name(asked)
    records = _records(text, asked)
    if not name.tasks and any(_number(record, "array_job_id") == int(name.job) for record in records):
        raise array_of(asked, asked)
    found = [record for record in records if _is(record, name)]
    if len(found) != 1:
        raise SlurmError("garbled", f"{len(found)} jobs in the document are {asked}")
    return _job(found[0], name, time.time() if now is None else now)


def _records(text: str, asked: str) -> list[Record]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SlurmError("garbled", f"no document about job {asked}: {error}") from error
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list) or not all(isinstance(each, dict) for each in jobs):
        raise SlurmError("garbled", f"the document about job {asked} has no list of jobs")
    errors = document.get("errors")
    if not isinstance(errors, list) and errors not in _ABSENT:
        raise _strange("list of errors", errors)
    told = [_complaint(each) for each in errors or ()]
    if told:
        raise refusal("; ".join(told))
    return [each for each in jobs if _number(each, "job_id")]  # 0: the double of a job of another cluster


def _complaint(error: object) -> str:
    parts = [error.get("description"), error.get("error")] if isinstance(error, dict) else [error]
    return ": ".join(str(part) for part in parts if part) or "an error without a text"


def _is(record: Record, name: JobName) -> bool:
    """Whether this is the job of that name; a record of pending tasks stands for each of them."""
    if name.tasks:
        if _number(record, "array_job_id") != int(name.job):
            return False
        task = _number(record, "array_task_id")
        return name.tasks[0] in (_pending(record) if task is None else (task,))
    if name.het:
        return (_number(record, "het_job_id"), _number(record, "het_job_offset")) == (
            int(name.job),
            int(name.het),
        )
    return _number(record, "job_id") == int(name.job)


def _pending(record: Record) -> tuple[int, ...]:
    """The tasks of an array that wait in one record: `3%2`, `1-5,9`. None of them where Slurm cut the list short."""
    tasks = _text(record, "array_task_string")
    try:
        return job_name(f"0_[{tasks}]").tasks if tasks else ()
    except UsageError:
        return ()


def _job(record: Record, name: JobName, now: float) -> Job:
    array = _number(record, "array_job_id") or 0
    task = name.tasks[0] if name.tasks else _number(record, "array_task_id") if array else None
    priority = _number(record, "priority")
    return Job(
        id=str(_count(record, "job_id")) if task is None else f"{array}_{task}",
        user_id=_count(record, "user_id"),
        flags=_flags(record),
        reason=_reason(record),
        partition=_text(record, "partition"),
        nodes=_text(record, "nodes"),
        req_nodes=_text(record, "required_nodes"),
        exc_nodes=_text(record, "excluded_nodes"),
        batch_host=_text(record, "batch_host"),
        num_nodes=_count(record, "node_count"),
        requeue=_count(record, key="requeue") != 0,
        batch=_count(record, "batch_flag") != 0,
        restarts=_count(record, "restart_cnt"),
        priority=INFINITE - 1 if priority is None else priority,
        array_job_id=str(array) if array else "",
        array_task_id="" if task is None else str(task),
        eligible_at=_moment(record, "eligible_time"),
        start_at=_moment(record, "start_time"),
        end_at=_end(record, now),
        features=_text(record, "features"),
        expedited="EXPEDITED_REQUEUE" in _words(record, "flags"),
    )


def _flags(record: Record) -> frozenset[str]:
    flags = job_flags(",".join(_words(record, "job_state")))
    if not flags:
        raise _strange("job_state", record.get("job_state"))
    return shown(flags)


def _reason(record: Record) -> str:
    """As the text form prints it: the longer description first, its blanks as underscores."""
    description = record.get("state_description")
    words = description if isinstance(description, str) else ""
    return "".join("_" if each.isspace() else each for each in words) or _text(
        record, "state_reason", none="None"
    )


def _end(record: Record, now: float) -> float | None:
    """None while a job without a time limit goes on: Slurm then counts with a year, which the text form leaves out."""
    end = _moment(record, "end_time")
    endless = _number(record, "time_limit") == INFINITE
    return None if endless and end is not None and end > now else end


def _moment(record: Record, key: str) -> float | None:
    at = _number(record, key)
    return float(at) if at and at != INFINITE else None


def _count(record: Record, key: str) -> int:
    number = _number(record, key)
    if number is None:
        raise _strange(key, record.get(key))
    return number


def _number(record: Record, key: str) -> int | None:
    """A number or a truth value; None for "no value", INFINITE for infinite."""
    value = _value(record, key)
    if isinstance(value, dict):
        if value.get("infinite"):
            return INFINITE
        if not value.get("set", True):
            return None
        value = value.get("number")
    if isinstance(value, float) and not math.isfinite(value):
        return INFINITE if value > 0 else None
    if value in _ABSENT or value in _NO_VALUE:
        return None
    if not isinstance(value, (int, float)) or value != int(value) or not 0 <= value <= _MOST:
        raise _strange(key, value)
    return int(value)


def _text(record: Record, key: str, none: str = "") -> str:
    value = _value(record, key)
    if value in _ABSENT:
        return none
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return given(",".join(value))
    if not isinstance(value, str):
        raise _strange(key, value)
    return given(value) or none


def _words(record: Record, key: str) -> tuple[str, ...]:
    value = _value(record, key)
    if isinstance(value, str):
        return (value,) if value else ()
    if value in _ABSENT:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _strange(key, value)
    return tuple(value)


def _value(record: Record, key: str) -> Any:
    if key not in record:
        raise SlurmError("garbled", f"a job without {key}")
    return record[key]


def _strange(key: str, value: object) -> SlurmError:
    return SlurmError("garbled", f"a job whose {key} is {str(value)[:60]!r}")
