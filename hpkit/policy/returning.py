"""When a drained node may come back by itself: what its record asks for has happened, and then the checks passed."""

from __future__ import annotations

import re
from typing import NamedTuple

from hpkit.model import Action, Finding, Report, Status, Verdict
from hpkit.policy import token
from hpkit.policy.ownership import PREFIX, ours
from hpkit.policy.verdict import culprit
from hpkit.slurm.client import Node

RETEST_PASSES = 2  # a single pass of a flapping check proves nothing
DEEP = ("deep", "burnin")

INTENDED = "intended"
DRAINED = "drained"
SETTLED = "settled"
REBUILT = "rebuilt"
# slurmctld saves its state 5 s after a change at the latest (SAVE_MAX_WAIT in state_save.c); a crash before loses it.
SAVED_S = 15.0

_REASON = re.compile(rf"{PREFIX} (?P<check>[a-z0-9_]+\.[a-z0-9_.]+): (?P<text>.*)\Z")


class Record(NamedTuple):
    """Why hpkit drained this node and under which conditions it may return.

    `reason` is the exact text that was written, `at` wall seconds, `boot_id` and `instance_id` those of the drain.
    `action` is the heaviest action of all the failures seen since; `checks` are the checks that must pass again, and
    `passes` counts rounds in a row in which they did. `reset_at` is the wall time of a device reset recorded since,
    `devices` the serial numbers known at the drain. `state` is "intended" until the drain was confirmed, "settled" once
    it was seen when Slurm had saved it, so that no crash takes it back, and "rebuilt" when the record was made again
    from the token in the reason: its ids are digests then, and compared by `token.same`.
    """

    node: str
    boot_id: str
    instance_id: str
    reason: str
    at: float
    check: str
    subject: str
    action: Action
    message: str
    checks: tuple[str, ...] = ()
    passes: int = 0
    reset_at: float = 0.0
    devices: tuple[str, ...] = ()
    state: str = INTENDED


class Here(NamedTuple):
    """What this node is now: boot, instance, serial numbers of its devices ("" and empty when not known)."""

    boot_id: str
    instance_id: str = ""
    devices: tuple[str, ...] = ()


def first_record(report: Report, reason: str, at: float, here: Here) -> Record:
    """The record of a drain for this report; raises ValueError when nothing in it failed."""
    finding = culprit(report)
    if finding is None:
        raise ValueError("a report without a failure drains no node")
    return Record(
        node=report.node,
        boot_id=here.boot_id,
        instance_id=here.instance_id,
        reason=reason,
        at=at,
        check=finding.check,
        subject=finding.subject,
        action=finding.action,
        message=finding.message,
        checks=_failed(report),
        devices=here.devices,
    )


def rebuilt(node: Node, now: float) -> Record | None:
    """The record that the token in the node's drain reason tells; None when the drain is no check of hpkit's, or
    without a token. `now` (wall seconds) is its time when Slurm tells none.

    Who set the reason is for the caller to look at.
    """
    told = token.found(node.reason) if ours(node) else None
    match = _REASON.match(node.reason) if told else None
    if told is None or match is None:
        return None
    written, kept = told
    return Record(
        node=node.name,
        boot_id=kept.boot_id,
        instance_id=kept.instance_id,
        reason=written,
        at=now if node.reason_at is None else node.reason_at,
        check=match["check"],
        subject="",
        action=kept.action,
        message=written[match.start("text") :].rpartition(" (")[0],
        checks=(match["check"],),
        state=REBUILT,
    )


def confirmed(record: Record, now: float) -> Record:
    """The record after its drain was found in Slurm at `now` (wall seconds)."""
    return record._replace(state=SETTLED if now - record.at >= SAVED_S else DRAINED)


def extended(record: Record, report: Report, here: Here) -> Record:
    """The record after a later failing round: more checks to pass, perhaps a heavier action; the passes begin anew.

    When what the record asked for has happened and the node fails all the same, that cure is used up: what the new
    failures ask for must happen once more, from here on.
    """
    new = max((f.action for f in _failures(report)), key=lambda action: action.weight, default=Action.NONE)
    checks = tuple(dict.fromkeys((*record.checks, *_failed(report))))
    if cure_missing(record, here):
        return record._replace(
            action=max(record.action, new, key=lambda a: a.weight), checks=checks, passes=0
        )
    record = record._replace(action=new, checks=checks, passes=0, reset_at=0.0, boot_id=here.boot_id)
    return record._replace(instance_id=here.instance_id, devices=here.devices)


def counted(record: Record, report: Report) -> Record:
    """The record after a round: one more pass, or none in a row any more."""
    return record._replace(passes=record.passes + 1 if not not_passed(record, report) else 0)


def not_passed(record: Record, report: Report) -> str:
    """Why this round is no pass for the record's checks, "" when it is one."""
    if report.verdict not in (Verdict.HEALTHY, Verdict.DEGRADED):
        return f"the last round was {report.verdict.value}"
    for check in record.checks or (record.check,):
        statuses = {f.status for f in report.findings if f.check == check}
        if Status.PASS not in statuses or statuses & {Status.FAIL, Status.ERROR}:
            return f"{check} did not pass in the last round (suite {report.suite})"
    culprits = {f.status for f in report.findings if (f.check, f.subject) == (record.check, record.subject)}
    if record.subject and culprits - {Status.PASS}:  # that its neighbours pass says nothing about it
        return f"{record.check} did not pass for {record.subject} (suite {report.suite})"
    return ""


def may_return(record: Record, report: Report, here: Here) -> str:
    """What is still missing before the node may return, "" when nothing is. Call it with the `counted` record."""
    missing = cure_missing(record, here)
    if missing:
        return missing
    if record.action is Action.REPLACE and report.suite not in DEEP:
        return "a deep check (hpkit check --deep)"
    if why := not_passed(record, report):
        return why
    if record.action is Action.RETEST and record.passes < RETEST_PASSES:
        return f"passed {record.passes} time of {RETEST_PASSES}"
    return ""


def cure_missing(record: Record, here: Here) -> str:
    """Which cure the record still waits for, whatever the checks say now; "" when it has happened."""
    rebooted = bool(record.boot_id and here.boot_id) and not token.same(record.boot_id, here.boot_id)
    if record.action is Action.RETEST:
        return ""
    if record.action is Action.RESET:
        return "" if rebooted or record.reset_at > record.at else "a device reset or a reboot"
    if record.action is Action.REBOOT:
        return "" if rebooted else "a reboot"
    if record.action is Action.REPLACE:
        return _replacement_missing(record, here)
    return "a person: hpkit undrain"  # operator; and none, which never means healthy


def _replacement_missing(record: Record, here: Here) -> str:
    known = bool(record.instance_id and here.instance_id)
    moved = known and not token.same(record.instance_id, here.instance_id)
    gone, new = set(record.devices) - set(here.devices), set(here.devices) - set(record.devices)
    swapped = bool(gone) and len(new) >= len(gone)  # one that only went missing was not replaced
    return "" if moved or swapped else "a replacement of the node or the device"


def _failures(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.status is Status.FAIL]


def _failed(report: Report) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f.check for f in _failures(report)))
