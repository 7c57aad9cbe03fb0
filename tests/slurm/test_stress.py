"""A slurmctld that is stopped, slow, killed, or that comes back: nobody takes that for an answer, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpkit import pids
from hpkit.errors import SlurmError
from hpkit.node import record as records
from hpkit.paths import paths
from hpkit.policy.returning import DRAINED, INTENDED, Record
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm import connect
from hpkit.slurm.client import Client
from tests.support.refused import refusal

SLEEP = "#!/bin/sh\nexec sleep 600\n"
QUIET = ("--output=/dev/null", "--nodes=1")
AWAY = ("timeout", "unreachable")
OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
TWO = ("-N2", "--ntasks-per-node=1", "--gres=gpu:8", "--open-mode=append")
# The second task fails when a file appears; the attempts after the first end well.
TASK = """sh -c 'echo "task $SLURM_PROCID attempt $HPKIT_ATTEMPT"
[ "$HPKIT_ATTEMPT" = 1 ] || exit 0
until [ -e {flag} ]; do sleep 0.1; done
[ $SLURM_PROCID = 1 ] && exit 7
sleep 60'"""


def send(cluster: Cluster, number: int) -> None:
    os.kill(cluster.state.processes["slurmctld"].pid, number)


def crash(cluster: Cluster) -> None:
    """slurmctld dies and saves nothing more: what the test before undid a moment ago may be there again after it.

    So each test drains a node of its own.
    """
    send(cluster, signal.SIGKILL)
    cluster.until(
        lambda: pids.alive(cluster.state.processes["slurmctld"]), lambda alive: not alive, 10, "its end"
    )


def answers(cluster: Cluster) -> bool:
    try:
        return bool(cluster.client.nodes())
    except SlurmError:
        return False


def comes_back(cluster: Cluster) -> None:
    cluster.start("slurmctld")
    cluster.until(lambda: answers(cluster), bool, 30, "the controller")


@pytest.fixture
def stopped(cluster: Cluster) -> Iterator[Cluster]:
    """The controller takes connections and answers nobody."""
    send(cluster, signal.SIGSTOP)
    yield cluster
    if pids.alive(cluster.state.processes["slurmctld"]):
        send(cluster, signal.SIGCONT)


def children() -> list[str]:
    """Commands of Slurm that are our children."""
    mine = Path("/proc/self/task")
    listed = [pid for task in mine.iterdir() for pid in (task / "children").read_text().split()]
    names = [Path("/proc", pid, "comm").read_text().strip() for pid in listed if Path("/proc", pid).exists()]
    return [name for name in names if name in ("scontrol", "squeue")]


def calls(client: Client, job: str) -> dict[str, Callable[[], object]]:
    """Every call that a client has."""
    return {
        "node": lambda: client.node("n1"),
        "nodes": lambda: client.nodes(),
        "some nodes": lambda: client.nodes(["n1", "n2"]),
        "job": lambda: client.job(job),
        "jobs_on": lambda: client.jobs_on("n1"),
        "config": lambda: client.config(),
        "abilities": lambda: client.abilities(),
        "no_requeue": lambda: client.no_requeue(job),
        "requeue": lambda: client.requeue(job, begin_in_s=600),
        "start_now": lambda: client.start_now(job),
        "release": lambda: client.release(job),
        "drain": lambda: client.drain("n1", "hpkit: test: late"),
    }


def test_without_an_answer_every_call_raises_in_time(stopped: Cluster) -> None:
    impatient = connect(stopped.slurm._replace(timeout_s=0.25), trusted_only=False)
    for name, call in calls(impatient, "1_1").items():
        error = refusal(call)
        assert (name, error.kind) == (name, "timeout")
        assert ("may have been done" in error.hint) == (
            name in ("no_requeue", "start_now", "release", "drain")
        )
    assert impatient.hostnames("n[1-2]") == ("n1", "n2")  # asks nobody
    assert children() == []


def test_what_timed_out_may_still_happen_and_a_second_look_tells(cluster: Cluster) -> None:
    job = cluster.submit(SLEEP, *QUIET)
    cluster.wait(job, "RUNNING")
    impatient = connect(cluster.slurm._replace(timeout_s=1.0), trusted_only=False)
    send(cluster, signal.SIGSTOP)
    try:
        assert refusal(lambda: impatient.drain("n3", "hpkit: test: late")).kind == "timeout"
    finally:
        send(cluster, signal.SIGCONT)
    late = cluster.wait_node("n3", lambda node: "DRAIN" in node.flags, 10)
    assert (late.reason, late.reason_by) == ("hpkit: test: late", "root")


def test_a_slow_answer_is_a_whole_answer(stopped: Cluster) -> None:
    waker = threading.Timer(1.0, send, (stopped, signal.SIGCONT))
    waker.start()
    try:
        assert [node.name for node in stopped.client.nodes()] == list(stopped.names)
    finally:
        waker.join()


def health(cluster: Cluster, name: str) -> int:
    """A background round, which slurmd does not start here (fixture `silent`); its exit code."""
    state = cluster.state
    argv = [state.python, "-I", "-S", state.hook_main, "health", "--root", state.node(name)]
    return subprocess.run(argv, env={"SLURMD_NODENAME": name}, timeout=60, check=False).returncode


def held(cluster: Cluster, name: str) -> Record | None:
    return records.load(paths(cluster.state.node(name)))


def test_a_drain_that_arrives_after_its_round_is_known_as_ours(cluster: Cluster, silent: None) -> None:
    """slurmctld stops between the look and the drain."""
    cluster.brk("n2", "gpu-lost")
    tool = Path(cluster.folder, "slow")
    tool.mkdir()
    pid = cluster.state.processes["slurmctld"].pid
    (tool / "scontrol").write_text(
        f'#!/bin/sh\ncase "$*" in update*) kill -STOP {pid}; sleep 0.5;; esac\n'  # its threads stop one by one
        f'exec {cluster.state.tools["scontrol"]} "$@"\n'
    )
    (tool / "scontrol").chmod(0o755)
    extra = Path(paths(cluster.state.node("n2")).etc, "conf.d", "slow.toml")
    extra.write_text(f'[slurm]\nbin = "{tool}"\ntimeout_s = 2.0\n')
    assert health(cluster, "n2") == 0
    extra.unlink()
    kept = held(cluster, "n2")
    assert kept is not None and kept.state == INTENDED
    send(cluster, signal.SIGCONT)
    cluster.wait_node("n2", lambda node: "DRAIN" in node.flags, 10)
    assert health(cluster, "n2") == 0
    kept = held(cluster, "n2")
    assert kept is not None and (kept.state, kept.reason) == (DRAINED, cluster.node("n2").reason)


def test_a_round_drains_when_the_controller_is_back_and_the_drain_outlives_a_restart(
    cluster: Cluster, silent: None
) -> None:
    cluster.brk("n4", "gpu-lost")
    extra = Path(paths(cluster.state.node("n4")).etc, "conf.d", "quick.toml")
    extra.write_text("[slurm]\ntimeout_s = 1.0\n")
    crash(cluster)
    assert health(cluster, "n4") == 0
    comes_back(cluster)
    assert "DRAIN" not in cluster.node("n4").flags
    assert health(cluster, "n4") == 0
    before = cluster.node("n4")
    assert before.reason.startswith("hpkit: gpu.count: ")
    cluster.stop("slurmctld", grace_s=10)
    comes_back(cluster)
    after = cluster.wait_node("n4", lambda node: "UNKNOWN" not in node.flags, 30)
    assert (after.flags & {"DRAIN"}, after.reason, after.reason_at) == (
        {"DRAIN"},
        before.reason,
        before.reason_at,
    )
    cluster.heal("n4")
    assert health(cluster, "n4") == 0
    assert "DRAIN" not in cluster.node("n4").flags


def test_a_drain_that_slurmctld_lost_is_no_persons_undrain(cluster: Cluster, silent: None) -> None:
    """A crash loses what slurmctld had not saved; the failure, which shows no more by itself, must not be accepted."""
    state = Path(cluster.folder, "state")
    saved = state.with_name("state.before")
    subprocess.run(["cp", "-a", state, saved], check=True)
    cluster.brk("n1", "xid:79@5")
    assert health(cluster, "n1") == 0
    kept = held(cluster, "n1")
    assert kept is not None and kept.state == DRAINED
    cluster.brk("n1", "scroll")
    cluster.heal("n1", reboot=False)
    crash(cluster)
    subprocess.run(["cp", "-a", f"{saved}/.", state], check=True)
    shutil.rmtree(saved)
    comes_back(cluster)
    assert "DRAIN" not in cluster.node("n1").flags
    assert health(cluster, "n1") == 0
    again = cluster.node("n1")
    assert "DRAIN" in again.flags and again.reason.startswith(kept.reason)


def running_step(cluster: Cluster) -> tuple[str, str, Callable[[], None]]:
    """A job whose step runs on two nodes and is saved; its number, its second node, and what makes the step fail there."""
    flag = Path(cluster.folder, "home", f"flag-{os.urandom(4).hex()}")
    job = cluster.submit(f"#!/bin/bash\nhp-srun --auto-resume {TASK.replace('{flag}', str(flag))}\n", *TWO)
    cluster.until(lambda: log(cluster, job), lambda text: "task 1 attempt 1" in text, 60, "the step")
    bad = cluster.client.hostnames(cluster.job(job).nodes)[1]
    time.sleep(7)  # slurmctld saves its state at most once in five seconds

    def fail() -> None:
        cluster.brk(bad, "gpu-lost")
        flag.touch()
        flag.chmod(0o644)

    return job, bad, fail


def log(cluster: Cluster, job: str) -> str:
    path = Path(cluster.folder, "home", f"slurm-{job}.out")
    return path.read_text() if path.exists() else ""


def survived(cluster: Cluster, job: str, bad: str, cause: str) -> None:
    """It ran again once, on other nodes, for that cause."""
    done = cluster.wait(job, OVER, 250)
    text = log(cluster, job)
    print(text)
    assert (done.restarts, done.flags) == (1, {"COMPLETED"})
    assert f"cause: {cause}" in text and bad in text
    assert bad not in cluster.client.hostnames(done.nodes)


@pytest.mark.long
def test_a_step_that_fails_while_slurmctld_comes_back_is_blamed_on_its_node(cluster: Cluster) -> None:
    """In the first seconds no node has registered, and Slurm refuses the step that asks them."""
    job, bad, fail = running_step(cluster)
    crash(cluster)
    time.sleep(2.0)
    comes_back(cluster)
    fail()
    survived(cluster, job, bad, "hardware")


@pytest.mark.long  # srun itself needs a minute to end a step without the controller
@pytest.mark.parametrize("away_s", [20.0, 80.0])
def test_a_step_that_fails_while_slurmctld_is_away_is_survived(cluster: Cluster, away_s: float) -> None:
    job, bad, fail = running_step(cluster)
    crash(cluster)
    fail()
    time.sleep(away_s)
    comes_back(cluster)
    survived(cluster, job, bad, "hardware")
