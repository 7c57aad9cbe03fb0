"""Which of a run's earlier attempts got nowhere, told from its record."""

from __future__ import annotations

from typing import Any

import pytest

from hpkit.resume.loops import ANY_MAX, history, unseen


def failed(
    seconds: float | None, *nodes: str, step: int | None = None, **requeue: Any
) -> list[dict[str, Any]]:
    """The events of one attempt that was requeued."""
    return [
        {"event": "start", "checkpoint": "" if step is None else "/c", "step": step},
        {"event": "end", "code": 1, "nodes": list(nodes), "seconds": seconds},
        {"event": "requeue", "state": "asked", **requeue},
    ]


N1, N2 = frozenset({"n1"}), frozenset({"n2"})
PREPARATION = [{"event": "start", "checkpoint": "", "step": None}, {"event": "end", "code": 0, "seconds": 3}]


@pytest.mark.parametrize(
    ("why", "events", "expected"),
    [
        ("soon, and from where we start", failed(5, "n1", step=7) + failed(6, "n2", step=7), (N1, N2)),
        (
            "a long one begins anew",
            failed(5, "n1", step=7) + failed(601, "n2", step=7) + failed(5, "n1", step=7),
            (N1,),
        ),
        ("so does a newer checkpoint", failed(5, "n1", step=6) + failed(5, "n2", step=7), (N2,)),
        ("and the present one", failed(5, "n1", step=6), ()),
        ("nobody was blamed", failed(5, step=7), (frozenset(),)),
        ("another step of the script before it", PREPARATION + failed(5, "n1", step=7), (N1,)),
        ("it did not fail", [*PREPARATION], ()),
        ("no time is told", failed(None, "n1", step=7), ()),
        ("nothing at all", [], ()),
    ],
)
def test_history(why: str, events: list[dict[str, Any]], expected: tuple[frozenset[str], ...]) -> None:
    assert history(events, "/c", 7) == expected, why


def test_a_history_that_nobody_saw_has_an_end() -> None:
    assert unseen(2) == (frozenset(), frozenset())
    assert len(unseen(10**9)) == ANY_MAX
