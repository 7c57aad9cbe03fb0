"""Cause, job and history → requeue or stop; and which nodes the job may be kept away from."""

from __future__ import annotations

from typing import Any

import pytest

from hpkit.resume.facts import Cause, Past, Plan
from hpkit.resume.plan import decide, exclusion
from hpkit.slurm.client import Job, Node

BATCH = Job("7", 1000, frozenset({"RUNNING"}), partition="all", num_nodes=2, batch=True, requeue=True)
HARDWARE = Cause("hardware", ("n2",), "n2 is down")
UNKNOWN = Cause("unknown", (), "n2: did not answer")
USER = Cause("user", (), "all nodes are healthy")


def plan(cause: Cause, code: int = 1, job: Job | None = BATCH, past: Past = Past(), **more: Any) -> Plan:
    return decide(
        cause, code, job, past, **{"resume_on": "hardware", "max_restarts": 0, "het": False, **more}
    )


@pytest.mark.parametrize(
    ("given", "action", "part", "gives_up"),
    [
        (plan(HARDWARE), "requeue", "n2 is down", False),
        (plan(HARDWARE, job=None), "requeue", "", False),
        (plan(HARDWARE, past=Past(9, 8)), "requeue", "", False),
        (plan(HARDWARE, past=Past(3, 2), max_restarts=3), "requeue", "", False),
        (plan(HARDWARE, past=Past(4, 3), max_restarts=3), "stop", "3 of 3 restarts", True),
        (plan(HARDWARE, code=93), "stop", "asked not to be restarted", False),
        (plan(HARDWARE, job=BATCH._replace(requeue=False)), "stop", "--requeue", True),
        (plan(HARDWARE, job=BATCH._replace(batch=False)), "stop", "interactive", True),
        (plan(HARDWARE, het=True), "stop", "heterogeneous", True),
        (plan(USER, code=3), "stop", "program itself failed", False),
        (plan(USER, code=3, resume_on="any"), "requeue", "", False),
        (plan(USER, code=93, resume_on="any"), "stop", "asked", False),
        (plan(UNKNOWN), "requeue", "did not answer", False),
        (plan(UNKNOWN, past=Past(2, 1, 0)), "requeue", "", False),
        (plan(UNKNOWN, past=Past(2, 1, 1)), "stop", "unknown", True),
        (plan(UNKNOWN, past=Past(2, 1, 1), resume_on="any"), "requeue", "", False),
        (plan(UNKNOWN, past=Past(2, 1, 1, trouble="torn")), "stop", "torn", True),
        (plan(Cause("scheduler", (), "the job was cancelled"), resume_on="any"), "stop", "cancelled", False),
    ],
)
def test_the_table(given: Plan, action: str, part: str, gives_up: bool) -> None:
    assert (given.action, given.gives_up) == (action, gives_up)
    assert part in given.why


def test_a_restart_by_hand_is_offered_where_it_would_work() -> None:
    assert plan(HARDWARE, past=Past(2, 1), max_restarts=1).offer
    assert not plan(HARDWARE, job=BATCH._replace(requeue=False)).offer
    assert not plan(USER).offer


def nodes(**flags: str) -> dict[str, Node]:
    return {n: Node(n, frozenset(f.split("+")), partitions=("all",)) for n, f in flags.items()}


RESERVED = {"flags": frozenset({"IDLE", "RESERVED"})}


def like(**changed: dict[str, Any]) -> dict[str, Node]:
    """Four nodes of one kind, but for what is said."""
    alike = {n: node._replace(cpus=16, memory_mib=10, gres="gpu:8") for n, node in FOUR.items()}
    return {n: node._replace(**changed.get(n, {})) for n, node in alike.items()}


FOUR = nodes(n1="ALLOCATED", n2="ALLOCATED", n3="IDLE", n4="IDLE")


@pytest.mark.parametrize(
    ("why", "expected", "blamed", "table", "more"),
    [
        ("not drained, enough left", ("n2",), ["n2"], FOUR, {}),
        ("drained: Slurm keeps away itself", None, ["n2"], {**FOUR, **nodes(n2="ALLOCATED+DRAIN")}, {}),
        ("down", None, ["n2"], {**FOUR, **nodes(n2="DOWN")}, {}),
        ("asked for by the user", None, ["n2"], FOUR, {"required": ["n2"]}),
        ("excluded by the user already", None, ["n2"], FOUR, {"excluded": ["n2"]}),
        ("merged with the user's", ("n4", "n2"), ["n2"], nodes(**dict.fromkeys(["n1", "n2", "n3", "n4", "n5"], "IDLE")),
         {"excluded": ["n4"]}),
        ("too few left: the user's list stays", None, ["n2"], FOUR, {"excluded": ["n3", "n4"]}),
        ("too few left because one is drained", None, ["n2"], nodes(n1="IDLE", n2="IDLE", n3="IDLE+DRAIN"), {}),
        ("ours of earlier is dropped", (), [], FOUR, {"excluded": ["n2"], "ours": ["n2"]}),
        ("ours of earlier is dropped, the user's stays", ("n4",), [], FOUR, {"excluded": ["n4", "n2"], "ours": ["n2"]}),
        ("ours of earlier, blamed again", None, ["n2"], FOUR, {"excluded": ["n2"], "ours": ["n2"]}),
        ("two bad nodes do not take turns", ("n2", "n1"), ["n1"], FOUR, {"excluded": ["n2"], "ours": ["n2"]}),
        ("ours of earlier makes room for the new one", ("n3", "n1"), ["n1"],
         FOUR, {"excluded": ["n3", "n2"], "ours": ["n2"]}),
        ("nodes of another size do not count", None, ["n2"], like(n3={"cpus": 8}, n4={"memory_mib": 9}), {}),
        ("bigger ones do", ("n2",), ["n2"], like(n3={"cpus": 32}, n4={"memory_mib": 99}), {}),
        ("nodes without its devices do not count", None, ["n2"], like(n3={"gres": ""}, n4={"gres": "gpu:4"}), {}),
        ("reserved ones neither", None, ["n2"], like(n3=RESERVED, n4=RESERVED), {}),
        ("unknown to Slurm", None, ["gone"], FOUR, {}),
        ("nothing to blame", None, [], FOUR, {}),
    ],
)  # fmt: skip
def test_exclusion(
    why: str,
    expected: tuple[str, ...] | None,
    blamed: list[str],
    table: dict[str, Node],
    more: dict[str, list[str]],
) -> None:
    lists = {"required": [], "excluded": [], "ours": [], **more}
    assert exclusion(BATCH, blamed, table, **lists) == expected, why


def test_nodes_of_other_partitions_do_not_count() -> None:
    table = {
        **FOUR,
        "n3": FOUR["n3"]._replace(partitions=("other",)),
        "n4": FOUR["n4"]._replace(partitions=("other",)),
    }
    assert exclusion(BATCH, ["n2"], table, required=(), excluded=(), ours=()) is None


@pytest.mark.parametrize(
    ("constraint", "expected"),
    [
        ("", ("n2",)),
        ("h100", None),  # n3 has it, n4 has not, and two are needed
        ("efa", ("n2",)),
        ("h100&efa", None),
        ("[h100*1&efa*1]", None),
        ("~h100", None),
    ],
)
def test_only_nodes_that_meet_the_constraint_count(constraint: str, expected: tuple[str, ...] | None) -> None:
    has = {
        "n1": ("efa", "rack1"),
        "n2": ("h100", "efa", "rack1"),
        "n3": ("h100", "efa", "rack2"),
        "n4": ("efa", "rack2"),
    }
    table = {n: node._replace(features=has[n]) for n, node in FOUR.items()}
    job = BATCH._replace(features=constraint)
    assert exclusion(job, ["n2"], table, required=(), excluded=(), ours=()) == expected


SAME, ELSEWHERE, NOWHERE = frozenset({"n2"}), frozenset({"n3"}), frozenset[str]()


@pytest.mark.parametrize(
    ("cause", "row", "seconds", "part"),
    [
        (HARDWARE, (SAME, SAME), 5, "n2 ended 3 attempts in a row"),
        (HARDWARE, (SAME, SAME | ELSEWHERE), 5, "n2 ended 3"),
        (HARDWARE, (SAME, SAME), 601, ""),
        (HARDWARE, (SAME,), 5, ""),
        (HARDWARE, (SAME, ELSEWHERE), 5, ""),
        (HARDWARE, (NOWHERE, NOWHERE), 5, ""),
        (HARDWARE, (ELSEWHERE,) * 8, 5, ""),
        (HARDWARE, (ELSEWHERE,) * 9, 5, "10 attempts in a row"),
        (USER, (NOWHERE, NOWHERE), 5, "3 attempts in a row"),
        (USER, (NOWHERE, SAME), 5, ""),
        (USER, (NOWHERE,), 5, ""),
    ],
)
def test_a_loop_that_gets_nowhere_ends(
    cause: Cause, row: tuple[frozenset[str], ...], seconds: float, part: str
) -> None:
    found = plan(cause, past=Past(9, 8, row=row), resume_on="any", seconds=seconds)
    assert (found.action, found.gives_up) == (("stop", True) if part else ("requeue", False))
    assert part in found.why
