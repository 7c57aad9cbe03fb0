"""Where slurm.conf is, what is wrong with it, with munge, with a user's rights or his environment: each named as what it is."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpkit import proc
from hpkit.paths import paths
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox import daemons
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm import connect
from tests.slurm.conftest import needs_slurm
from tests.support.hostile import HOSTILE
from tests.support.refused import refusal

SLEEP = "#!/bin/sh\nexec sleep 600\n"
# Asks one thing after another; prints "ok: …" or the kind, what Slurm said and the hint of each as JSON.
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm import connect
client = connect(SlurmConfig(conf=sys.argv[2], timeout_s=20.0), trusted_only=sys.argv[3] == "root")
job = sys.argv[4]
told = {}
for name, call in {
    "nodes": lambda: [node.name for node in client.nodes()],
    "node": lambda: client.node("n1").name,
    "job": lambda: client.job(job).id,
    "jobs_on": lambda: [j.id for j in client.jobs_on("n1")],
    "config": lambda: client.config()["ClusterName"],
    "drain": lambda: client.drain("n1", "hpkit: test: x"),
    "undrain": lambda: client.undrain("n1"),
    "requeue": lambda: client.requeue(job, begin_in_s=600),
    "start_now": lambda: client.start_now(job),
    "release": lambda: client.release(job),
    "no_requeue": lambda: client.no_requeue(job),
}.items():
    if name in sys.argv[5:]:
        try:
            told[name] = ["ok", call(), ""]
        except SlurmError as error:
            told[name] = [error.kind, error.message, error.hint]
print(json.dumps(told))
"""
NO_CONF = "mount -t tmpfs tmpfs /run\n[ ! -d /etc/slurm ] || mount -t tmpfs tmpfs /etc/slurm"
READS = ("nodes", "node", "job", "jobs_on", "config")
Told = dict[str, tuple[str, object, str]]


def words(cluster: Cluster, who: str, job: str, *calls: str, conf: str = "") -> list[str]:
    """The command line that asks."""
    return [cluster.state.python, "-I", "-c", ASK, f"{cluster.folder}/lib", conf, who, job or "1", *calls]


def apart(shell: str, argv: list[str], env: dict[str, str], *flags: str) -> Told:
    """Ask as root in mounts of our own, arranged by `shell`."""
    line = ["unshare", "--mount", *flags, "/bin/sh", "-ec", f'{shell}\nexec "$@"', "sh", *argv]
    return answered(
        subprocess.run(
            line, env={"PATH": proc.PATH, **env}, capture_output=True, text=True, timeout=100, check=False
        )
    )


def answered(ran: subprocess.CompletedProcess[str]) -> Told:
    assert ran.returncode == 0, ran.stderr
    told: Told = json.loads(ran.stdout)
    return told


def as_user(cluster: Cluster, job: str, *calls: str, env: dict[str, str] | None = None) -> Told:
    ran = cluster.run_as_user(words(cluster, "user", job, *calls), env=env, timeout_s=100)
    assert ran.ok, ran.stderr
    told: Told = json.loads(ran.text)
    return told


def of_root(cluster: Cluster, *args: str) -> str:
    """A job of somebody else's."""
    job = cluster.root(
        "sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *args, "--wrap=sleep 600"
    ).strip()
    return job.partition(";")[0]


def test_slurm_conf_in_its_usual_place(cluster: Cluster) -> None:
    if not Path("/etc/slurm").is_dir():
        pytest.skip("this Slurm has its configuration elsewhere")
    shell = f'mount --bind "{cluster.folder}/etc" /etc/slurm'
    told = apart(shell, words(cluster, "root", "", "nodes", "config"), {})
    assert told["nodes"] == ["ok", list(cluster.names), ""]
    assert told["config"] == ["ok", "sandbox", ""]


def test_no_slurm_conf_anywhere(cluster: Cluster) -> None:
    told = apart(NO_CONF, words(cluster, "root", "", "nodes", "drain", "requeue"), {}, "--net")
    for name in ("nodes", "drain", "requeue"):
        kind, _, hint = told[name]
        assert (name, kind) == (name, "missing")
        assert "[slurm] conf" in hint and "SLURM_CONF" in hint


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Frobnicate=1", "Frobnicate"),
        ("NodeName=", "NodeName="),
        ("MessageTimeout=abc", "abc"),
        ("hello", "hello"),
        (None, "cannot stat file"),
    ],
)
def test_a_bad_slurm_conf(cluster: Cluster, tmp_path: Path, line: str | None, said: str) -> None:
    conf = tmp_path / "slurm.conf"
    if line is not None:
        conf.write_text(Path(cluster.state.conf).read_text() + line + "\n")
    bad = connect(cluster.slurm._replace(conf=str(conf), timeout_s=0.5), trusted_only=False)
    for call in (bad.nodes, lambda: bad.drain("n1", "x")):
        error = refusal(call)
        assert (error.kind, said in error.message) == ("missing", True), error.message
        assert "slurm.conf" in error.hint


def test_a_round_with_a_bad_slurm_conf_stops_no_job_and_drains_nothing(
    cluster: Cluster, silent: None
) -> None:
    cluster.brk("n3", "gpu-lost")
    own = paths(cluster.state.node("n3"))
    Path(own.etc, "conf.d", "bad.toml").write_text(
        '[slurm]\nconf = "/nonexistent/slurm.conf"\ntimeout_s = 1.0\n'
    )
    argv = [cluster.state.python, "-I", "-S", cluster.state.hook_main]
    for kind in ("prolog", "health"):
        Path(own.run, "verdict").unlink(missing_ok=True)
        env = {"SLURMD_NODENAME": "n3", "SLURM_JOB_ID": "1", "SLURM_JOB_UID": "1"}
        done = subprocess.run(
            [*argv, kind, "--root", cluster.state.node("n3")], env=env, timeout=60, check=False
        )
        assert done.returncode == 0
    assert "cannot stat file" in Path(cluster.state.node("n3"), "hpkit.log").read_text()
    assert "DRAIN" not in cluster.node("n3").flags


@pytest.fixture
def munged(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[bytes, int], str]]:
    """Start another munge daemon; slurm.conf of somebody who uses it. A daemon's clock may be off by some seconds."""
    children = []

    def start(key: bytes, off_s: int) -> str:
        folder = f"{cluster.folder}/munge-{os.urandom(3).hex()}"
        os.mkdir(folder, 0o755)
        Path(folder, "key").write_bytes(key)
        os.chmod(f"{folder}/key", 0o400)
        argv = [cluster.state.tools["munged"], "--foreground", "--force", f"--key-file={folder}/key"]
        argv += [
            f"--{name}={folder}/{name.partition('-')[0]}" for name in ("socket", "pid-file", "seed-file")
        ]
        env = {**daemons.daemon_env(cluster.state)}
        if off_s:
            env |= {"LD_PRELOAD": wrong_clock(Path(folder)), "OFF_S": str(off_s)}
        children.append(proc.foreground(argv, env=env, new_session=True, log=f"{folder}/log"))
        cluster.until(lambda: Path(folder, "socket").exists(), bool, 10, "munged")
        text = Path(cluster.state.conf).read_text()
        conf = Path(folder, "slurm.conf")
        conf.write_text(text.replace(f"{cluster.folder}/munge/socket", f"{folder}/socket"))
        return str(conf)

    yield start
    for child in children:
        child.signal(15)
        child.wait(5.0)


def wrong_clock(folder: Path) -> str:
    """A library under which time() is off by OFF_S seconds."""
    source = folder / "clock.c"
    source.write_text(
        "#include <stdlib.h>\n#include <time.h>\n"
        "time_t time(time_t *at) {\n struct timespec now; clock_gettime(CLOCK_REALTIME, &now);\n"
        ' time_t told = now.tv_sec + atoi(getenv("OFF_S"));\n if (at) *at = told;\n return told; }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", f"{folder}/clock.so", source], check=True)
    return f"{folder}/clock.so"


@pytest.mark.parametrize("trouble", ["down", "other key", "behind", "ahead"])
def test_munge_in_trouble_is_no_answer(
    cluster: Cluster, munged: Callable[[bytes, int], str], tmp_path: Path, trouble: str
) -> None:
    if trouble == "down":
        conf = tmp_path / "slurm.conf"
        text = Path(cluster.state.conf).read_text()
        conf.write_text(text.replace(f"{cluster.folder}/munge/socket", f"{tmp_path}/nothing"))
        given = str(conf)
    else:
        key = os.urandom(128) if trouble == "other key" else Path(cluster.folder, "munge/key").read_bytes()
        given = munged(key, {"behind": -900, "ahead": 900}.get(trouble, 0))
    away = connect(cluster.slurm._replace(conf=given), trusted_only=False)
    error = refusal((lambda: away.drain("n1", "x")) if trouble == "ahead" else away.nodes)
    assert error.kind == "unreachable", error.message
    assert "munge" in error.hint
    assert cluster.node("n1").flags == {"IDLE"}


def test_nothing_in_a_users_environment_changes_what_is_read(cluster: Cluster) -> None:
    job = cluster.submit(SLEEP, "--output=/dev/null", "-w", "n1")
    cluster.wait(job, "RUNNING")
    env = {**HOSTILE, "SLURM_CONF": cluster.state.conf}
    plain = cluster.run_as_user(["squeue", "-h", "-o", "%A"], env=env)
    assert plain.text.split() != [job]  # it does change what he sees himself
    told = as_user(cluster, job, *READS, "requeue", env=env)
    assert told == {
        "nodes": ["ok", list(cluster.names), ""],
        "node": ["ok", "n1", ""],
        "job": ["ok", job, ""],
        "jobs_on": ["ok", [job], ""],
        "config": ["ok", "sandbox", ""],
        "requeue": ["ok", [], ""],
    }
    assert cluster.wait(job, "PENDING").restarts == 1


def test_a_user_may_do_nothing_to_nodes_and_to_other_peoples_jobs(cluster: Cluster) -> None:
    job, held = of_root(cluster, "-w", "n1"), of_root(cluster, "--hold")
    cluster.wait(job, "RUNNING")
    told = as_user(cluster, job, "drain", "undrain", "requeue", "no_requeue")
    told |= {f"held {name}": each for name, each in as_user(cluster, held, "start_now", "release").items()}
    assert len(told) == 6
    for name, (kind, said, hint) in told.items():
        assert (name, kind) == (name, "denied"), said
        assert "only root" in hint
    assert (cluster.job(job).flags, cluster.job(job).restarts, cluster.job(job).requeue) == (
        {"RUNNING"},
        0,
        True,
    )
    ran = cluster.run_as_user(["hpkit", "drain", "n1", "n2", "--reason", "x"])
    assert ran.rc == 1
    assert ran.text.count("denied") == 2 and "only root" in ran.text
    assert cluster.node("n2").flags == {"IDLE"}


@pytest.fixture(params=["jobs", "jobs,nodes"])
def private(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[tuple[Cluster, str]]:
    """What users do not see: other people's jobs, and perhaps nodes."""
    conf = Path(cluster.state.conf)
    before = conf.read_text()
    conf.write_text(f"{before}PrivateData={request.param}\n")
    cluster.root("scontrol", "reconfigure")
    try:
        yield cluster, request.param
    finally:
        conf.write_text(before)
        cluster.root("scontrol", "reconfigure")


def test_what_is_hidden_is_not_known(private: tuple[Cluster, str]) -> None:
    cluster, hidden = private
    other = of_root(cluster, "-w", "n1")
    cluster.wait(other, "RUNNING")
    own = cluster.submit(SLEEP, "--output=/dev/null", "-w", "n1")
    cluster.wait(own, "RUNNING")
    assert as_user(cluster, own, "job")["job"] == ["ok", own, ""]
    told = as_user(cluster, other, "nodes", "node", "job", "jobs_on")
    assert told["job"][0] == "unknown"
    if hidden == "jobs":
        assert told["node"] == ["ok", "n1", ""]
        assert told["jobs_on"][1] == [own]  # squeue leaves the other out without a word
    else:
        assert {told[name][0] for name in ("nodes", "node", "jobs_on")} == {"denied"}
    assert {job.id for job in cluster.client.jobs_on("n1")} == {own, other}  # hooks ask as root, who sees all


def conf_of(cluster: Cluster) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in Path(cluster.state.conf).read_text().splitlines())


def usual_munge(cluster: Cluster) -> str:
    """Shell text: who has no configuration yet knows munge's usual socket only."""
    return f"mkdir /run/munge\nln -s {cluster.folder}/munge/socket /run/munge/munge.socket.2"


@pytest.fixture
def configless() -> Iterator[Cluster]:
    """One node whose slurmd has its configuration from slurmctld, in mounts of its own where no slurm.conf is."""
    needs_slurm()
    folder = f"/var/tmp/hpkit-configless-{os.getpid()}"
    made = clusters.up(folder, nodes=1, gpus=8, parameters="enable_configless")
    try:
        made.stop("n1")
        shell = f"{NO_CONF}\n{usual_munge(made)}\n" + 'exec "$@"'
        argv = [
            "unshare",
            "--mount",
            "/bin/sh",
            "-ec",
            shell,
            "sh",
            made.state.tools["slurmd"],
            "-D",
            "-N",
            "n1",
        ]
        argv += ["--conf-server", f"127.0.0.1:{conf_of(made)['SlurmctldPort']}"]
        env = {name: value for name, value in daemons.daemon_env(made.state).items() if name != "SLURM_CONF"}
        child = proc.foreground(argv, env=env, new_session=True, log=f"{folder}/log/n1.out")
        made.children["n1"] = child
        made.state = made.state._replace(processes={**made.state.processes, "n1": child.stamp})
        extra = Path(paths(made.state.node("n1")).etc, "conf.d", "configless.toml")
        extra.write_text('[slurm]\nconf = ""\n')
        link = f"/proc/{child.stamp.pid}/root/run/slurm/conf"
        made.until(lambda: os.path.lexists(link) and daemons.all_idle(made.state), bool, 30, "the node")
        yield made
    finally:
        print(Path(folder, "log", "n1.out").read_text()[-2000:])
        made.down()


def test_configless_hooks_and_hp_srun_find_the_cluster_without_being_told(configless: Cluster) -> None:
    cluster = configless
    node = f"--target={cluster.state.processes['n1'].pid}"
    inside = ["nsenter", node, "--mount", "--root", *words(cluster, "root", "", "nodes", "config")]
    told = answered(
        subprocess.run(
            inside, env={"PATH": proc.PATH}, capture_output=True, text=True, timeout=60, check=False
        )
    )
    assert told["nodes"] == ["ok", ["n1"], ""]
    server = f"127.0.0.1:{conf_of(cluster)['SlurmctldPort']}"
    shell = f"{NO_CONF}\n{usual_munge(cluster)}"
    told = apart(shell, words(cluster, "user", "", "nodes"), {"SLURM_CONF_SERVER": server})
    assert told["nodes"] == ["ok", ["n1"], ""]  # a user without slurmd
    body = "#!/bin/bash\necho conf $SLURM_CONF\nunset SLURM_CONF\nexec hp-srun --auto-resume -n1 sh -c 'echo told; exit 3'\n"
    job = cluster.submit(body, "-N1", "--open-mode=append")
    cluster.wait(job, ("FAILED", "COMPLETED"), 60)
    text = Path(cluster.folder, "home", f"slurm-{job}.out").read_text()
    print(text)
    assert "attempt 1 of job" in text and "could not be read" not in text
    cluster.brk("n1", "gpu-lost")
    found = cluster.wait_node("n1", lambda seen: "DRAIN" in seen.flags, 30)
    assert found.reason.startswith("hpkit: gpu.count: ")
