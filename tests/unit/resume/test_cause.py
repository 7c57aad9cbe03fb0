"""Evidence → cause, in the order of evidence."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from hpkit.model import Action, Finding, Status
from hpkit.resume.cause import judge
from hpkit.resume.facts import Evidence, NodeFacts, Witness
from hpkit.slurm.client import Job

BEGUN, ENDED = 1000.0, 2000.0
LOST = Finding("gpu.count", "", Status.FAIL, Action.REBOOT, "7 of 8 GPUs")
FULL = Finding("host.disk", "/", Status.FAIL, Action.RETEST, "/ is full: 100 % used, 0.0 GiB left")
DISK_DRAIN = "hpkit: host.disk: / is full: 100 % used, 0.0 GiB left"
HEALTHY = Witness(noted=True, root="healthy")


def job(flags: str = "RUNNING", **more: Any) -> Job:
    return Job("7", 1000, frozenset(flags.split("+")), **more)


def node(name: str, flags: str = "ALLOCATED", witness: Witness | None = HEALTHY, **more: Any) -> NodeFacts:
    return NodeFacts(name, frozenset(flags.split("+")), witness=witness, **more)


def cause(*nodes: NodeFacts, **more: Any) -> tuple[str, tuple[str, ...], str]:
    found = judge(Evidence(3, BEGUN, ENDED, **{"job": job(), "nodes": nodes, **more}))
    return found.kind, found.nodes, found.why


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("CANCELLED+COMPLETING", "cancelled"),
        ("TIMEOUT+COMPLETING", "time limit"),
        ("DEADLINE", "time limit"),
        ("PREEMPTED+COMPLETING", "preempted"),
        ("PENDING+REQUEUED", "requeues"),
        ("COMPLETING+PENDING", "requeues"),
        ("NODE_FAIL+COMPLETING", "node failed"),
        ("FAILED", "ended"),
        ("COMPLETING", "cancelled, or"),
    ],
)
def test_what_slurm_did_itself_comes_first(flags: str, part: str) -> None:
    kind, nodes, why = cause(node("n1", "DOWN", None), job=job(flags))
    assert (kind, nodes) == ("scheduler", ())
    assert part in why


def test_the_end_time_tells_a_time_limit() -> None:
    assert cause(node("n1"), job=job(end_at=ENDED))[0] == "scheduler"
    assert cause(node("n1"), job=job(end_at=ENDED + 60))[0] == "user"


def test_a_signal_to_hp_srun_is_no_fault() -> None:
    kind, _, why = cause(node("n1", "DOWN", None), signal=signal.SIGTERM)
    assert kind == "scheduler" and "SIGTERM" in why


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (node("n2", witness=Witness(True, "unhealthy", (LOST,))), "gpu.count: 7 of 8 GPUs"),
        (node("n2", witness=Witness(True, "unhealthy", ())), "unhealthy"),
        (node("n2", "DOWN", None), "down"),
        (node("n2", "ALLOCATED+FAIL", reason="Action:Replace"), "Action:Replace"),
        (node("n2", "ALLOCATED+NOT_RESPONDING", None), "does not respond"),
        (node("n2", "ALLOCATED+DRAIN", reason="hpkit: gpu.xid: Xid 79", reason_at=1500.0), "gpu.xid: Xid 79"),
        (node("n2", witness=Witness(True, "healthy", (), (LOST,))), "gpu.count: 7 of 8 GPUs"),
        (node("n2", witness=Witness(False, "", (), (LOST,))), "gpu.count: 7 of 8 GPUs"),
    ],
)
def test_a_faulty_node_is_hardware(bad: NodeFacts, part: str) -> None:
    kind, nodes, why = cause(node("n1"), bad)
    assert (kind, nodes) == ("hardware", ("n2",))
    assert part in why


@pytest.mark.parametrize(
    "good",
    [
        node("n2", "ALLOCATED+NOT_RESPONDING"),  # root answered just now, so it does respond
        node("n2", "ALLOCATED+DRAIN", reason="hpkit: gpu.ecc: old", reason_at=900.0),  # before this attempt
        node(
            "n2", "ALLOCATED+DRAIN", reason="maintenance at noon", reason_at=1500.0
        ),  # somebody else's drain
        node("n2", witness=Witness(True, "degraded", (), ())),
    ],
)
def test_a_good_node_is_never_blamed(good: NodeFacts) -> None:
    assert cause(node("n1"), good)[0] == "user"


@pytest.mark.parametrize(
    ("silent", "part"),
    [
        (node("n2", witness=None), "did not answer"),
        (node("n2", witness=Witness(noted=True)), "no answer from root"),
        (node("n2", witness=Witness(noted=False)), "not active"),
        (node("n2", witness=Witness(noted=True, root="unknown")), "could not tell"),
        (node("n2", witness=Witness(trouble="no note could be left: No space left on device")), "No space"),
    ],
)
def test_a_node_that_did_not_clear_itself_makes_it_unknown(silent: NodeFacts, part: str) -> None:
    kind, nodes, why = cause(node("n1"), silent)
    assert (kind, nodes) == ("unknown", ())
    assert part in why and "n2" in why


@pytest.mark.parametrize(
    "full",
    [
        node("n2", witness=Witness(True, "unhealthy", (FULL,))),
        node("n2", witness=Witness(True, "unhealthy", (FULL, FULL), (FULL,))),
        node("n2", witness=Witness(True, "healthy", (), (FULL,))),
        node("n2", witness=Witness(True, "", (), (FULL,))),
        node("n2", "ALLOCATED+DRAIN", reason=DISK_DRAIN, reason_at=1500.0),
        node("n2", "ALLOCATED+DRAIN", None, reason=f"{DISK_DRAIN} (retest 1f3a9c2e-77aa)"),
        node(
            "n2", "ALLOCATED+DRAIN", Witness(True, "unhealthy", (FULL,)), reason=DISK_DRAIN, reason_at=1500.0
        ),
        node("n2", "ALLOCATED+NOT_RESPONDING", Witness(True, "unhealthy", (FULL,))),  # it did answer
    ],
)
def test_a_full_disk_is_no_hardware_and_no_fault_of_the_program(full: NodeFacts) -> None:
    kind, nodes, why = cause(node("n1"), full)
    assert (kind, nodes) == ("unknown", ())
    assert "disk is full" in why and "100 % used" in why and why.startswith("n2: ")


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        (node("n2", witness=Witness(True, "unhealthy", (FULL, LOST))), "gpu.count: 7 of 8 GPUs"),
        (node("n2", witness=Witness(True, "unhealthy", (FULL,), (LOST,))), "gpu.count: 7 of 8 GPUs"),
        (node("n2", "DOWN", None, reason=DISK_DRAIN, reason_at=1500.0), "down"),
        (node("n2", "ALLOCATED+DRAIN", Witness(True, "unhealthy", (LOST,)), reason=DISK_DRAIN), "gpu.count"),
        (node("n2", "ALLOCATED+DRAIN", reason="hpkit: host.disks: x", reason_at=1500.0), "host.disks"),
        (
            node(
                "n2", "ALLOCATED+DRAIN", Witness(True, "unhealthy", (FULL,)), reason="hpkit: gpu.xid: Xid 79"
            ),
            "gpu.xid: Xid 79",
        ),
    ],
)
def test_a_full_disk_hides_no_other_fault(bad: NodeFacts, part: str) -> None:
    kind, nodes, why = cause(node("n1"), bad)
    assert (kind, nodes) == ("hardware", ("n2",))
    assert part in why and "(and 1 more)" not in why


def test_a_disk_drain_of_an_earlier_attempt_says_nothing() -> None:
    old = node("n2", "ALLOCATED+DRAIN", reason=DISK_DRAIN, reason_at=900.0)
    assert cause(node("n1"), old)[0] == "user"


def test_a_full_disk_on_every_node_drains_no_second_set_of_nodes() -> None:
    full = Witness(True, "unhealthy", (FULL,))
    kind, nodes, why = cause(*(node(f"n{i}", witness=full) for i in range(4)))
    assert (kind, nodes) == ("unknown", ())
    assert why.count("disk is full") == 1


def test_nothing_known_is_unknown_and_all_cleared_is_user() -> None:
    assert cause()[0] == "unknown"
    assert cause(node("n1"))[:2] == ("user", ())
    assert cause(node("n1"), node("n2"), job=None)[0] == "user"


def test_both_faulty_nodes_are_named_and_long_lists_are_cut() -> None:
    bad = Witness(True, "unhealthy", (LOST, LOST))
    kind, nodes, why = cause(*(node(f"n{i}", witness=bad) for i in range(20)))
    assert kind == "hardware" and len(nodes) == 20
    assert "and 12 more" in why and "(and 1 more)" in why and len(why) < 200


def test_a_step_that_was_cancelled_is_neither_the_programs_fault_nor_unknown() -> None:
    for witness in (HEALTHY, None):
        kind, nodes, why = cause(node("n1", witness=witness), cancelled=True)
        assert (kind, nodes, why) == ("scheduler", (), "the step was cancelled")
    assert cause(node("n1", "DOWN"), cancelled=True)[0] == "hardware"


def test_a_node_that_slurm_told_srun_of_is_no_fault_of_the_program() -> None:
    assert cause(node("n1"), lost="n2")[:2] == ("hardware", ())
    assert cause(node("n1"), lost="n2", cancelled=True)[0] == "hardware"
    assert cause(node("n1"), lost="n2", job=job("CANCELLED"))[0] == "scheduler"


def test_a_step_that_was_not_started_is_no_fault_of_the_program() -> None:
    said = "task 1 launch failed: Slurmd could not execve job"
    kind, nodes, why = cause(node("n1"), node("n2"), unlaunched=said)
    assert (kind, nodes) == ("unknown", ())
    assert said in why
    assert cause(node("n1"), node("n2", "DOWN"), unlaunched=said)[:2] == ("hardware", ("n2",))
    assert cause(node("n1"), job=job("CANCELLED"), unlaunched=said)[0] == "scheduler"
