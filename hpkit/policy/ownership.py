"""Whose drain it is. hpkit never writes to a node that somebody else took out of service."""

from __future__ import annotations

import re

from hpkit.slurm.client import Node
from hpkit.slurm.states import POWERED, REBOOTING

PREFIX = "hpkit:"
ADMIN = "hpkit: admin:"

# What slurmctld appends to a reason as " : text" (node_mgr.c set_node_reason and its callers).
_APPENDED = re.compile(
    r" : (?:reboot (?:issued|timed out|complete|requested)|Not responding|Low |CoreSpec differ|gres/|"
    r"Node unexpectedly rebooted|Kill task failed|Prolog error|Epilog error|Duplicate jobid|"
    r"batch job complete failure|Could not unpack|Reported active features|RestrictedCoresPerGPU)"
)
_POWERING_OFF = POWERED - {"POWERING_UP", "POWER_UP"}


def base_reason(reason: str) -> str:
    """A reason without what Slurm itself appended to it."""
    match = _APPENDED.search(reason)
    return reason[: match.start()] if match else reason


def ours(node: Node, reason: str = "") -> bool:
    """Whether the node is drained by hpkit: with exactly `reason`, or, when that is empty, with any reason of hpkit's.

    What Slurm appended does not matter. A node in FAIL is another tool's, whatever its reason says.
    """
    if "DRAIN" not in node.flags or "FAIL" in node.flags or not node.reason.startswith(PREFIX):
        return False
    return not reason or base_reason(node.reason) == base_reason(reason)


def foreign(node: Node) -> str:
    """Why hpkit must leave the node alone, "" when it may write to it (or owns its drain already).

    A reason on a node that is in service is a note and no claim.
    """
    who = f" by {node.reason_by}" if node.reason_by else ""
    why = f": {node.reason}" if node.reason else ""
    if "FAIL" in node.flags:
        return f"in state FAIL{who}{why}"
    if "DRAIN" in node.flags and not ours(node):
        return f"already drained{who}{why}"
    for flags, text in _STATES:
        if node.flags & flags:
            return text
    if "DOWN" in node.flags and not ours(node):
        return f"down{who}{why}"
    return ""


_STATES = (
    (REBOOTING, "waiting for a reboot"),
    (_POWERING_OFF, "powered down"),
    (frozenset({"MAINTENANCE"}), "in a maintenance reservation"),
    (frozenset({"FUTURE"}), "not in service yet (FUTURE)"),
    (frozenset({"INVALID_REG"}), "refused by Slurm itself (INVALID_REG)"),
)
