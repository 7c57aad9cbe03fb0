"""Running checks over a machine, and what they found in a short form."""

from __future__ import annotations

from typing import Any

from hpkit import checks, runner
from hpkit.host import Host
from hpkit.model import Finding
from hpkit.past import Past
from hpkit.runner import Round
from hpkit.want import Want


def round_of(
    host: Host,
    *patterns: str,
    want: Want = Want(),
    past: Past = Past(),
    budget_s: float = 10.0,
    **options: Any,
) -> Round:
    """One round of the matching checks; `options` are by check name with `_` for the dot."""
    given = {name.replace("_", ".", 1): value for name, value in options.items()}
    rows = checks.select(patterns)
    return runner.collect(runner.run(rows, host, want, past, suite="test", budget_s=budget_s, options=given))


def findings(host: Host, *patterns: str, **more: Any) -> tuple[Finding, ...]:
    """The findings of one round."""
    return round_of(host, *patterns, **more).report.findings


def short(found: tuple[Finding, ...]) -> list[tuple[str, str, str]]:
    """Subject, status and action of each finding."""
    return [(f.subject, f.status.value, f.action.value) for f in found]
