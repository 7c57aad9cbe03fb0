"""Whose drain it is, for every state and reason that a node can have."""

from __future__ import annotations

import pytest

from hpkit.policy.ownership import base_reason, foreign, ours
from hpkit.slurm.client import Node

OURS = "hpkit: gpu.xid: gpu3: Xid 79"


def node(flags: str, reason: str = "", by: str = "root") -> Node:
    return Node("n1", frozenset(flags.split("+")), reason=reason, reason_by=by if reason else "")


# flags, reason, by, ours, part of what foreign says ("" = may be written to)
TABLE = [
    ("IDLE", "", "", False, ""),
    ("MIXED", "", "", False, ""),
    ("IDLE", "a note of mine", "alice", False, ""),
    ("IDLE", OURS, "root", False, ""),  # newer releases of Slurm keep a reason after the undrain
    ("IDLE+NOT_RESPONDING", "", "", False, ""),
    ("IDLE+PLANNED", "", "", False, ""),
    ("IDLE+RESERVED", "", "", False, ""),
    ("IDLE+POWERING_UP", "", "", False, ""),
    ("IDLE+DRAIN", OURS, "root", True, ""),
    ("MIXED+DRAIN", OURS, "root", True, ""),
    ("DOWN+DRAIN", OURS, "root", True, ""),
    ("IDLE+DRAIN", "hpkit: admin: swap", "alice", True, ""),
    ("IDLE+DRAIN", OURS + " : reboot timed out", "slurm", True, ""),
    ("IDLE+DRAIN", "psu swap", "alice", False, "drained by alice: psu swap"),
    ("IDLE+DRAIN", "", "", False, "already drained"),
    ("IDLE+DRAIN", "NHC: check_fs_mount", "root", False, "NHC"),
    ("IDLE+DRAIN", "Kill task failed", "root", False, "Kill task failed"),
    ("IDLE+DRAIN", "see hpkit: docs", "bob", False, "bob"),
    ("IDLE+FAIL", "Action:Replace", "root", False, "FAIL"),
    ("ALLOCATED+FAIL", "Action:Reboot", "root", False, "Action:Reboot"),
    ("IDLE+FAIL", OURS, "root", False, "FAIL"),
    ("IDLE+DRAIN+FAIL", OURS, "root", False, "FAIL"),
    ("DOWN", "Not responding", "slurm", False, "down by slurm"),
    ("DOWN", OURS, "root", False, "down"),
    ("IDLE+REBOOT_REQUESTED", "", "", False, "reboot"),
    ("DOWN+REBOOT_ISSUED", "reboot issued", "slurm", False, "reboot"),
    ("IDLE+MAINTENANCE", "", "", False, "maintenance"),
    ("IDLE+POWERED_DOWN", "", "", False, "powered down"),
    ("IDLE+POWERING_DOWN", "", "", False, "powered down"),
    ("IDLE+INVALID_REG", "gres/gpu count", "slurm", False, "INVALID_REG"),
    ("FUTURE", "", "", False, "FUTURE"),
    ("IDLE+DRAIN+REBOOT_REQUESTED", OURS, "root", True, "reboot"),
]


@pytest.mark.parametrize(("flags", "reason", "by", "mine", "said"), TABLE)
def test_table(flags: str, reason: str, by: str, mine: bool, said: str) -> None:
    found = node(flags, reason, by)
    assert ours(found) is mine
    assert (said in foreign(found)) if said else (foreign(found) == "")


@pytest.mark.parametrize(
    ("now", "recorded", "same"),
    [
        (OURS, OURS, True),
        (OURS + " : reboot issued", OURS, True),
        (OURS + " : reboot issued : reboot timed out", OURS, True),
        (OURS + " : Not responding", OURS, True),
        (OURS + " : do not touch", OURS, False),
        (OURS + "0", OURS, False),
        ("hpkit: gpu.count: 7 of 8", OURS, False),
        ("RMA 4711", OURS, False),
        (OURS, OURS + " : reboot issued", True),
    ],
)
def test_exactly_our_reason(now: str, recorded: str, same: bool) -> None:
    assert ours(node("IDLE+DRAIN", now), recorded) is same


def test_base_reason_keeps_colons_of_its_own() -> None:
    assert (
        base_reason("hpkit: host.mounts: /fsx : not there : reboot issued")
        == "hpkit: host.mounts: /fsx : not there"
    )
