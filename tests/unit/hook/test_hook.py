"""hook.py run as Slurm runs it, against a node root and a scontrol of its own."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpkit import hook, proc
from hpkit.errors import UsageError
from hpkit.node import parting
from tests.support.node_root import BOOT, NodeRoot

HUNG_TOOL = """#!/bin/sh
trap '' TERM
sleep 300 &
echo $! >> {folder}/left
echo $$ >> {folder}/left
wait
sleep 300
"""
HOOKS = ("prolog", "epilog", "health")


@pytest.fixture
def node(tmp_path: Path) -> NodeRoot:
    found = NodeRoot(tmp_path)
    found.configure(more='[hooks]\nwatcher = "none"\n')
    return found


@pytest.mark.parametrize("kind", HOOKS)
def test_a_healthy_round_leaves_report_answer_and_verdict(node: NodeRoot, kind: str) -> None:
    ran = node.hook(kind)
    assert (ran.rc, ran.stdout, ran.stderr) == (0, b"", b"")
    report = node.state(f"report-{kind}.json")
    assert (report["schema"], report["node"], report["verdict"]) == ("hpkit.report/1", "n1", "healthy")
    answer = node.state("answer.json")
    assert (answer["schema"], answer["boot_id"], answer["verdict"]) == ("hpkit.answer/1", BOOT, "healthy")
    assert answer["failures"] == [] and answer["written"] <= time.clock_gettime(time.CLOCK_BOOTTIME)
    words = (node.run_dir / "verdict").read_text().split()
    assert words[:2] == ["hpkit/1", BOOT] and words[3] == "healthy"
    assert int(words[2]) - int(words[4]) in (180, 181)
    assert node.state("running.json") is None
    assert node.slurm_calls() == [], "a healthy round asks Slurm nothing"
    assert (node.lib_dir / "past.json").exists()


@pytest.mark.parametrize("kind", HOOKS)
def test_a_failed_round_drains_first_and_then_rejects(node: NodeRoot, kind: str) -> None:
    node.hook(kind)
    node.disk(used=100)
    ran = node.hook(kind, SLURM_JOB_EXIT_CODE="256")
    found = node.node()
    assert found["state"] == "IDLE+DRAIN" and found["reason"].startswith("hpkit: host.disk: ")
    assert node.node("n2")["state"] == "IDLE"
    assert not (node.run_dir / "verdict").exists()
    assert node.state("answer.json")["failures"][0]["check"] == "host.disk"
    if kind == "health":
        assert (ran.rc, ran.text) == (0, "")
    else:
        assert (ran.rc, ran.text) == (hook.REJECT, found["reason"] + "\n")


@pytest.mark.parametrize("kind", HOOKS)
def test_observe_judges_and_changes_nothing(node: NodeRoot, kind: str) -> None:
    node.configure("observe", '[hooks]\nwatcher = "none"\n')
    node.disk(used=100)
    ran = node.hook(kind)
    assert (ran.rc, ran.text) == (0, "")
    assert node.slurm_calls() == []
    assert node.state(f"report-{kind}.json")["verdict"] == "unhealthy"
    assert 'event=would-drain node=n1 reason="hpkit: host.disk' in node.log()
    assert not (node.lib_dir / "record.json").exists()


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize(
    "other",
    [
        {"state": "IDLE+DRAIN", "reason": "ticket 4711"},
        {"state": "DOWN", "reason": "Not responding"},
        {"state": "IDLE+FAIL", "reason": "Action:Replace"},
    ],
)
def test_a_node_that_somebody_else_has_is_left_alone(
    node: NodeRoot, kind: str, other: dict[str, str]
) -> None:
    node.slurm(n1=other, n2={"state": "IDLE", "reason": ""})
    node.disk(used=100)
    assert node.hook(kind).rc == 0
    assert node.node() == other
    assert not any("update" in call for call in node.slurm_calls())


@pytest.mark.parametrize("kind", HOOKS)
def test_a_controller_that_is_down_costs_the_drain_and_nothing_else(node: NodeRoot, kind: str) -> None:
    node.slurm(down=True)
    node.disk(used=100)
    assert node.hook(kind).rc == 0
    assert "event=not-drained" in node.log() and "outcome=no-answer" in node.log()


def test_a_controller_that_hangs_does_not_hold_the_hook(node: NodeRoot) -> None:
    node.configure(more='[hooks]\nwatcher = "none"\n[hooks.prolog]\nsuite = "prolog"\nbudget_s = 4.0\n')
    node.slurm(hang=True)
    node.disk(used=100)
    ran = node.hook("prolog")
    assert ran.rc == 0
    assert ran.seconds < 4.0 + 1.5
    assert "event=not-drained" in node.log() or "event=hook-out-of-time" in node.log()


def wired(node: NodeRoot) -> None:
    """The node wants eight GPUs and its NVML tool hangs, ignores SIGTERM, and has a child on its stdout."""
    node.tool("nvml", HUNG_TOOL.format(folder=node.folder))
    for number in range(8):
        folder = f"sys/bus/pci/devices/0000:{number:02x}:00.0"
        node.put(f"{folder}/vendor", "0x10de\n")
        node.put(f"{folder}/class", "0x030200\n")
        node.put(f"{folder}/device", "0x2330\n")


def test_a_hung_tool_does_not_hold_the_hook_nor_its_stdout(node: NodeRoot) -> None:
    wired(node)
    text = (node.base / "etc/hpkit/hpkit.toml").read_text().replace("gpus = 0", "gpus = 8")
    node.put("etc/hpkit/hpkit.toml", text + '[hooks.prolog]\nsuite = "prolog"\nbudget_s = 5.0\n')
    begun = time.monotonic()
    with subprocess.Popen(  # what slurmd does: it reads stdout to its end, whoever holds it
        node.argv("prolog"), env={"SLURMD_NODENAME": "n1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        assert running.stdout is not None
        output = running.stdout.read()
        at_end = time.monotonic()
        rc = running.wait()
    assert at_end - begun < 5.0 + 1.5
    assert time.monotonic() - at_end < 1.0
    assert rc in (0, hook.REJECT), output
    assert_gone(node)


def test_whatever_hangs_inside_the_watchdog_ends_it_and_its_children(node: NodeRoot) -> None:
    """A tool that goes on beyond every deadline of its own: here the runner is told a budget far beyond the hook's."""
    wired(node)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from hpkit import proc; from hpkit.node import watchdog;"
        "dog = watchdog.Watchdog('test'); dog.arm(0.5);"
        "proc.run([sys.argv[2]], timeout_s=200)"
    )
    package = str(Path(hook.__file__).parents[1])
    argv = (sys.executable, "-I", "-S", "-c", code, package, str(node.folder / "bin" / "nvml"))
    ran = proc.run(argv, timeout_s=60)
    assert (ran.rc, ran.failure) == (0, "")
    assert_gone(node)


def assert_gone(node: NodeRoot) -> None:
    """The hung tool and its child, whose pids it wrote down, end soon: SIGKILL needs no help from them."""
    pids = [int(word) for word in (node.folder / "left").read_text().split()]
    assert len(pids) == 2
    until = time.monotonic() + 10
    while any(lives(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(lives(pid) for pid in pids)


def lives(pid: int) -> bool:
    stamp = proc.stamp(pid)
    return stamp is not None and proc.alive(stamp)


def test_two_hooks_at_once_share_one_round(node: NodeRoot) -> None:
    """The second waits for the lock and trusts the verdict that the first one left."""
    first = subprocess.Popen(node.argv("prolog"), env={"SLURMD_NODENAME": "n1"})
    second = subprocess.Popen(node.argv("prolog"), env={"SLURMD_NODENAME": "n1"})
    assert first.wait() == 0 and second.wait() == 0
    # Whoever came second either waited and shared, or came so late that it did not wait: the lock tells.
    from hpkit.node import lock
    from hpkit.paths import paths

    (node.run_dir / "verdict").unlink()
    held = lock.acquire(paths(str(node.folder)), 0.0)
    assert held is not None
    waiting = subprocess.Popen(node.argv("prolog"), env={"SLURMD_NODENAME": "n1"})
    report = (node.run_dir / "report-prolog.json").read_bytes()
    words = f"hpkit/1 {BOOT} 9999999999 healthy 0 health prolog,epilog,health\n"
    while waiting.poll() is None and not _waits(waiting.pid):
        time.sleep(0.01)
    time.sleep(0.3)  # it has opened the lock; now it has surely tried to take it, too
    (node.run_dir / "verdict").write_text(words)
    held.release()
    assert waiting.wait() == 0
    assert (node.run_dir / "report-prolog.json").read_bytes() == report, "it ran a round of its own"


def _waits(pid: int) -> bool:
    """Whether the process has the lock file open, and so waits for it."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(link.endswith("/run/hpkit/lock") for link in links)


def test_the_background_round_runs_though_another_hook_just_did(node: NodeRoot) -> None:
    node.hook("prolog")
    node.hook("health")
    assert node.state("report-health.json") is not None


@pytest.mark.parametrize(
    "broken",
    [
        'mode = "enforce',
        'mode = "enforcing"\n',
        "[hooks]\nprolog = 3\n",
        '[hooks.prolog]\nsuite = "no-such"\nbudget_s = 10.0\n',
        '[checks."host.disk"]\nno_such_option = 1\n',
        f"[drain]\nmax_nodes = 1{'0' * 400}\n",
        '[suites]\nprolog = ["hots.*", "gpus.*"]\n',
    ],
)
def test_a_bad_config_is_replaced_by_the_last_good_one(node: NodeRoot, broken: str) -> None:
    node.hook("health")
    node.put("etc/hpkit/hpkit.toml", broken)
    node.disk(used=100)
    ran = node.hook("prolog")
    assert ran.rc == hook.REJECT, "the last good copy enforces"
    assert "event=config-bad" in node.log() and 'using="last good copy"' in node.log()
    node.hook("health")
    kept = node.lib_dir / "config.json"
    assert json.loads(kept.read_text())["mode"] == "enforce"
    for copy in (kept, node.run_dir / "config.json"):
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600, "the site's file may be closed to users"


@pytest.mark.parametrize("loose", ["etc/hpkit", "etc/hpkit/conf.d"])
def test_a_user_who_takes_a_config_file_away_changes_nothing(node: NodeRoot, loose: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's hooks are that strict")
    node.configure("observe", '[hooks]\nwatcher = "none"\n')
    node.put("etc/hpkit/conf.d/50-site.toml", 'mode = "enforce"\n')
    node.hook("health")
    os.chmod(node.base / loose, 0o777)
    (node.base / "etc/hpkit/conf.d/50-site.toml").rename(node.base / "away.toml")
    node.disk(used=100)
    assert node.hook("prolog").rc == hook.REJECT
    assert "writable by group or others" in node.log()


def test_a_changed_config_is_read_at_once(node: NodeRoot) -> None:
    """What was read is kept for the next hook, but not beyond a change of any file."""
    node.hook("health")
    node.disk(used=100)
    for mode, rc in (("observe", 0), ("enforce", hook.REJECT), ("observe", 0)):
        node.configure(mode, '[hooks]\nwatcher = "none"\n')
        assert node.hook("prolog").rc == rc
    node.put("etc/hpkit/conf.d/90-site.toml", 'mode = "enforce"\n')
    assert node.hook("prolog").rc == hook.REJECT
    (node.base / "etc/hpkit/conf.d/90-site.toml").unlink()
    assert node.hook("prolog").rc == 0


@pytest.mark.parametrize("garbage", ["", "{", "[]", '{"stamp": 1}', "\0" * 10])
def test_a_garbled_copy_of_the_config_is_read_anew(node: NodeRoot, garbage: str) -> None:
    node.hook("prolog")
    (node.run_dir / "config.json").write_text(garbage)
    node.disk(used=100)
    assert node.hook("prolog").rc == hook.REJECT


def test_without_a_good_copy_the_defaults_only_observe(node: NodeRoot) -> None:
    node.put("etc/hpkit/hpkit.toml", "mode = 'enforce' nonsense")
    node.disk(used=100)
    assert node.hook("prolog").rc == 0
    assert node.slurm_calls() == []
    assert "using=defaults" in node.log()


def test_a_config_that_a_user_can_write_is_refused(node: NodeRoot) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root's hooks are that strict")
    node.hook("health")
    os.chmod(node.base / "etc/hpkit/hpkit.toml", 0o666)
    node.configure("observe")
    node.disk(used=100)
    assert node.hook("prolog").rc == hook.REJECT
    assert "writable by group or others" in node.log()


def test_hpkits_own_fault_stops_no_job(node: NodeRoot) -> None:
    node.configure(more='[hooks]\nwatcher = "none"\n')
    node.put("etc/hpkit/hpkit.toml", 'mode = "enforce"\n[want]\nmounts = ["/fsx\\u0000"]\n')
    node.run_dir.parent.mkdir(parents=True)
    node.run_dir.write_text("not a folder")
    ran = node.hook("prolog")
    assert (ran.rc, ran.text) == (0, "")


def test_without_a_folder_for_its_state_a_hook_still_judges(node: NodeRoot) -> None:
    node.run_dir.parent.mkdir(parents=True)
    node.run_dir.write_text("not a folder")
    assert node.hook("prolog").rc == 0
    node.disk(used=100)
    assert node.hook("prolog").rc == 101
    assert node.node()["state"] == "IDLE+DRAIN"
    assert "event=no-lock" in node.log()


EPILOG = {"SLURM_JOB_ID": "12", "SLURM_JOB_UID": "1000", "SLURM_NODELIST": "n[1-2]"}


@pytest.mark.parametrize(
    ("env", "suite_runs"),
    [
        ({"SLURM_JOB_EXIT_CODE": "0", "SLURM_JOB_EXIT_CODE2": "0:0"}, False),
        ({"SLURM_JOB_EXIT_CODE": "256", "SLURM_JOB_EXIT_CODE2": "1:0"}, True),
        ({"SLURM_JOB_EXIT_CODE": "9"}, True),
        ({"SLURM_JOB_EXIT_CODE2": "0:9"}, True),
    ],
)
def test_the_epilog_of_a_failed_job_distrusts_the_verdict(
    node: NodeRoot, env: dict[str, str], suite_runs: bool
) -> None:
    node.hook("health")
    node.hook("epilog", **EPILOG, **env)
    assert (node.state("report-epilog.json") is not None) is suite_runs


def test_a_note_makes_the_epilog_run_and_is_consumed(node: NodeRoot) -> None:
    node.hook("health")
    notes = [leave_note(node, job, 1000) for job in ("12", "13")]
    node.hook("epilog", **EPILOG)
    assert node.state("report-epilog.json") is not None
    assert not any(note.exists() for note in notes)
    assert (node.run_dir / "answered" / "13").read_text() == "1000"
    assert not (node.run_dir / "answered" / "12").exists(), "its job is over here"


def leave_note(node: NodeRoot, job: str, uid: int) -> Path:
    """A suspect note as that user's hp-srun leaves it."""
    note = node.run_dir / "suspects" / f"job-{job}-x"
    note.write_text(json.dumps({"job": job, "uptime": 1.0}))
    os.chown(note, uid, uid)
    return note


@pytest.mark.parametrize(("uid", "helped"), [(1000, True), (1001, False)])
def test_a_note_of_the_jobs_owner_speeds_its_restart_up_before_it_is_answered(
    node: NodeRoot, uid: int, helped: bool
) -> None:
    if os.geteuid() not in (0, uid):
        pytest.skip("only root can give a file away")
    node.hook("health")
    leave_note(node, "12", uid)
    node.hook("epilog", **EPILOG)
    until = time.monotonic() + (20 if helped else 1)
    while "helper-ended" not in node.log() and time.monotonic() < until:
        time.sleep(0.05)
    assert ("helper=start job=12 outcome=gone" in node.log()) is helped


def test_the_epilog_waits_for_the_jobs_step_daemons(node: NodeRoot) -> None:
    node.hook("health")
    title = "slurmstepd: [3999999999.0]"
    with subprocess.Popen([title, "1.5"], executable="/bin/sleep") as last:
        failed = {"SLURM_JOB_ID": "3999999999", "SLURM_JOB_EXIT_CODE2": "7:0"}
        node.hook("epilog", **{**EPILOG, **failed})
        assert last.poll() == 0
    assert "steps-ended job=3999999999" in node.log()


def test_the_epilog_forgets_what_was_answered(node: NodeRoot) -> None:
    node.hook("health")
    (node.run_dir / "answered").mkdir()
    (node.run_dir / "answered" / "12").write_text("1000")
    node.hook("epilog", **EPILOG)
    assert not (node.run_dir / "answered" / "12").exists()


def test_an_interrupted_round_leaves_a_partial_report(node: NodeRoot) -> None:
    wired(node)
    text = (node.base / "etc/hpkit/hpkit.toml").read_text().replace("gpus = 0", "gpus = 8")
    node.put("etc/hpkit/hpkit.toml", text)
    running = subprocess.Popen(node.argv("health"), env={"SLURMD_NODENAME": "n1"})
    while not (node.folder / "left").exists() and running.poll() is None:
        time.sleep(0.01)
    assert node.state("running.json")["pid"] == running.pid
    running.terminate()
    assert running.wait() == 0
    assert_gone(node)
    report = node.state("report-health.json")
    assert report["verdict"] == "unknown"
    assert "host.disk" in [finding["check"] for finding in report["findings"]]
    assert not (node.run_dir / "verdict").exists()


@pytest.mark.parametrize(
    ("env", "first"),
    [
        ({"SLURM_JOB_NODELIST": "n[1-2]"}, True),
        ({"SLURM_NODELIST": "n1"}, True),
        ({"SLURM_JOB_NODELIST": "n[0-2]", "SLURM_NODELIST": "n1"}, False),
        ({"SLURM_JOB_NODELIST": "n[1-"}, False),
        ({"SLURM_JOB_NODELIST": "(null)"}, False),
        ({}, False),
    ],
)
def test_the_batch_host_is_the_first_of_the_list(env: dict[str, str], first: bool) -> None:
    assert parting.is_batch_host(env, "n1") is first


@pytest.mark.parametrize("argv", [[], ["--root", "/x"], ["restart"], ["--help"]])
def test_wrong_usage(argv: list[str]) -> None:
    with pytest.raises(UsageError):
        hook.run(argv)
    assert hook.main(argv) == 3
