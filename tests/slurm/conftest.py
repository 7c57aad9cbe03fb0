"""One real four-node cluster for all tests of this folder, put in order again around each of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit import pids
from hpkit.errors import HpkitError
from hpkit.paths import paths
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox import ground, leftovers
from hpkit.sandbox.cluster import Cluster

QUEUE_S = 120  # a job whose node reported while the controller was away completes at the next reminder
RECORDS = ("record.json", "past.json", "released.json")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the cluster."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slurm)


def needs_slurm() -> None:
    """Skip with the reason when this machine cannot run a cluster."""
    if os.geteuid() != 0:
        pytest.skip("needs root: slurmd and munged are started")
    missing = ground.missing_tools()
    if missing:
        pytest.skip(f"Slurm is not installed here: no {', '.join(missing)}")


@pytest.fixture(scope="session")
def session_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster of the whole session; taken down at its end, with proof that nothing of it is left."""
    needs_slurm()
    folder = Path("/var/tmp") / f"hpkit-test-{os.getpid()}"
    made = clusters.up(str(folder), nodes=4, gpus=8)
    try:
        yield made
    finally:
        made.down()
        assert not folder.exists()


@pytest.fixture
def cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, idle and healthy, before and after the test."""
    try:
        yield session_cluster
    finally:
        tidy(session_cluster)


@pytest.fixture
def silent(cluster: Cluster) -> Iterator[None]:
    """No background rounds, and nobody who answers notes, until the test is over."""
    health = Path(cluster.folder, "hooks/prolog/hpkit-health")
    text = health.read_text()
    health.write_text("#!/bin/sh\nexit 0\n")
    for stamp in leftovers.watchers(cluster.state):
        pids.end(stamp)
    yield
    health.write_text(text)


def tidy(cluster: Cluster) -> None:
    """Jobs away, daemons awake, hardware mended, drains and their records forgotten, all nodes idle."""
    revive(cluster)
    jobs = cluster.root("squeue", "-h", "-o", "%A").split()
    if jobs:
        cluster.root("scancel", *sorted(set(jobs)))
    for name in cluster.names:
        cluster.heal(name)
        own = paths(cluster.state.node(name))
        for file in RECORDS:
            Path(own.lib, file).unlink(missing_ok=True)
        for extra in Path(own.etc, "conf.d").iterdir():
            extra.unlink()
    cluster.until(
        lambda: cluster.root("squeue", "-h", "-o", "%A %T"),
        lambda left: not left.strip(),
        QUEUE_S,
        "the queue",
    )
    for node in cluster.client.nodes():
        if node.flags & {"DRAIN", "DOWN", "FAIL"}:
            for state in ("undrain", "resume"):
                allowed(cluster, node.name, state)
    cluster.until(lambda: nodes_out(cluster), lambda out: not out, 30, "every node idle")


def revive(cluster: Cluster) -> None:
    """Let stopped daemons go on and start dead ones again."""
    for name, stamp in cluster.state.processes.items():
        if pids.alive(stamp):
            os.kill(stamp.pid, signal.SIGCONT)
        else:
            cluster.start(name)
    cluster.until(lambda: clusters.daemons.controller_answers(cluster.state), bool, 30, "the controller")


def allowed(cluster: Cluster, name: str, state: str) -> None:
    """Set a node's state where Slurm allows it: undrain of a node that is only down is refused, and need not work."""
    try:
        cluster.root("scontrol", "update", f"nodename={name}", f"state={state}")
    except HpkitError as error:
        if "Invalid node state" not in error.message:
            raise


def nodes_out(cluster: Cluster) -> dict[str, str]:
    """Nodes that are not idle, with their flags."""
    return {
        node.name: "+".join(sorted(node.flags))
        for node in cluster.client.nodes()
        if node.flags != frozenset({"IDLE"})
    }
