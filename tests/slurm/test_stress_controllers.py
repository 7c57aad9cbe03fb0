"""Controllers that serve by turns: one that limits how often a user may ask, and a primary whose backup takes over."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit import pids, proc
from hpkit.errors import SlurmError
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox import daemons
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm import connect
from tests.slurm.conftest import needs_slurm

RATE_LIMIT = "23.02"  # the first release with rl_enable
TAKE_OVER_S = 3  # SlurmctldTimeout: a backup takes over that much later
BACKUP = "backup"
# Both controllers listen on one port, each on the address of its own host name.
HOST = 'mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 && exec "$@"'
ROWS = (
    f"SlurmctldHost={BACKUP}(127.0.0.2)",
    "CommunicationParameters=NoCtldInAddrAny",
    f"SlurmctldTimeout={TAKE_OVER_S}",
)
# Asks as an ordinary user, COUNT times with each of the deadlines given; prints what came of each call.
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm import connect
for timeout_s in map(float, sys.argv[3:]):
    client = connect(SlurmConfig(timeout_s=timeout_s), trusted_only=False)
    for _ in range(int(sys.argv[2])):
        try:
            print(json.dumps([node.name for node in client.nodes()]))
        except SlurmError as error:
            print(json.dumps(error.kind))
"""


def up(name: str, **settings: object) -> Cluster:
    """A cluster of its own, without hooks."""
    needs_slurm()
    return clusters.up(f"/var/tmp/hpkit-{name}-{os.getpid()}", nodes=2, gpus=0, hooks=False, **settings)


@pytest.fixture
def limited() -> Iterator[Cluster]:
    """A controller that lets a user ask four times, and then once in two seconds."""
    made = up("rate", parameters="rl_enable,rl_bucket_size=4,rl_refill_rate=1,rl_refill_period=2")
    try:
        if made.state.slurm < RATE_LIMIT:
            pytest.skip(f"Slurm {made.state.slurm} limits nobody")
        yield made
    finally:
        made.down()


def ask(cluster: Cluster, count: int, *timeouts_s: float) -> list[object]:
    words = [cluster.state.python, "-I", "-c", ASK, f"{cluster.folder}/lib", str(count)]
    ran = cluster.run_as_user([*words, *map(str, timeouts_s)], timeout_s=100)
    assert ran.ok, ran.stderr
    return [json.loads(line) for line in ran.text.splitlines()]


def test_a_user_who_asks_too_often_gets_no_answer_or_a_whole_one(limited: Cluster) -> None:
    """Slurm's commands wait by themselves and ask again: what reaches us is our own deadline, or the answer."""
    whole = list(limited.names)
    hasty = ask(limited, 8, 0.8)
    assert "timeout" in hasty and all(each in ("timeout", whole) for each in hasty)
    assert ask(limited, 2, 30.0) == [whole, whole]
    for _ in range(8):
        assert [node.name for node in limited.client.nodes()] == whole  # root is not limited


@pytest.mark.long  # commands that wait for each other
def test_hp_srun_requeues_under_a_rate_limit(limited: Cluster) -> None:
    body = '#!/bin/bash\n[ -z "$SLURM_RESTART_COUNT" ] || exit 0\n(while :; do squeue >/dev/null; done) &\n'
    job = limited.submit(
        body + "HPKIT_ANSWER=1 exec hp-srun --auto-resume -n1 false\n",
        "-N1",
        "--requeue",
        "--open-mode=append",
    )
    done = limited.wait(job, ("COMPLETED", "FAILED"), 250)
    print(Path(limited.folder, "home", f"slurm-{job}.out").read_text())
    assert (done.restarts, done.flags) == (1, {"COMPLETED"})


class Pair:
    """A cluster whose controller has a backup on the same machine."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.host = socket.gethostname().split(".")[0]
        folder = cluster.folder
        Path(folder, "hosts").write_text(f"127.0.0.1 localhost {self.host}\n127.0.0.2 {BACKUP}\n")
        conf = Path(cluster.state.conf)
        first, rest = conf.read_text().split("SlurmUser=", 1)
        text = first + "\n".join(ROWS) + "\nSlurmUser=" + rest
        # Its own pid file: a slurmctld ends the one that it finds there.
        for name in ("slurmctld.pid", "slurmctld.log"):
            rest = rest.replace(name, name.replace("slurmctld", BACKUP))
        for name in ("slurmctld", *cluster.names):
            cluster.stop(name)
        conf.write_text(text)
        self.second = conf.with_name(f"{BACKUP}.conf")
        self.second.write_text(first + "\n".join(ROWS) + "\nSlurmUser=" + rest)
        self.start("slurmctld")
        cluster.until(
            self._both, lambda told: "primary) at" in told and "UP" in told.splitlines()[0], 20, "the primary"
        )
        self.start(BACKUP)
        for name in cluster.names:
            cluster.start(name)
        cluster.until(self._both, lambda told: told.count(" is UP") == 2, 20, "both controllers")
        cluster.until(
            lambda: cluster.root("sinfo", "-h", "-N", "-o", "%T").split(),
            lambda s: set(s) == {"idle"},
            30,
            "nodes",
        )

    def _both(self) -> str:
        return daemons.slurm(self.cluster.state, "scontrol", "ping").text

    def start(self, name: str) -> None:
        """Start one of the two under its own host name."""
        made, state = self.cluster, self.cluster.state
        conf, host = (str(self.second), BACKUP) if name == BACKUP else (state.conf, self.host)
        words = ["unshare", "--uts", "--mount", "sh", "-c", HOST, "sh", f"{made.folder}/hosts", host]
        child = proc.foreground(
            [*words, state.tools["slurmctld"], "-D", "-f", conf],
            env={**daemons.daemon_env(state), "SLURM_CONF": conf},
            new_session=True,
            log=f"{made.folder}/log/{name}.out",
        )
        made.children[name] = child
        made.state = state._replace(processes={**state.processes, name: child.stamp})


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = up("pair")
    try:
        yield Pair(made)
    finally:
        made.down()


def end_primary(cluster: Cluster, number: int) -> None:
    """End it, though not while it replaces its heartbeat file, without which no backup ever takes over."""
    primary = cluster.state.processes["slurmctld"]
    pid = primary.pid
    os.kill(pid, signal.SIGSTOP)
    while not Path(cluster.folder, "state", "heartbeat").exists():
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)
    os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    cluster.until(lambda: pids.alive(primary), lambda alive: not alive, 30, "its end")


def seen(cluster: Cluster, timeout_s: float) -> dict[str, str]:
    """Each node's drain reason; raises SlurmError."""
    client = connect(cluster.slurm._replace(timeout_s=timeout_s), trusted_only=False)
    return {node.name: node.reason if "DRAIN" in node.flags else "" for node in client.nodes()}


@pytest.mark.long  # about 20 s
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_backup_takes_over(pair: Pair, number: int) -> None:
    cluster = pair.cluster
    cluster.client.drain("n2", "hpkit: test: before")
    job = cluster.submit("#!/bin/sh\nexec sleep 600\n", "--output=/dev/null", "--requeue")
    cluster.wait(job, "RUNNING")
    time.sleep(6)  # slurmctld has saved all that
    before = cluster.node("n2")
    end_primary(cluster, number)
    kinds = set()
    found: dict[str, str] = {}
    for timeout_s in (1.0, 1.0, 1.0, *(5.0,) * 10):
        try:
            found = seen(cluster, timeout_s)
            break
        except SlurmError as error:
            kinds.add(error.kind)
    print(Path(cluster.folder, "log", f"{BACKUP}.log").read_text()[-3000:])
    assert found == {"n1": "", "n2": "hpkit: test: before"}
    assert kinds and kinds <= {"timeout", "unreachable"}
    assert cluster.node("n2").reason_at == before.reason_at
    cluster.client.drain("n1", "hpkit: test: after")
    assert seen(cluster, 10.0)["n1"] == "hpkit: test: after"
    assert cluster.client.requeue(job, begin_in_s=600) == ()
    assert cluster.wait(job, "PENDING").restarts == 1
