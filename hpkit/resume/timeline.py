"""The attempts of a run, from its record: what `hpkit attempts` shows. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

SCHEMA = "hpkit.attempts/1"


def document(events: Sequence[Mapping[str, Any]], path: str) -> dict[str, Any]:
    """The run as one document: its attempts, oldest first; times are wall seconds."""
    first = events[0] if events else {}
    return {
        "schema": SCHEMA,
        "job": str(first.get("job", "")),
        "cluster": str(first.get("cluster", "")),
        "record": path,
        "attempts": attempts(events),
    }


def attempts(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each start of a step.

    `recovery_s` is the time from the end of the step before, which failed and was requeued, to this start: null where
    there was no such step.
    """
    found: list[dict[str, Any]] = []
    for event in events:
        kind = event["event"]
        if kind == "start":
            found.append(_started(event, found[-1] if found else None))
        elif found and kind == "end":
            failed_at = _number(event.get("at")) - _number(event.get("asked_s"))
            found[-1].update(
                ended=round(failed_at, 3),
                seconds=event.get("seconds"),
                code=event.get("code"),
                cause=event.get("cause"),
                nodes=list(event.get("nodes") or ()),
                why=event.get("why"),
            )
        elif found and kind == "plan":
            found[-1].update(action=event.get("action"), plan=event.get("why"))
        elif found and kind == "requeue":
            found[-1].update(requeue=event.get("state"), refused=event.get("why"))
            if event.get("way"):
                found[-1].update(way=event["way"])
    return found


def lines(shown: Mapping[str, Any]) -> list[str]:
    """The timeline for people."""
    told = [f"job {shown['job']} on {shown['cluster'] or 'this cluster'}: {_count(len(shown['attempts']))}"]
    for one in shown["attempts"]:
        told += _attempt_lines(one)
    return told


def _started(event: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    gap = None
    if before and before.get("requeue") == "asked" and before.get("ended") is not None:
        gap = round(_number(event.get("at")) - _number(before["ended"]), 3)
    return {
        "attempt": event.get("attempt"),
        "restart": event.get("restart"),
        "started": event.get("at"),
        "checkpoint": event.get("checkpoint") or None,
        "step": event.get("step"),
        "recovery_s": gap,
        "ended": None,
        "code": None,
    }


def _attempt_lines(one: Mapping[str, Any]) -> list[str]:
    begin = f"from step {one['step']}" if one["step"] is not None else "from the beginning"
    if one["checkpoint"] and one["step"] is None:
        begin = f"from {one['checkpoint']}"
    again = f", running again after {one['recovery_s']:.1f} s" if one["recovery_s"] is not None else ""
    told = [f"  {_clock(one['started'])}  attempt {one['attempt']} started {begin}{again}"]
    if one["ended"] is None:
        return [*told, "            no end is recorded: it runs, or it was ended from outside"]
    told.append(f"  {_clock(one['ended'])}  {_ending(one)}")
    if one.get("action") == "requeue":
        failed = one.get("requeue") == "refused"
        how = f"requeued by its {one['way']} (expedited)" if one.get("way") else "requeued"
        told.append(f"            requeue refused: {one['refused']}" if failed else f"            {how}")
    elif one.get("action"):
        told.append(f"            not requeued: {one['plan']}")
    return told


def _ending(one: Mapping[str, Any]) -> str:
    if one["code"] == 0:
        return "finished"
    nodes = f" ({', '.join(one['nodes'])})" if one.get("nodes") else ""
    return f"failed with exit code {one['code']}; cause {one['cause']}{nodes}: {one['why']}"


def _count(number: int) -> str:
    return "1 attempt" if number == 1 else f"{number} attempts"


def _clock(wall: Any) -> str:
    return time.strftime("%H:%M:%S", time.localtime(_number(wall)))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
