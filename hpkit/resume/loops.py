"""Restarts that get a run nowhere: attempts in a row that end soon, all from the same checkpoint. Pure.

A node that is drained or excluded does not come back, so such a row means that nothing keeps the job away from the
faulty node, or that what fails is not the node. Without an end it would go on every few seconds for as long as the job
may run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpkit.resume.facts import Cause, Past

SOON_S = 600.0
"""An attempt that ran for longer did some work: a job of thousands of GPUs needs minutes to start."""
SAME_MAX = 3
"""As many cycles without progress as NVIDIA's resiliency extension allows; here they must also blame the same node, or
none, since several bad nodes one after the other are quite possible."""
ANY_MAX = 10


def history(
    events: Sequence[Mapping[str, Any]], checkpoint: str, step: int | None
) -> tuple[frozenset[str], ...]:
    """The nodes blamed by each of the latest attempts, oldest first, that ended soon and were requeued.

    Only those count that had started from the checkpoint that the present attempt starts from.
    """
    found: list[frozenset[str]] = []
    source: tuple[Any, Any] | None = None
    end: Mapping[str, Any] = {}
    for event in events:
        kind = event["event"]
        if kind == "start":
            source, end = (event.get("checkpoint"), event.get("step")), {}
        elif kind == "end":
            end = event
        elif kind == "requeue" and event.get("state") == "asked" and end:
            if source != (checkpoint, step) or not _soon(end.get("seconds")):
                found.clear()
            else:
                found.append(frozenset(end.get("nodes", ())))
            end = {}
    return tuple(found)


def unseen(restarts: int) -> tuple[frozenset[str], ...]:
    """A history of so many restarts of which nothing is known."""
    return (frozenset(),) * min(restarts, ANY_MAX)


def futile(cause: Cause, past: Past, seconds: float) -> str:
    """Why one more restart would be in vain; "" when it would not. `seconds` is how long the present attempt ran."""
    if seconds > SOON_S:
        return ""
    row = (*past.row, frozenset(cause.nodes))
    if len(row) >= ANY_MAX:
        return f"{len(row)} attempts in a row failed soon and from the same checkpoint"
    last = row[-SAME_MAX:]
    if len(last) < SAME_MAX:
        return ""
    same = sorted(frozenset.intersection(*last))
    if same:
        return f"{same[0]} ended {SAME_MAX} attempts in a row, and nothing keeps the job away from it"
    if not any(last):
        return (
            f"{SAME_MAX} attempts in a row failed soon and from the same checkpoint, on nodes without a fault"
        )
    return ""


def _soon(seconds: Any) -> bool:
    return isinstance(seconds, (int, float)) and seconds <= SOON_S
