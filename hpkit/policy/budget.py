"""The drain budget: how many nodes hpkit may have taken out within a window, in the cluster and in each partition.

The ledger is Slurm's own: every node with its flags, its reason and the time that slurmctld gave it. Slurm has no
compare-and-set, so each node looks before it drains (`permit`) and once more after (`overdrawn`): of those that came
too late, by time and then by name, each steps back by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hpkit.config import DrainConfig
from hpkit.policy.ownership import PREFIX, ours
from hpkit.slurm.client import Node


class Use(NamedTuple):
    """What a group of nodes (the cluster, or a partition) has used of its budget within the window."""

    group: str
    size: int
    limit: int
    drained: tuple[str, ...]

    @property
    def left(self) -> int:
        """How many more may be drained now."""
        return max(0, self.limit - len(self.drained))


def limit(size: int, rules: DrainConfig) -> int:
    """How many of `size` nodes: max(max_nodes, max_share), never more than half of them, though at least 1 of any.

    `max_nodes = 0` and `max_share = 0` together forbid every drain.
    """
    wanted = max(rules.max_nodes, int(rules.max_share * size + 1e-9))
    return min(wanted, max(1, size // 2))


def permit(node: Node, ledger: Sequence[Node], rules: DrainConfig, now: float) -> str:
    """Why the node must not be drained now, "" when it may. `now` in Unix seconds.

    A drain of unknown age counts, and so does one that lies in the future: clocks differ by up to munge's five minutes.
    """
    for use in uses(ledger, rules, now, groups=_groups(node), without=node.name):
        if not use.left:
            return _full(use, ledger, rules)
    return ""


def overdrawn(node: Node, ledger: Sequence[Node], rules: DrainConfig) -> str:
    """Why this node, drained by hpkit, must step back: too many were drained before it in its window; "" if not.

    Only slurmctld's times are compared; equal times are ordered by name.
    """
    at = node.reason_at
    if at is None:
        return ""
    for group in _groups(node):
        members = _members(ledger, group)
        before = [
            n.name for n in members if n.name != node.name and ours(n) and _before(n, node.name, at, rules)
        ]
        allowed = limit(len(members), rules)
        if len(before) >= allowed:
            return _full(Use(group, len(members), allowed, tuple(before)), ledger, rules)
    return ""


def uses(
    ledger: Sequence[Node],
    rules: DrainConfig,
    now: float,
    *,
    groups: Iterable[str] | None = None,
    without: str = "",
) -> tuple[Use, ...]:
    """The budget of the cluster ("") and of partitions: of `groups`, or of all there are."""
    if groups is None:
        groups = ("", *sorted({name for node in ledger for name in node.partitions}))
    found = []
    for group in groups:
        members = _members(ledger, group)
        recent = (n for n in members if n.name != without and ours(n) and _recent(n, rules, now))
        found.append(Use(group, len(members), limit(len(members), rules), tuple(n.name for n in recent)))
    return tuple(found)


def _recent(node: Node, rules: DrainConfig, now: float) -> bool:
    return node.reason_at is None or node.reason_at > now - rules.window_s


def _before(other: Node, name: str, at: float, rules: DrainConfig) -> bool:
    """Whether the drain of `other` came first and still counts; one of unknown time does."""
    if other.reason_at is None:
        return True
    return other.reason_at > at - rules.window_s and (other.reason_at, other.name) < (at, name)


def _groups(node: Node) -> tuple[str, ...]:
    return ("", *node.partitions)


def _members(ledger: Sequence[Node], group: str) -> list[Node]:
    return [node for node in ledger if not group or group in node.partitions]


def _full(use: Use, ledger: Sequence[Node], rules: DrainConfig) -> str:
    """The refusal, and whether the drains look like one shared cause."""
    where = f"of partition {use.group}" if use.group else "of the cluster"
    text = (
        f"{len(use.drained)} of {use.size} nodes {where} drained within {rules.window_s / 60:g} minutes, "
        f"the budget is {use.limit}"
    )
    checks = [_check(node.reason) for node in ledger if node.name in use.drained]
    first = max(set(checks), key=checks.count, default="")
    if first and checks.count(first) > max(1, len(checks) // 2):
        text += f"; {checks.count(first)} of them for {first}: one shared cause?"
    return text


def _check(reason: str) -> str:
    """The check's name in `hpkit: <check>: …`."""
    return reason.removeprefix(PREFIX).partition(":")[0].strip()
