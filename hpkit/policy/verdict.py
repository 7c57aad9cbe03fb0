"""From a report to the one line that Slurm keeps as the drain reason."""

from __future__ import annotations

from hpkit.model import Finding, Report, Status
from hpkit.policy.ownership import PREFIX

LIMIT = 200


def culprit(report: Report) -> Finding | None:
    """The failure that decides: the one with the heaviest action, the first of equals; None without a failure."""
    failures = [f for f in report.findings if f.status is Status.FAIL]
    return max(failures, key=lambda f: f.action.weight, default=None)


def reason_for(report: Report) -> str:
    """`hpkit: <check>: <short text>`: one printable ASCII line of at most 200 characters; "" without a failure."""
    finding = culprit(report)
    return "" if finding is None else reason_of(finding)


def reason_of(finding: Finding) -> str:
    """The reason for one finding.

    Other failures of the round are not named: the same fault must give the same reason each time.
    """
    subject = "" if not finding.subject or finding.subject in finding.message else f"{finding.subject}: "
    return one_line(f"{PREFIX} {finding.check}: {subject}{finding.message}")


def one_line(text: str, limit: int = LIMIT) -> str:
    """Printable ASCII, one line, at most `limit` characters, as Slurm keeps it.

    Slurm's own `[user@time]` follows a reason, and scontrol takes a double quote at its end away.
    """
    flat = " ".join(text.translate(_PLAIN).encode("ascii", "replace").decode().split())
    plain = "".join(c if c.isprintable() else "?" for c in flat)
    return plain if len(plain) <= limit else plain[: limit - 3].rstrip() + "..."


_PLAIN = str.maketrans('[]"', "()'")
