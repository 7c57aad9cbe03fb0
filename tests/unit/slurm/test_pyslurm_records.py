"""What pyslurm tells, made into the tuples that the commands give: the same record read both ways is equal."""

from __future__ import annotations

from typing import Any

import pytest

from hpkit.errors import SlurmError
from hpkit.slurm import parse
from hpkit.slurm import pyslurm_records as records
from hpkit.slurm.client import Job, Node
from tests.support import slurm_texts as texts
from tests.support.fake_pyslurm import JOB, NODE

NOW = 1778000000.0


def node(**changes: Any) -> Node:
    return records.node({**NODE, **changes})


def job(asked: str = "", **changes: Any) -> Job:
    return records.job({**JOB, **changes}, NOW, asked)


def test_a_node_is_what_scontrol_prints() -> None:
    (printed,) = parse.nodes(texts.node())
    assert node() == printed
    (printed,) = parse.nodes(texts.node(state="IDLE+DRAIN", reason="first: a=b\nsecond"))
    reason = {"reason": "first: a=b\nsecond", "reason_user": "root", "reason_time": 1777982400}
    assert node(state="IDLE+DRAIN", **reason) == printed


def test_a_job_is_what_scontrol_prints() -> None:
    assert job() == parse.job(texts.job("41"), "41")


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"state": "MIXED+DRAIN", "allocated_cpus": 3, "allocated_tres": {"cpu": 3}}, {"MIXED", "DRAIN"}),
        ({"state": "IDLE+COMPLETING", "allocated_tres": {"gres/gpu": 1}}, {"MIXED", "COMPLETING"}),
        ({"state": "DOWN*", "allocated_tres": {}}, {"DOWN", "NOT_RESPONDING"}),
    ],
)
def test_states(changes: dict[str, Any], flags: set[str]) -> None:
    assert node(**changes).flags == flags


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reason": "\n\nx\ny", "reason_user": "ada", "reason_time": 5}, ("x", "ada", 5.0)),
        ({"reason": "x", "reason_user": None, "reason_time": 5}, ("x", "4294967294", 5.0)),
        ({"reason": "x", "reason_user": "ada", "reason_time": None}, ("x", "", None)),
        ({"reason": None, "reason_user": "ada", "reason_time": 5}, ("", "", None)),
    ],
)
def test_reasons(changes: dict[str, Any], expected: tuple[str, str, float | None]) -> None:
    found = node(**changes)
    assert (found.reason, found.reason_by, found.reason_at) == expected


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"configured_gres": {"gpu:h100": 8, "nic": 2}}, "gres", "gpu:h100:8,nic:2"),
        ({"configured_gres": {}}, "gres", ""),
        ({"boot_time": None}, "boot_time", None),
        ({"real_memory": None, "total_cpus": 0}, "memory_mib", 0),
        ({"address": None}, "addr", ""),
        ({"partitions": []}, "partitions", ()),
    ],
)
def test_node_fields(changes: dict[str, Any], field: str, expected: object) -> None:
    assert getattr(node(**changes), field) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"array_id": 40, "array_task_id": 3}, ("40_3", "40", "3")),
        ({"array_id": 40, "array_task_id": None}, ("40_0", "40", "0")),  # pyslurm takes task 0 for no task
        ({"array_id": 40, "array_tasks_waiting": "7"}, ("40_7", "40", "7")),
        ({"array_id": 40, "array_tasks_waiting": "7", "array_tasks_parallel": 2}, ("41", "40", "7%2")),
        ({}, ("41", "", "")),
    ],
)
def test_tasks(changes: dict[str, Any], expected: tuple[str, str, str]) -> None:
    found = job(**changes)
    assert (found.id, found.array_job_id, found.array_task_id) == expected


@pytest.mark.parametrize(
    ("asked", "changes"),
    [
        ("40", {"array_id": 40, "array_task_id": 3}),
        ("41", {"array_id": 40, "array_tasks_waiting": "1-3"}),
        ("41", {"array_id": 40, "array_tasks_waiting": "7", "array_tasks_parallel": 2}),
    ],
)
def test_a_whole_array_is_refused(asked: str, changes: dict[str, Any]) -> None:
    with pytest.raises(SlurmError) as caught:
        job(asked, **changes)
    assert (caught.value.kind, caught.value.hint) == ("refused", "name one task: 40_N")


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"state_reason": "launch failed requeued held"}, "reason", "launch_failed_requeued_held"),
        ({"state_reason": None}, "reason", "None"),
        ({"end_time": int(NOW) - 5}, "end_at", NOW - 5),
        ({"end_time": int(NOW) + 5}, "end_at", None),
        ({"end_time": int(NOW) + 5, "time_limit": 60}, "end_at", NOW + 5),
        ({"end_time": None}, "end_at", None),
        ({"state": "PENDING", "num_nodes": 4, "max_nodes": 2}, "num_nodes", 2),
        ({"state": "RUNNING", "num_nodes": 4, "max_nodes": 2}, "num_nodes", 4),
        ({"state": "PENDING", "num_nodes": None}, "num_nodes", 0),
        ({"constraints": ["a&b", "c"]}, "features", "a&b,c"),
        ({"user_id": 0}, "user_id", 0),
        ({"priority": 0}, "priority", 0),
        ({"priority": None}, "priority", 4294967294),
    ],
)
def test_job_fields(changes: dict[str, Any], field: str, expected: object) -> None:
    assert getattr(job(**changes), field) == expected


@pytest.mark.parametrize(
    "changes", [{"state": ""}, {"partitions": None}, {"configured_gres": 3}, {"state": None}]
)
def test_a_node_of_another_form_is_garbled(changes: dict[str, Any]) -> None:
    with pytest.raises(SlurmError) as caught:
        node(**changes)
    assert caught.value.kind == "garbled"


@pytest.mark.parametrize("lacking", ["state", "array_id", "constraints"])
def test_a_job_of_another_form_is_garbled(lacking: str) -> None:
    with pytest.raises(SlurmError) as caught:
        records.job({key: value for key, value in JOB.items() if key != lacking}, NOW)
    assert caught.value.kind == "garbled"
