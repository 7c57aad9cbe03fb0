"""`hpkit drain`, `hpkit undrain` and `hpkit status`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpkit.commands.drain import drain
from hpkit.commands.fleet_nodes import names_of
from hpkit.commands.status import status
from hpkit.commands.undrain import undrain
from hpkit.config import DrainConfig
from hpkit.errors import SlurmError, UsageError
from hpkit.model import Action
from hpkit.node import record
from hpkit.paths import Paths
from hpkit.policy.returning import Record
from hpkit.result import Result
from tests.support.fake_slurm import FakeSlurm

RULES = DrainConfig()


@pytest.fixture
def slurm() -> FakeSlurm:
    """n1 and n2 in service, n3 drained by alice, n4 by hpkit."""
    made = FakeSlurm.of(4)
    made.put("n3", flags="IDLE+DRAIN", reason="psu swap", by="alice", at=1_700_000_000)
    made.put("n4", flags="IDLE+DRAIN", reason="hpkit: gpu.count: 7 of 8", by="root", at=1_700_000_000)
    return made


def outcomes(result: Result) -> dict[str, str]:
    json.dumps(result.document)
    return {step["node"]: step["outcome"] for step in result.document["nodes"]}


def test_drain(slurm: FakeSlurm) -> None:
    result = drain(slurm, ("n1", "n3", "n4", "n9"), "cable [x]", False, RULES)
    assert outcomes(result) == {"n1": "drained", "n3": "left-alone", "n4": "unchanged", "n9": "unknown"}
    assert slurm.writes == [("drain", "n1", "hpkit: admin: cable (x)")]
    assert result.code == 4
    assert "budget:" in result.lines[-1]
    assert "alice" in result.lines[1]


@pytest.mark.parametrize(
    ("names", "code"), [(("n1", "n2"), 0), (("n4",), 0), (("n1", "n3"), 4), (("n3",), 1), (("n9", "n3"), 1)]
)
def test_drain_exit_codes(slurm: FakeSlurm, names: tuple[str, ...], code: int) -> None:
    assert drain(slurm, names, "", False, RULES).code == code


def test_a_person_is_not_bound_by_the_budget(slurm: FakeSlurm) -> None:
    result = drain(slurm, ("n1", "n2"), "", False, DrainConfig(max_nodes=0, max_share=0))
    assert result.code == 0
    assert result.document["reason"] == "hpkit: admin: no reason given"


def test_dry_runs_write_nothing(slurm: FakeSlurm) -> None:
    before = dict(slurm.table)
    assert outcomes(drain(slurm, ("n1", "n3"), "", True, RULES)) == {"n1": "drained", "n3": "left-alone"}
    assert outcomes(undrain(slurm, ("n3", "n4"), True)) == {"n3": "left-alone", "n4": "returned"}
    assert (slurm.writes, slurm.table) == ([], before)


def test_a_drain_that_somebody_replaced_is_no_success(slurm: FakeSlurm) -> None:
    plain = slurm.drain

    def beaten(name: str, reason: str) -> None:
        plain(name, reason)
        slurm.put(name, flags="IDLE+DRAIN", reason="mine", by="bob")

    slurm.drain = beaten  # type: ignore[method-assign]
    result = drain(slurm, ("n1",), "", False, RULES)
    assert (outcomes(result), result.code) == ({"n1": "lost"}, 1)


def test_undrain_needs_only_our_prefix(slurm: FakeSlurm) -> None:
    slurm.put("n2", flags="DOWN+DRAIN", reason="hpkit: admin: x : reboot timed out", by="slurm")
    result = undrain(slurm, ("n1", "n2", "n3", "n4"), False)
    assert outcomes(result) == {"n1": "unchanged", "n2": "returned", "n3": "left-alone", "n4": "returned"}
    assert slurm.writes == [("undrain", "n2"), ("undrain", "n4")]
    assert slurm.table["n2"].flags == {"DOWN"}
    assert "DOWN" in result.lines[1]
    assert slurm.table["n3"].reason == "psu swap"
    assert result.code == 4


def test_a_failed_node_is_not_undrained(slurm: FakeSlurm) -> None:
    slurm.put("n1", flags="IDLE+FAIL", reason="Action:Replace", by="root")
    assert outcomes(undrain(slurm, ("n1",), False)) == {"n1": "left-alone"}
    assert slurm.writes == []


def test_without_an_answer_both_fail(slurm: FakeSlurm) -> None:
    slurm.down = "unreachable"
    with pytest.raises(SlurmError):
        drain(slurm, ("n1",), "", False, RULES)
    with pytest.raises(SlurmError):
        undrain(slurm, ("n1",), False)


def test_names() -> None:
    assert names_of(("n1,n[3-4]", "n1")) == ("n1", "n3", "n4")
    for bad in (("n[",), ("",), ("-x",)):
        with pytest.raises(UsageError):
            names_of(bad)


def test_status(slurm: FakeSlurm, tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    kept = Record("n4", "b", "", "hpkit: gpu.count: 7 of 8", 1.0, "gpu.count", "", Action.REBOOT, "7 of 8")
    record.save(paths, kept)
    Path(paths.run).mkdir(parents=True)
    failure = {"check": "gpu.count", "subject": "", "message": "7 of 8"}
    Path(paths.run, "answer.json").write_text(json.dumps({"verdict": "unhealthy", "failures": [failure]}))
    result = status(slurm, paths, RULES, "n4")
    json.dumps(result.document)
    assert result.code == 0
    assert [row["node"] for row in result.document["drained"]] == ["n4"]
    assert result.document["drained"][0]["record"]["action"] == "reboot"
    assert [(row["node"], row["by"]) for row in result.document["foreign"]] == [("n3", "alice")]
    assert result.document["here"]["verdict"] == "unhealthy"
    text = "\n".join(result.lines)
    for part in (
        "4 nodes, 1 drained by hpkit, 1 taken out by others",
        "psu swap",
        "needs: reboot",
        "this node (n4)",
    ):
        assert part in text


def test_status_counts_the_budget(tmp_path: Path) -> None:
    import time

    slurm = FakeSlurm.of(4, clock=time.time)
    slurm.put("n1", flags="IDLE+DRAIN", reason="hpkit: a.b: x", by="root")
    document = status(slurm, Paths(str(tmp_path)), RULES, "").document
    assert document["budget"][0] == {"group": "", "nodes": 4, "limit": 2, "used": ["n1"], "left": 1}
    assert document["here"]["node"] == ""


def test_status_without_slurm_still_shows_this_node(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.down = "unreachable"
    paths = Paths(str(tmp_path))
    Path(paths.run).mkdir(parents=True)
    Path(paths.run, "verdict").write_text("hpkit/1 boot 99 healthy 1 health prolog,epilog,health\n")
    result = status(slurm, paths, RULES, "n1")
    assert result.code == 1
    assert "this node (n1): healthy" in result.lines
    assert "Unable to contact" in result.notes[0]
