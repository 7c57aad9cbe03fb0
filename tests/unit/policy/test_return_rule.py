"""When a drained node may come back by itself."""

from __future__ import annotations

import pytest

from hpkit.model import Action, Finding, Report, Status, View, action_of, verdict_of
from hpkit.policy.returning import Here, Record, counted, extended, first_record, may_return

SAME, OTHER = Here("boot-a", "i-1", ("s1", "s2")), Here("boot-b", "i-1", ("s1", "s2"))


def finding(check: str, status: str, action: Action = Action.NONE, subject: str = "") -> Finding:
    return Finding(check, subject, Status(status), action, "text")


def report(*findings: Finding, suite: str = "health") -> Report:
    return Report("n1", suite, View.NODE, 5.0, 0.0, verdict_of(findings), action_of(findings), findings)


GOOD = report(finding("gpu.xid", "pass"), finding("gpu.count", "pass"))
DEEP = report(finding("gpu.xid", "pass"), suite="deep")


def record(action: Action, **more: object) -> Record:
    made = first_record(report(finding("gpu.xid", "fail", action, "gpu3")), "hpkit: gpu.xid: x", 100.0, SAME)
    return made._replace(**more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kept", "last", "here", "missing"),
    [
        (record(Action.RETEST, passes=2), GOOD, SAME, ""),
        (record(Action.RETEST, passes=1), GOOD, SAME, "passed 1 time of 2"),
        (record(Action.RESET), GOOD, SAME, "reset"),
        (record(Action.RESET, reset_at=99.0), GOOD, SAME, "reset"),
        (record(Action.RESET, reset_at=101.0), GOOD, SAME, ""),
        (record(Action.RESET), GOOD, OTHER, ""),
        (record(Action.REBOOT, passes=99), GOOD, SAME, "a reboot"),
        (record(Action.REBOOT, reset_at=101.0), GOOD, SAME, "a reboot"),
        (record(Action.REBOOT), GOOD, OTHER, ""),
        (record(Action.REBOOT), GOOD, Here(""), "a reboot"),
        (record(Action.REBOOT, boot_id=""), GOOD, OTHER, "a reboot"),
        (record(Action.RESET, boot_id=""), GOOD, OTHER, "reset"),
        (record(Action.REPLACE), DEEP, OTHER, "replacement"),
        (record(Action.REPLACE), GOOD, Here("boot-b", "i-2"), "deep"),
        (record(Action.REPLACE), DEEP, Here("boot-b", "i-2"), ""),
        (record(Action.REPLACE), DEEP, Here("boot-b", "i-1", ("s1", "s9")), ""),
        (record(Action.REPLACE), DEEP, Here("boot-b", "i-1", ("s1", "s2", "s3")), "replacement"),
        (record(Action.REPLACE), DEEP, Here("boot-b", "i-1", ("s1",)), "replacement"),
        (record(Action.REPLACE, instance_id=""), DEEP, Here("boot-b", "i-2"), "replacement"),
        (record(Action.OPERATOR, passes=99), DEEP, Here("boot-b", "i-2"), "person"),
        (record(Action.NONE, passes=99), DEEP, Here("boot-b", "i-2"), "person"),
    ],
)
def test_what_each_action_asks_for(kept: Record, last: Report, here: Here, missing: str) -> None:
    said = may_return(kept, last, here)
    assert (said == "") if missing == "" else (missing in said)


@pytest.mark.parametrize(
    "last",
    [
        report(finding("gpu.xid", "fail", Action.REBOOT)),
        report(finding("gpu.xid", "error")),
        report(finding("gpu.xid", "skip"), finding("gpu.count", "pass")),
        report(finding("gpu.count", "pass")),
        report(),
        report(finding("gpu.xid", "pass"), finding("gpu.count", "fail", Action.REBOOT)),
        report(finding("gpu.xid", "pass"), finding("gpu.count", "error")),
        report(finding("gpu.xid", "warn")),
        report(finding("gpu.xid", "skip", subject="gpu3"), finding("gpu.xid", "pass", subject="gpu4")),
        report(finding("gpu.xid", "warn", subject="gpu3"), finding("gpu.xid", "pass", subject="gpu4")),
    ],
)
def test_what_is_no_pass(last: Report) -> None:
    assert may_return(record(Action.REBOOT), last, OTHER) != ""
    assert counted(record(Action.RETEST, passes=1), last).passes == 0


def test_a_warning_of_another_check_does_not_hold_the_node() -> None:
    last = report(finding("gpu.xid", "pass"), finding("host.disk", "warn"))
    assert may_return(record(Action.REBOOT), last, OTHER) == ""


def test_passes_count_in_a_row() -> None:
    kept = record(Action.RETEST)
    bad = report(finding("gpu.xid", "fail", Action.RETEST))
    assert [(kept := counted(kept, r)).passes for r in (GOOD, bad, GOOD, GOOD)] == [1, 0, 1, 2]


def test_a_later_failure_asks_for_more() -> None:
    kept = record(Action.RETEST, passes=1)
    worse = report(finding("gpu.count", "fail", Action.REPLACE), finding("gpu.xid", "pass"))
    grown = extended(kept, worse, SAME)
    assert (grown.action, grown.checks, grown.passes) == (Action.REPLACE, ("gpu.xid", "gpu.count"), 0)
    lighter = extended(grown, report(finding("gpu.ecc", "fail", Action.RETEST)), SAME)
    assert lighter.action is Action.REPLACE
    assert "gpu.ecc" in may_return(lighter._replace(action=Action.REBOOT), GOOD, OTHER)


@pytest.mark.parametrize(
    ("action", "cured", "cured_again"),
    [
        (Action.REBOOT, OTHER, Here("boot-c", "i-1", ("s1", "s2"))),
        (Action.RESET, OTHER, Here("boot-c", "i-1", ("s1", "s2"))),
        (Action.REPLACE, Here("boot-b", "i-2"), Here("boot-c", "i-3")),
    ],
)
def test_a_cure_that_did_not_help_is_used_up(action: Action, cured: Here, cured_again: Here) -> None:
    """The node fails once more after its reboot: a pass in that boot is the flapping that the rule is there for."""
    kept = extended(record(action), report(finding("gpu.xid", "fail", action)), cured)
    assert may_return(kept, DEEP, cured) != ""
    assert may_return(kept, DEEP, cured_again) == ""


def test_a_lighter_failure_after_the_cure_needs_its_own_cure() -> None:
    kept = extended(record(Action.REBOOT), report(finding("host.disk", "fail", Action.RETEST)), OTHER)
    both = report(finding("gpu.xid", "pass"), finding("host.disk", "pass"))
    assert "passed 1 time" in may_return(counted(kept, both), both, OTHER)
    assert may_return(counted(counted(kept, both), both), both, OTHER) == ""


def test_a_reset_before_the_last_failure_is_used_up() -> None:
    kept = extended(
        record(Action.RESET, reset_at=150.0), report(finding("gpu.xid", "fail", Action.RESET)), SAME
    )
    assert "reset" in may_return(kept, GOOD, SAME)


def test_a_good_report_drains_nothing() -> None:
    with pytest.raises(ValueError):
        first_record(GOOD, "hpkit: x", 0.0, SAME)
