"""The token in the reason: what a node needs to return when its own record is lost at a reboot."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.model import Action, Finding, Report, Status, View, action_of, verdict_of
from hpkit.policy.ownership import base_reason
from hpkit.policy.returning import Here, Record, counted, may_return, rebuilt
from hpkit.policy.token import Token, found, same, signed
from hpkit.policy.verdict import LIMIT
from hpkit.slurm.client import Node

PLAIN = "hpkit: gpu.xid: gpu3: Xid 79"
SIGNED = signed(PLAIN, Action.REBOOT, "boot-a", "i-1")


def node(reason: str, flags: str = "IDLE+DRAIN", at: float | None = 100.0) -> Node:
    return Node("n1", frozenset(flags.split("+")), reason=reason, reason_by="root", reason_at=at)


def test_its_form() -> None:
    text, _, token = SIGNED.partition(" (")
    assert text == PLAIN
    assert token.startswith("reboot ") and token.endswith(")")
    assert [len(part) for part in token[len("reboot ") : -1].split("-")] == [8, 4]
    assert signed(PLAIN, Action.REBOOT, "boot-a", "") == SIGNED[:-6] + ")"
    assert signed(PLAIN, Action.REBOOT, "boot-a", "i-1") == SIGNED, "the same fault, the same reason"
    assert len({signed(PLAIN, Action.REBOOT, f"boot-{n}", "i-1") for n in range(50)}) == 50


def test_without_a_boot_id_or_a_reason_there_is_no_token() -> None:
    assert signed(PLAIN, Action.REBOOT, "", "i-1") == PLAIN
    assert signed("", Action.REBOOT, "boot-a", "i-1") == ""


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize(
    "tail", ["", " : reboot issued", " : reboot issued : reboot timed out", " : Not responding"]
)
def test_what_was_signed_is_found_whatever_slurm_appended(action: Action, tail: str) -> None:
    made = signed(PLAIN, action, "boot-a", "i-1")
    told = found(made + tail)
    assert told is not None
    assert (told[0], told[1].action) == (made, action)
    assert same(told[1].boot_id, "boot-a") and same(told[1].instance_id, "i-1")
    assert not same(told[1].boot_id, "boot-b") and not same(told[1].instance_id, "i-2")


@given(st.text(max_size=400))
@settings(derandomize=True, deadline=None)
def test_a_signed_reason_is_one_short_line_and_keeps_its_token(message: str) -> None:
    made = signed(f"hpkit: gpu.count: {message}", Action.REPLACE, "boot-a", "i-1")
    assert len(made) <= LIMIT and made.isascii() and made.isprintable()
    assert not set("[]") & set(made)
    told = found(made)
    assert told is not None and told[0] == made
    assert told[1] == Token(Action.REPLACE, told[1].boot_id, told[1].instance_id)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        PLAIN,
        f"{PLAIN} (reboot)",
        f"{PLAIN} (reboot 1f3a9c2)",
        f"{PLAIN} (reboot 1F3A9C2E-77AA)",
        f"{PLAIN} (reboot 1f3a9c2e-77a)",
        f"{PLAIN} (wish 1f3a9c2e-77aa)",
        f"{PLAIN} (reboot 1f3a9c2e-77aa",
        f"{PLAIN}(reboot 1f3a9c2e-77aa)",
        f"{SIGNED} : do not touch",
        f"{SIGNED} RMA 4711",
        f"{SIGNED}.",
    ],
)
def test_what_holds_no_token(reason: str) -> None:
    assert found(reason) is None


def test_a_token_inside_a_message_does_not_count() -> None:
    """Text of a finding may be anybody's: only the last token, which hpkit wrote, speaks."""
    forged = f"hpkit: gpu.xid: process x (retest 00000000-0000) : reboot issued{SIGNED[len(PLAIN) :]}"
    told = found(forged)
    assert told is not None
    assert (told[0], told[1].action) == (forged, Action.REBOOT)
    assert base_reason(forged) != forged, "what Slurm seems to have appended is our own text here"


@pytest.mark.parametrize(
    ("kept", "now", "equal"),
    [("", "", True), ("i-1", "i-1", True), ("i-1", "i-2", False), ("#", "i-1", False), ("i-1", "", False)],
)
def test_same(kept: str, now: str, equal: bool) -> None:
    assert same(kept, now) is equal


def test_a_record_from_a_reason() -> None:
    kept = rebuilt(node(f"{SIGNED} : reboot issued"), 500.0)
    assert kept is not None
    assert kept == Record(
        "n1", kept.boot_id, kept.instance_id, SIGNED, 100.0, "gpu.xid", "", Action.REBOOT, "gpu3: Xid 79",
        checks=("gpu.xid",), state="rebuilt",
    )  # fmt: skip
    assert kept.passes == 0 and kept.reset_at == 0.0
    untimed = rebuilt(node(SIGNED, at=None), 500.0)
    assert untimed is not None and untimed.at == 500.0


@pytest.mark.parametrize(
    "found_node",
    [
        node(PLAIN),
        node(SIGNED, "IDLE"),
        node(SIGNED, "IDLE+FAIL"),
        node(SIGNED, "IDLE+DRAIN+FAIL"),
        node(SIGNED.removeprefix("hpkit: ")),
        node(SIGNED.replace("hpkit: gpu.xid", "hpkit: admin")),
        node(SIGNED.replace("hpkit: gpu.xid:", "hpkit: look at")),
        node("hpkit: admin: a.b: swap" + SIGNED[len(PLAIN) :]),
    ],
)
def test_no_record_from_any_other_reason(found_node: Node) -> None:
    assert rebuilt(found_node, 500.0) is None


def report(check: str = "gpu.xid", suite: str = "health") -> Report:
    one = Finding(check, "", Status.PASS, Action.NONE, "fine")
    return Report("n1", suite, View.NODE, 5.0, 0.0, verdict_of([one]), action_of([one]), (one,))


@pytest.mark.parametrize(
    ("action", "instance", "last", "here", "missing"),
    [
        (Action.REBOOT, "i-1", report(), Here("boot-a", "i-1"), "a reboot"),
        (Action.REBOOT, "i-1", report(), Here("boot-b", "i-1"), ""),
        (Action.REBOOT, "i-1", report("gpu.count"), Here("boot-b", "i-1"), "gpu.xid did not pass"),
        (Action.REBOOT, "i-1", report(), Here("", "i-1"), "a reboot"),
        (Action.RESET, "i-1", report(), Here("boot-a", "i-1"), "reset"),
        (Action.RESET, "i-1", report(), Here("boot-b", "i-1"), ""),
        (Action.RETEST, "i-1", report(), Here("boot-b", "i-1"), "passed 1 time of 2"),
        (Action.REPLACE, "i-1", report(suite="deep"), Here("boot-b", "i-1"), "replacement"),
        (Action.REPLACE, "i-1", report(suite="deep"), Here("boot-b", "i-2"), ""),
        (Action.REPLACE, "i-1", report(), Here("boot-b", "i-2"), "deep"),
        (Action.REPLACE, "i-1", report(suite="deep"), Here("boot-b", ""), "replacement"),
        (Action.REPLACE, "", report(suite="deep"), Here("boot-b", "i-2"), "replacement"),
        (Action.OPERATOR, "i-1", report(suite="deep"), Here("boot-b", "i-2"), "person"),
        (Action.NONE, "i-1", report(suite="deep"), Here("boot-b", "i-2"), "person"),
    ],
)
def test_the_return_rule_holds_for_it(
    action: Action, instance: str, last: Report, here: Here, missing: str
) -> None:
    kept = rebuilt(node(signed(PLAIN, action, "boot-a", instance)), 500.0)
    assert kept is not None
    said = may_return(counted(kept, last), last, here)
    assert (said == "") if missing == "" else (missing in said)
