"""The drain budget on a real controller: nodes that fail at the same moment, and what administrators did."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpkit.config import Config, DrainConfig
from hpkit.model import Action, Clock, Finding, Report, Status, View, action_of, verdict_of
from hpkit.node import record
from hpkit.node.remedy import Outcome, take_out
from hpkit.node.returning import consider
from hpkit.paths import Paths
from hpkit.sandbox.cluster import Cluster

REASON = "hpkit: host.mounts: /fsx is not mounted"


def report(node: str, status: str = "fail") -> Report:
    finding = Finding("host.mounts", "/fsx", Status(status), Action.REBOOT, "/fsx is not mounted")
    found = (finding,)
    return Report(node, "health", View.NODE, time.time(), 0.1, verdict_of(found), action_of(found), found)


def enforcing(cluster: Cluster, jitter_s: float = 0.0) -> Config:
    return Config(mode="enforce", slurm=cluster.slurm, drain=DrainConfig(jitter_s=jitter_s))


def clock(boot: str = "boot-a") -> Clock:
    return Clock(time.time(), 100.0, boot)


@pytest.mark.parametrize("jitter_s", [0.0, 1.0])
def test_four_nodes_at_once_and_a_budget_of_two(cluster: Cluster, tmp_path: Path, jitter_s: float) -> None:
    def fail(name: str) -> Outcome:
        paths = Paths(str(tmp_path / name))
        return take_out(cluster.client, report(name), paths, enforcing(cluster, jitter_s), clock(), name)

    with ThreadPoolExecutor(4) as pool:
        kinds = sorted(outcome.kind for outcome in pool.map(fail, cluster.names))
    assert kinds == ["drained", "drained", "no-budget", "no-budget"]
    out = [node.name for node in cluster.client.nodes() if "DRAIN" in node.flags]
    assert len(out) == 2
    kept = [name for name in cluster.names if record.load(Paths(str(tmp_path / name)))]
    assert kept == out
    again = fail(next(name for name in cluster.names if name not in out))
    assert again.kind == "no-budget"
    assert "shared cause" in again.text


@pytest.mark.parametrize("state", ["drain", "down", "fail"])
def test_what_an_administrator_did_stays(cluster: Cluster, tmp_path: Path, state: str) -> None:
    cluster.root("scontrol", "update", "nodename=n2", f"state={state}", "reason=psu swap")
    before = cluster.node("n2")
    paths = Paths(str(tmp_path))
    assert take_out(cluster.client, report("n2"), paths, enforcing(cluster), clock(), "n2").kind == "foreign"
    assert cluster.node("n2")._replace(boot_time=None) == before._replace(boot_time=None)
    assert record.load(paths) is None


def test_the_whole_life_of_a_drain(cluster: Cluster, tmp_path: Path) -> None:
    paths, config = Paths(str(tmp_path)), enforcing(cluster)
    assert take_out(cluster.client, report("n2"), paths, config, clock(), "n2") == Outcome("drained", REASON)
    assert (cluster.node("n2").reason, cluster.node("n2").reason_by) == (REASON, "root")
    assert take_out(cluster.client, report("n2"), paths, config, clock(), "n2").kind == "already-ours"
    good = report("n2", "pass")
    assert consider(cluster.client, good, paths, config, clock(), "n2") == Outcome("waiting", "a reboot")
    assert consider(cluster.client, good, paths, config, clock("boot-b"), "n2").kind == "returned"
    assert "DRAIN" not in cluster.node("n2").flags
    assert record.load(paths) is None
