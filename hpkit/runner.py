"""One round: probe each source once, judge, stream events, return the report and the new past."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from hpkit.checks.model import Check
from hpkit.host import Host
from hpkit.model import Event, Report
from hpkit.past import Past
from hpkit.want import Want


class Round(NamedTuple):
    """What a round leaves: its report, and the past that the next round starts from."""

    report: Report
    past: Past


def run(
    checks: Sequence[Check],
    host: Host,
    want: Want,
    past: Past,
    *,
    suite: str,
    budget_s: float,
    options: Mapping[str, Any],
    jobs_here: bool = False,
) -> Generator[Event, None, Round]:
    """Run the checks within `budget_s` seconds; what the budget cut off is one `error` per check, never a pass."""
    raise NotImplementedError
