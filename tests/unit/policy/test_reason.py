"""The one line that Slurm keeps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.model import Action, Finding, Report, Status, View, action_of, verdict_of
from hpkit.policy.verdict import LIMIT, culprit, one_line, reason_for


def report(*findings: Finding) -> Report:
    return Report("n1", "health", View.NODE, 0.0, 0.0, verdict_of(findings), action_of(findings), findings)


def fail(check: str, message: str, action: Action = Action.REBOOT, subject: str = "") -> Finding:
    return Finding(check, subject, Status.FAIL, action, message)


@pytest.mark.parametrize(
    ("findings", "reason"),
    [
        ([], ""),
        ([Finding("gpu.count", "", Status.ERROR, Action.NONE, "could not tell")], ""),
        ([fail("gpu.count", "7 of 8 GPUs")], "hpkit: gpu.count: 7 of 8 GPUs"),
        ([fail("gpu.xid", "Xid 79", subject="gpu3")], "hpkit: gpu.xid: gpu3: Xid 79"),
        ([fail("gpu.xid", "gpu3 had Xid 79", subject="gpu3")], "hpkit: gpu.xid: gpu3 had Xid 79"),
        (
            [fail("host.disk", "full", Action.OPERATOR), fail("gpu.count", "7 of 8", Action.REPLACE)],
            "hpkit: host.disk: full",
        ),
        ([fail("a.one", "x", Action.RETEST), fail("b.two", "y", Action.REPLACE)], "hpkit: b.two: y"),
        ([fail("a.one", "x"), fail("b.two", "y")], "hpkit: a.one: x"),
        ([fail("a.one", 'said "no"')], "hpkit: a.one: said 'no'"),
        ([fail("a.one", "two\nlines [root@now]\té")], "hpkit: a.one: two lines (root@now) ?"),
    ],
)
def test_reasons(findings: list[Finding], reason: str) -> None:
    assert reason_for(report(*findings)) == reason
    assert (culprit(report(*findings)) is None) == (reason == "")


@given(st.text(max_size=400), st.text(max_size=30))
@settings(derandomize=True, deadline=None)
def test_whatever_a_message_holds(message: str, subject: str) -> None:
    found = reason_for(report(fail("gpu.count", message, subject=subject)))
    assert found.startswith("hpkit: gpu.count:")
    assert len(found) <= LIMIT
    assert found.isascii()
    assert found.isprintable()
    assert not set("[]") & set(found)
    assert one_line(found) == found
