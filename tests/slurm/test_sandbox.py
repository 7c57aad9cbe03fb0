"""The sandbox itself: a real cluster that starts, runs jobs as a user, breaks, and ends without a trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit import pids
from hpkit.errors import HpkitError
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox import leftovers
from hpkit.sandbox.cluster import Cluster

TOP = Path(__file__).parents[2]


@pytest.fixture
def folder(session_cluster: Cluster) -> Iterator[Path]:
    """A folder for a second sandbox; what a failed test left running in it is ended."""
    path = Path(f"{session_cluster.folder}-second")
    yield path
    if path.exists():
        clusters.attach(str(path)).down()


def read(path: str) -> str:
    return Path(path).read_text()


def hpkit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HPKIT_SANDBOX": str(folder)}
    code = "import sys; from hpkit.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, "sandbox", *words],
        cwd=TOP,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_nodes_are_idle_and_have_gpus(cluster: Cluster) -> None:
    found = cluster.client.nodes()
    assert [node.name for node in found] == ["n1", "n2", "n3", "n4"]
    assert all(node.flags == frozenset({"IDLE"}) for node in found)
    assert all("gpu:8" in node.gres for node in found)


def test_a_job_runs_as_a_user_who_is_not_root(cluster: Cluster) -> None:
    job = cluster.submit(
        "#!/bin/sh\nid -u\nsrun -l sh -c 'echo \"$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES\"'\n",
        "-N2",
        "--gres=gpu:2",
    )
    done = cluster.wait(job, "COMPLETED")
    lines = read(f"{cluster.folder}/home/slurm-{job}.out").split("\n")
    assert done.user_id != 0
    assert lines[0] == str(done.user_id)
    assert sorted(lines[1:3]) == ["0: n1 0,1", "1: n2 0,1"]


def test_slurmctld_is_not_root(cluster: Cluster) -> None:
    pid = cluster.state.processes["slurmctld"].pid
    assert os.stat(f"/proc/{pid}").st_uid != 0


@pytest.mark.parametrize(
    "argv",
    [["hpkit", "--version"], ["hp-srun", "--version"], ["python", "-c", "import click, hpkit.resume.main"]],
)
def test_the_user_can_run_what_is_installed(cluster: Cluster, argv: list[str]) -> None:
    words = [cluster.state.python, *argv[1:]] if argv[0] == "python" else argv
    ran = cluster.run_as_user(words, env={"PYTHONPATH": f"{cluster.folder}/lib"})
    assert ran.rc == 0, ran.stderr


def test_the_user_cannot_read_the_kernel_log_nor_change_a_node(cluster: Cluster) -> None:
    root = f"{cluster.state.node('n1')}/root"
    ran = cluster.run_as_user(
        [
            "sh",
            "-c",
            f"cat {root}/dev/kmsg; echo x >{root}/etc/hpkit/hpkit.toml; ls {root}/run/hpkit/suspects",
        ]
    )
    assert ran.stderr.decode().count("ermission denied") == 3
    assert ran.text == ""


def test_break_and_heal(cluster: Cluster) -> None:
    folder = cluster.state.node("n2")
    pci = Path(folder, "root/sys/bus/pci/devices/0000:86:00.0")
    before = cluster.state_of("n2")
    cluster.brk("n2", "gpu-off-bus")
    assert (pci / "revision").read_text() == "0xff\n"
    assert json.loads(read(f"{folder}/tools/nvml/stdout"))["gpus"][3]["code"] == 15
    cluster.heal("n2", reboot=False)
    assert (pci / "revision").read_text() == "0xa1\n"
    assert cluster.state_of("n2").boot_id == before.boot_id
    assert "Xid (PCI:0000:86:00): 79" in read(f"{folder}/root/dev/kmsg"), (
        "the kernel's log stays until a reboot"
    )
    cluster.heal("n2")
    assert cluster.state_of("n2").boot_id != before.boot_id
    assert "Xid" not in read(f"{folder}/root/dev/kmsg")


def test_up_twice_says_so(cluster: Cluster) -> None:
    with pytest.raises(HpkitError, match=r"runs in .* already"):
        clusters.up(cluster.folder)


def test_a_foreign_folder_is_left_alone(session_cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(HpkitError, match="no sandbox of ours"):
        clusters.up(str(tmp_path))
    assert (tmp_path / "thesis.txt").exists()


def test_without_root_the_command_says_what_to_type(cluster: Cluster) -> None:
    code = "from hpkit.sandbox import ground; ground.look('/tmp/never')"
    ran = cluster.run_as_user([cluster.state.python, "-c", code], env={"PYTHONPATH": f"{cluster.folder}/lib"})
    assert b"need root" in ran.stderr


def test_a_folder_that_the_user_cannot_enter_is_refused(session_cluster: Cluster, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(HpkitError, match="cannot enter"):
        clusters.up(str(tmp_path / "sandbox"))
    assert not (tmp_path / "sandbox").exists()


def test_two_sandboxes_and_down_ends_exactly_its_own(cluster: Cluster, folder: Path) -> None:
    second = clusters.up(str(folder), nodes=2, gpus=1)
    bystander = subprocess.Popen(
        ["sh", "-c", f"exec sleep 300 # {folder}"],
        env={"SLURM_CONF": second.state.conf, "PATH": "/usr/bin:/bin"},
        cwd=folder,
    )
    try:
        ours = cluster.submit("#!/bin/sh\nsleep 300\n", "-N1")
        script = "#!/bin/sh\ntrap '' TERM\nsetsid sleep 300 &\nsrun -N2 sh -c 'trap \"\" TERM; sleep 300'\n"
        theirs = second.submit(script, "-N2", "--gres=gpu:1")
        cluster.wait(ours, "RUNNING")
        second.wait(theirs, "RUNNING")
        second.until(
            lambda: leftovers.belonging(second.state), lambda all_: jobs_in(all_, theirs) >= 3, 20, "the job"
        )
        state = second.state
        second.down()
        assert leftovers.belonging(state) == ()
        assert not folder.exists()
        assert bystander.poll() is None
        assert "RUNNING" in cluster.job(ours).flags
        assert all(pids.alive(stamp) for stamp in cluster.state.processes.values())
    finally:
        bystander.kill()
        bystander.wait()


def jobs_in(all_: tuple[leftovers.Belongs, ...], job: str) -> int:
    """How many processes of a job there are."""
    return sum(job in each.what for each in all_)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_down_without_a_controller(session_cluster: Cluster, folder: Path, number: int) -> None:
    second = clusters.up(str(folder), nodes=1, gpus=0)
    told = f"{folder}/home/pids"
    job = second.submit(
        f"#!/bin/sh\nsetsid sleep 300 &\necho $$ $PPID $! >{told}.new\nmv {told}.new {told}\nsleep 300\n"
    )
    second.until(lambda: os.path.exists(told), bool, 20, job)
    running = [pids.stamp(int(pid)) for pid in read(told).split()]
    os.kill(second.state.processes["slurmctld"].pid, number)
    second.down()
    assert len(running) == 3
    assert not [stamp for stamp in running if stamp is None or pids.alive(stamp)]


def test_the_commands(session_cluster: Cluster, folder: Path) -> None:
    up = hpkit(folder, "up", "--nodes", "2", "--gpus", "2")
    assert up.returncode == 0, up.stderr
    assert "2 nodes are idle, 2 GPUs each" in up.stderr + up.stdout
    assert hpkit(folder, "break", "n2", "ecc:1").returncode == 0
    wrong = hpkit(folder, "break", "n2", "gpu-lost:5")
    assert (wrong.returncode, "it has 2" in wrong.stderr) == (3, True)
    rows = json.loads(hpkit(folder, "status", "--json").stdout)["nodes"]
    assert [(row["node"], row["faults"]) for row in rows] == [("n1", []), ("n2", ["ecc:1"])]
    assert hpkit(folder, "heal", "n2").returncode == 0
    assert json.loads(hpkit(folder, "status", "--json").stdout)["nodes"][1]["faults"] == []
    down = hpkit(folder, "down")
    assert (down.returncode, folder.exists()) == (0, False)
    assert "no sandbox in" in hpkit(folder, "status").stderr
