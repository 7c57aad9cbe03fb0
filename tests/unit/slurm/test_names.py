"""Which node we are, and which job a text means."""

from __future__ import annotations

import pytest

from hpkit.errors import SlurmError, UsageError
from hpkit.slurm import names
from hpkit.slurm.names import JobName
from tests.support.fake_slurm import FakeSlurm, idle


def cluster() -> FakeSlurm:
    east = idle("node-a", hostname="gpu-001")._replace(addr="10.0.0.1")
    west = idle("node-b", hostname="gpu-002")._replace(addr="gpu-002.site.example")
    return FakeSlurm([east, west])


@pytest.mark.parametrize(
    ("given", "hostname", "expected"),
    [
        ("node-x", "gpu-001", "node-x"),
        ("", "gpu-001", "node-a"),
        ("", "gpu-001.site.example", "node-a"),
        ("", "gpu-002", "node-b"),
        ("", "10.0.0.1", "node-a"),
    ],
)
def test_own_node(given: str, hostname: str, expected: str) -> None:
    assert names.own_node(cluster(), hostname, given=given) == expected


def test_a_name_from_slurmd_needs_no_controller() -> None:
    away = cluster()
    away.down = "unreachable"
    assert names.own_node(away, "gpu-001", given="node-a") == "node-a"
    with pytest.raises(SlurmError) as caught:
        names.own_node(away, "gpu-001")
    assert caught.value.kind == "unreachable"


def test_no_match_names_both_sides() -> None:
    with pytest.raises(SlurmError) as caught:
        names.own_node(cluster(), "login-1.site.example")
    assert caught.value.kind == "unknown"
    assert "login-1.site.example" in caught.value.message
    assert "node-a" in caught.value.message


def test_several_nodes_on_one_host_are_not_guessed() -> None:
    both = FakeSlurm([idle("n1", hostname="box"), idle("n2", hostname="box")])
    with pytest.raises(SlurmError) as caught:
        names.own_node(both, "box")
    assert "n1, n2" in caught.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12", JobName("12")),
        ("12_3", JobName("12", (3,))),
        ("12_[3]", JobName("12", (3,), True)),
        ("12_[1-5%2]", JobName("12", (1, 2, 3, 4, 5), True)),
        ("12_[1,4-6]", JobName("12", (1, 4, 5, 6), True)),
        ("12_[0-8:4]", JobName("12", (0, 4, 8), True)),
        ("12.0", JobName("12", step="0")),
        ("12_3.batch", JobName("12", (3,), step="batch")),
        ("12+1", JobName("12", het="1")),
        ("12+1.0", JobName("12", het="1", step="0")),
    ],
)
def test_job_names(text: str, expected: JobName) -> None:
    assert names.job_name(text) == expected


@pytest.mark.parametrize(
    "text", ["", "abc", "12_", "12_[]", "12_[5-1]", "12_[1-99999999]", "12;13", "12_[0-8:0]", "-1"]
)
def test_what_is_no_job(text: str) -> None:
    with pytest.raises(UsageError):
        names.job_name(text)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, ""),
        ({"SLURM_JOB_ID": "7"}, "7"),
        ({"SLURM_JOB_ID": "1234", "SLURM_ARRAY_JOB_ID": "1234", "SLURM_ARRAY_TASK_ID": "1"}, "1234_1"),
        ({"SLURM_JOB_ID": "1235", "SLURM_ARRAY_JOB_ID": "1234", "SLURM_ARRAY_TASK_ID": "2"}, "1234_2"),
        ({"SLURM_JOB_ID": "61", "SLURM_HET_JOB_ID": "60"}, "60"),
    ],
)
def test_own_job(env: dict[str, str], expected: str) -> None:
    assert names.own_job(env) == expected
