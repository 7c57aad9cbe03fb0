"""The drain budget: the table of limits, and properties that hold for any order of looks and writes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.config import DrainConfig
from hpkit.policy import budget
from hpkit.policy.ownership import ours
from hpkit.slurm.client import Node

RULES = DrainConfig()
NOW = 1_780_000_000.0


def node(name: str, at: float | None = None, reason: str = "", parts: tuple[str, ...] = ("all",)) -> Node:
    drained = bool(reason) or at is not None
    flags = frozenset({"IDLE", "DRAIN"} if drained else {"IDLE"})
    return Node(
        name, flags, reason=(reason or "hpkit: a.b: x") if drained else "", reason_at=at, partitions=parts
    )


def cluster(size: int, drained: int, *, at: float | None = NOW - 60, reason: str = "") -> list[Node]:
    """n0 … of which the last `drained` are drained."""
    out = range(size - drained, size)
    return [
        node(f"n{i:03}", at, reason or "hpkit: a.b: x") if i in out else node(f"n{i:03}") for i in range(size)
    ]


@pytest.mark.parametrize(
    ("size", "rules", "limit"),
    [
        (1, RULES, 1),
        (2, RULES, 1),
        (3, RULES, 1),
        (4, RULES, 2),
        (9, RULES, 4),
        (10, RULES, 5),
        (64, RULES, 6),
        (1000, RULES, 100),
        (100, DrainConfig(max_nodes=0, max_share=0.29), 29),
        (100, DrainConfig(max_nodes=90), 50),
        (100, DrainConfig(max_nodes=0, max_share=0.0), 0),
        (3, DrainConfig(max_nodes=0, max_share=0.1), 0),
    ],
)
def test_limits(size: int, rules: DrainConfig, limit: int) -> None:
    assert budget.limit(size, rules) == limit


@pytest.mark.parametrize(
    ("size", "drained", "at", "reason", "allowed"),
    [
        (64, 0, NOW, "", True),
        (64, 5, NOW, "", True),
        (64, 6, NOW, "", False),
        (64, 6, NOW - 1801, "", True),
        (64, 6, NOW - 1799, "", False),
        (64, 6, NOW + 250, "", False),
        (64, 6, None, "", False),
        (64, 30, NOW, "psu swap", True),
        (4, 1, NOW, "", True),
        (4, 2, NOW, "", False),
        (2, 1, NOW, "", False),
    ],
)
def test_permit(size: int, drained: int, at: float | None, reason: str, allowed: bool) -> None:
    ledger = cluster(size, drained, at=at, reason=reason)
    refused = budget.permit(ledger[0], ledger, RULES, NOW)
    assert (refused == "") is allowed


def test_each_partition_has_its_own_budget() -> None:
    small = [node(f"s{i}", NOW if i else None, parts=("all", "small")) for i in range(2)]
    ledger = [*cluster(62, 0), *small]
    refused = budget.permit(small[0], ledger, RULES, NOW)
    assert "partition small" in refused
    assert budget.permit(ledger[0], ledger, RULES, NOW) == ""


def test_a_refusal_names_a_shared_cause() -> None:
    same = cluster(64, 6, reason="hpkit: host.mounts: /fsx is not mounted")
    assert "6 of them for host.mounts" in budget.permit(same[0], same, RULES, NOW)
    mixed = [n._replace(reason=f"hpkit: c.{i}: x") if ours(n) else n for i, n in enumerate(same)]
    assert "shared" not in budget.permit(mixed[0], mixed, RULES, NOW)


def test_the_node_itself_does_not_count() -> None:
    ledger = cluster(4, 2)
    assert budget.permit(ledger[3], ledger, RULES, NOW) == ""


def test_the_last_by_time_and_name_step_back() -> None:
    ledger = [node("n1", NOW + 1), node("n2", NOW), node("n3", NOW), node("n4", NOW), node("n5"), node("n6")]
    rules = DrainConfig(max_nodes=2, max_share=0)
    late = {n.name for n in ledger if ours(n) and budget.overdrawn(n, ledger, rules)}
    assert late == {"n1", "n4"}


def test_a_drain_of_an_older_window_makes_nobody_step_back() -> None:
    ledger = [node("n1", NOW), node("n2", NOW - 1800), node("n3", NOW - 1799), *map(node, ("n4", "n5", "n6"))]
    assert budget.overdrawn(ledger[0], ledger, DrainConfig(max_nodes=2, max_share=0)) == ""
    assert budget.overdrawn(ledger[0], ledger, DrainConfig(max_nodes=1, max_share=0)) != ""


def test_uses_of_all_groups() -> None:
    ledger = [node("n1", NOW, parts=("a", "b")), node("n2", parts=("a",)), node("n3", parts=())]
    found = {
        use.group: (use.size, use.limit, use.drained, use.left) for use in budget.uses(ledger, RULES, NOW)
    }
    assert found == {"": (3, 1, ("n1",), 0), "a": (2, 1, ("n1",), 0), "b": (1, 1, ("n1",), 0)}


class Race:
    """Nodes that all fail at once, each in its own three steps: look, write, look again; in any order of steps."""

    def __init__(self, sizes: list[tuple[str, ...]], rules: DrainConfig) -> None:
        self.rules = rules
        self.now = NOW
        self.table = {f"n{i:02}": node(f"n{i:02}", parts=parts) for i, parts in enumerate(sizes)}
        self.step = dict.fromkeys(self.table, 0)
        self.written: dict[str, float] = {}

    @property
    def ledger(self) -> list[Node]:
        return list(self.table.values())

    def advance(self, name: str) -> None:
        """One step of one node; a second look waits until Slurm's clock is two seconds past the write."""
        mine = self.table[name]
        if self.step[name] == 0:
            allowed = budget.permit(mine, self.ledger, self.rules, self.now) == ""
            self.step[name] = 1 if allowed else 3
        elif self.step[name] == 1:
            self.table[name] = node(name, float(int(self.now)), parts=mine.partitions)
            self.written[name] = self.now
            self.step[name] = 2
        elif self.step[name] == 2:
            self.now = max(self.now, self.written[name] + 2.1)
            self.look(name)
            self.step[name] = 3

    def look(self, name: str) -> None:
        """The look after a drain, in the hook and in every background round."""
        mine = self.table[name]
        if ours(mine) and budget.overdrawn(mine, self.ledger, self.rules):
            self.table[name] = node(name, parts=mine.partitions)


@given(
    st.lists(
        st.sampled_from([("all",), ("all", "a"), ("all", "b"), ("all", "a", "b")]), min_size=1, max_size=14
    ),
    st.integers(0, 6),
    st.sampled_from([0.0, 0.1, 0.3, 0.9]),
    st.integers(0, 1 << 30),
)
@settings(derandomize=True, max_examples=300, deadline=None)
def test_no_order_of_steps_overdraws(
    parts: list[tuple[str, ...]], most: int, share: float, seed: int
) -> None:
    race = Race(parts, DrainConfig(max_nodes=most, max_share=share))
    order = random.Random(seed)
    while any(step < 3 for step in race.step.values()):
        race.advance(order.choice([name for name, step in race.step.items() if step < 3]))
        race.now += order.choice([0.0, 0.001, 0.3, 1.0])
    for name in race.table:
        race.look(name)
    for use in budget.uses(race.ledger, race.rules, race.now):
        assert len(use.drained) <= use.limit
        assert len(use.drained) <= max(1, use.size // 2)
    if budget.limit(len(parts), race.rules) and len(set(parts)) == 1:
        assert any(ours(n) for n in race.ledger), "all stepped back, so a bad node was never drained"


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0, 4000), st.floats(0, 4000))
@settings(derandomize=True, deadline=None)
def test_time_only_frees_budget(size: int, drained: int, earlier: float, later: float) -> None:
    ledger = cluster(size, min(drained, size - 1), at=NOW)
    first, second = sorted((earlier, later))
    if budget.permit(ledger[0], ledger, RULES, NOW + first) == "":
        assert budget.permit(ledger[0], ledger, RULES, NOW + second) == ""


@given(st.integers(2, 60), st.integers(1, 20), st.integers(0, 1 << 30))
@settings(derandomize=True, deadline=None)
def test_exactly_the_surplus_steps_back(size: int, drained: int, seed: int) -> None:
    order = random.Random(seed)
    ledger = [
        node(f"n{i}", NOW + order.randrange(3) if i < min(drained, size) else None) for i in range(size)
    ]
    kept = [n for n in ledger if ours(n) and not budget.overdrawn(n, ledger, RULES)]
    assert len(kept) == min(drained, size, budget.limit(size, RULES))
