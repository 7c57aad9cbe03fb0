"""The words of hpkit as plain tuples: standard library only, no behaviour beyond what the words mean."""

# No `from __future__ import annotations`: NamedTuple would compile each field's text anew at every start of a hook.

from collections.abc import Iterable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

SCHEMA = "hpkit.report/1"
SCHEMA_MANY = "hpkit.reports/1"
NO_DATA: Mapping[str, Any] = MappingProxyType({})


class Status(str, Enum):
    """What a check found. `error` means "could not tell"; only `fail` may take a node out of service."""

    PASS = "pass"
    SKIP = "skip"
    WARN = "warn"
    ERROR = "error"
    FAIL = "fail"

    @property
    def rank(self) -> int:
        """0 for the worst, so that sorting puts the worst first: fail > error > warn > pass > skip."""
        return _STATUS_ORDER.index(self)


_STATUS_ORDER = (Status.FAIL, Status.ERROR, Status.WARN, Status.PASS, Status.SKIP)


class Action(str, Enum):
    """What would cure a finding. `none` never means healthy."""

    NONE = "none"
    RETEST = "retest"
    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"
    OPERATOR = "operator"

    @property
    def weight(self) -> int:
        """Larger is the heavier cure; the heaviest one among the failures is the report's action."""
        return _ACTION_ORDER.index(self)


_ACTION_ORDER = (Action.NONE, Action.RETEST, Action.RESET, Action.REBOOT, Action.REPLACE, Action.OPERATOR)


class Verdict(str, Enum):
    """What policy makes of a report."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNKNOWN = "unknown"
    UNHEALTHY = "unhealthy"

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 degraded, 2 unhealthy, 3 could not tell (the Nagios numbers)."""
        return _VERDICT_EXIT[self]


_VERDICT_EXIT = {Verdict.HEALTHY: 0, Verdict.DEGRADED: 1, Verdict.UNHEALTHY: 2, Verdict.UNKNOWN: 3}


class Load(str, Enum):
    """What a check may disturb: nothing (`quiet`), idle devices (`idle`), the whole node (`node`)."""

    QUIET = "quiet"
    IDLE = "idle"
    NODE = "node"


class View(str, Enum):
    """From where the machine is looked at: `node` on the host, `step` inside somebody's job step."""

    NODE = "node"
    STEP = "step"


class Clock(NamedTuple):
    """The machine's time: `wall` seconds since 1970 (UTC), `uptime` seconds since boot (CLOCK_BOOTTIME), boot id."""

    wall: float
    uptime: float
    boot_id: str


class Unread(NamedTuple):
    """A file, folder or link that could not be read: errno and a short reason."""

    path: str
    errno: int
    why: str


class Space(NamedTuple):
    """A mounted file system as statvfs tells it: sizes in bytes, inodes as counts (0 total = no inode limit known)."""

    total: int
    avail: int
    inodes: int
    inodes_free: int
    read_only: bool


class Finding(NamedTuple):
    """One result of one check about one subject (`gpu3`, `/scratch`; empty for the node as a whole)."""

    check: str
    subject: str
    status: Status
    action: Action
    message: str
    hint: str = ""
    seconds: float = 0.0
    data: Mapping[str, Any] = NO_DATA


class Report(NamedTuple):
    """What one round found on one node. `started` is wall time in seconds, `seconds` its duration."""

    node: str
    suite: str
    view: View
    started: float
    seconds: float
    verdict: Verdict
    action: Action
    findings: tuple[Finding, ...]
    version: str = ""
    boot_id: str = ""


class Event(NamedTuple):
    """What the runner tells while it works: kind is "started", "progress" or "finding"."""

    kind: str
    check: str
    text: str = ""
    finding: Finding | None = None


def worst(findings: Iterable[Finding]) -> Status:
    """The worst status among findings; `skip` when there are none."""
    return min((f.status for f in findings), key=lambda s: s.rank, default=Status.SKIP)


def verdict_of(findings: Iterable[Finding]) -> Verdict:
    """fail → unhealthy, else error → unknown, else warn → degraded, else healthy."""
    return {
        Status.FAIL: Verdict.UNHEALTHY,
        Status.ERROR: Verdict.UNKNOWN,
        Status.WARN: Verdict.DEGRADED,
    }.get(worst(findings), Verdict.HEALTHY)


def action_of(findings: Iterable[Finding]) -> Action:
    """The heaviest action among the findings of the worst status that asks for one."""
    listed = tuple(findings)
    bad = worst(listed)
    return max((f.action for f in listed if f.status is bad), key=lambda a: a.weight, default=Action.NONE)


def report_document(report: Report) -> dict[str, Any]:
    """The JSON document `hpkit.report/1`: keys may be added, never changed."""
    return {
        "schema": SCHEMA,
        "hpkit": report.version,
        "node": report.node,
        "suite": report.suite,
        "view": report.view.value,
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "verdict": report.verdict.value,
        "action": report.action.value,
        "boot_id": report.boot_id,
        "findings": [finding_document(f) for f in report.findings],
    }


def finding_document(finding: Finding) -> dict[str, Any]:
    """One finding as the report document holds it."""
    document = dict(finding._asdict())
    document["status"] = finding.status.value
    document["action"] = finding.action.value
    document["seconds"] = round(finding.seconds, 3)
    document["data"] = dict(finding.data)
    return document


def finding_from(document: Mapping[str, Any]) -> Finding:
    """A finding from its document; raises KeyError, TypeError or ValueError on anything else."""
    return Finding(
        check=str(document["check"]),
        subject=str(document["subject"]),
        status=Status(document["status"]),
        action=Action(document["action"]),
        message=str(document["message"]),
        hint=str(document.get("hint", "")),
        seconds=float(document.get("seconds", 0.0)),
        data=dict(document.get("data", {})),
    )


def report_from(document: Mapping[str, Any]) -> Report:
    """A report from its document; raises KeyError, TypeError or ValueError on anything else."""
    if document["schema"] != SCHEMA:
        raise ValueError(f"not a {SCHEMA} document: {document['schema']!r}")
    return Report(
        node=str(document["node"]),
        suite=str(document["suite"]),
        view=View(document["view"]),
        started=float(document["started"]),
        seconds=float(document["seconds"]),
        verdict=Verdict(document["verdict"]),
        action=Action(document["action"]),
        findings=tuple(finding_from(f) for f in document["findings"]),
        version=str(document.get("hpkit", "")),
        boot_id=str(document.get("boot_id", "")),
    )
