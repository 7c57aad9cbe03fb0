"""The promises of hpkit, end to end: real Slurm, real hooks, a real training program under hp-srun."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpkit.paths import paths
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox.cluster import Cluster
from hpkit.sandbox.training import Plan, Run, template

OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
STEP = 'hp-srun --auto-resume=1 --hp-checkpoint-dir="$CHECKPOINTS" $TRAIN --dir "$CHECKPOINTS" --resume {checkpoint}'
HEAD = '#!/bin/bash\nmkdir -p "$CHECKPOINTS"\n'
AFTER = 'echo "after ${SLURM_RESTART_COUNT:-0} $?" >>"$CHECKPOINTS/after"\n'
PLAIN = f"{HEAD}{STEP}\n{AFTER}"
TRAP = f"{HEAD}trap 'echo TERM >>\"$CHECKPOINTS/after\"' TERM\n{STEP}\n{AFTER}"
TWO = ("--nodes=2", "--ntasks-per-node=1", "--exclusive", "--requeue", "--open-mode=append")
GIVEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "template": ("", ()),
    "plain": (PLAIN, TWO),
    "trap": (TRAP, TWO),
}
PLAN = Plan()


@pytest.fixture(scope="module")
def expected(session_cluster: Cluster) -> str:
    """The result of an uninterrupted run."""
    return Run(session_cluster, "uninterrupted", PLAN).alone()


@pytest.fixture
def run(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A run in a folder of its own; its log is shown when the test fails."""
    made = Run(cluster, "".join(c if c.isalnum() else "-" for c in request.node.name), PLAN)
    yield made
    print("\n".join(made.log()))
    print(made.text("progress.jsonl"))
    strange = [line for line in made.log() if line.startswith("hp-srun:") and "Error:" in line]
    assert not strange, "hp-srun fell over something of its own"


def break_while_saving(run: Run, step: int, after: float = 0.0, fault: str = "gpu-lost") -> tuple[str, float]:
    """Give the job's last node a fault while the checkpoint of `step` is half-written; the node, and when."""
    run.event("saving", after, step)
    bad = run.nodes()[-1]
    at = time.time()
    run.cluster.brk(bad, fault)
    return bad, at


def drained(cluster: Cluster, name: str) -> str:
    """Wait until a node is drained by hpkit; its reason."""
    return cluster.wait_node(name, lambda node: "DRAIN" in node.flags, 30).reason


def hook(cluster: Cluster, name: str, which: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a hook of a node as slurmd does: almost no environment. Its budget is the deadline."""
    given = {"SLURMD_NODENAME": name, "SLURM_JOB_ID": "1", "SLURM_JOB_UID": "1", **env}
    path = f"{cluster.folder}/hooks/{which}"
    return subprocess.run([path], env=given, capture_output=True, text=True, timeout=25, check=False)


def forget_verdict(cluster: Cluster, name: str) -> None:
    """So that the next hook must look for itself."""
    Path(paths(cluster.state.node(name)).run, "verdict").unlink(missing_ok=True)


def configure(cluster: Cluster, text: str) -> None:
    """Add to every node's configuration; taken away after the test."""
    for name in cluster.names:
        Path(paths(cluster.state.node(name)).etc, "conf.d", "test.toml").write_text(text)


def assert_resumed(run: Run, bad: str, fault_at: float, step: int, expected: str) -> None:
    """The job went on elsewhere from the newest complete step and came to the right result."""
    start = run.event("start", fault_at)
    assert start["step"] == step
    assert bad not in start["nodes"]
    done = run.cluster.wait(run.job_id, OVER, 60)
    assert "COMPLETED" in done.flags
    assert run.result() == expected


@pytest.mark.parametrize("script", [pytest.param("template", marks=pytest.mark.smoke), "plain", "trap"])
def test_a_lost_gpu_is_survived(
    run: Run, expected: str, script: str, record_property: Callable[[str, object], None]
) -> None:
    text, args = GIVEN[script]
    run.submit(*args, script=text)
    bad, at = break_while_saving(run, 8)
    assert drained(run.cluster, bad).startswith("hpkit: gpu.count: ")
    assert_resumed(run, bad, at, 4, expected)
    again = run.event("step", run.event("start", at)["wall"])
    record_property("recovery_s", round(again["wall"] - at, 1))
    assert run.job().restarts == 1
    if script != "template":
        assert run.text("after") == "after 1 0\n", "nothing after hp-srun ran in the attempt that failed"


def test_a_second_failure_after_the_first_is_survived(run: Run, expected: str) -> None:
    run.submit()
    first, at = break_while_saving(run, 8)
    again = run.event("step", at)
    second, at = break_while_saving(run, 12, again["wall"])
    assert second != first
    assert_resumed(run, second, at, 8, expected)
    assert run.job().restarts == 2
    assert {drained(run.cluster, name)[:18] for name in (first, second)} == {"hpkit: gpu.count: "}


def test_an_array_task_is_survived(run: Run, expected: str) -> None:
    array = run.submit("--array=7")
    run.folder, log = f"{run.folder}/task-7", run.folder
    run.job_id = f"{array}_7"
    bad, at = break_while_saving(run, 8)
    assert_resumed(run, bad, at, 4, expected)
    assert Path(f"{log}.out").exists()


def test_a_competing_job_takes_the_nodes_first(run: Run, expected: str) -> None:
    cluster = run.cluster
    run.submit()
    run.event("step")
    competitor = cluster.submit("#!/bin/sh\nsleep 4\n", "--nodes=3", "--exclusive")
    bad, at = break_while_saving(run, 8)
    assert_resumed(run, bad, at, 4, expected)
    assert "COMPLETED" in cluster.wait(competitor, OVER).flags


def test_a_job_as_large_as_the_partition_waits_for_the_healed_node(run: Run, expected: str) -> None:
    cluster = run.cluster
    run.submit("--nodes=4")
    bad, at = break_while_saving(run, 8)
    drained(cluster, bad)
    cluster.wait(run.job_id, "PENDING")
    cluster.heal(bad)
    cluster.wait_node(bad, lambda node: "DRAIN" not in node.flags, 40)
    start = run.event("start", at)
    assert (start["step"], start["nodes"]) == (4, list(cluster.names))
    assert "COMPLETED" in cluster.wait(run.job_id, OVER, 60).flags
    assert run.result() == expected


@pytest.mark.parametrize("gres", ["--gres=gpu:8", "--gres=none"])
def test_a_bug_of_the_user_ends_the_job_with_its_own_code(run: Run, gres: str) -> None:
    run.submit(gres, options=["--die-at=3"])
    done = run.cluster.wait(run.job_id, OVER, 60)
    text = run.cluster.root("scontrol", "show", "job", run.job_id)
    assert "FAILED" in done.flags
    assert "ExitCode=3:0" in text
    assert done.restarts == 0
    assert not [node.name for node in run.cluster.client.nodes() if "DRAIN" in node.flags]
    assert any("cause: user" in line for line in run.log())


@pytest.mark.parametrize("delay_s", [0.0, 0.2, 0.4, 0.6, 1.0, 2.0])
def test_a_cancelled_job_stays_cancelled(run: Run, delay_s: float) -> None:
    cluster = run.cluster
    run.submit()
    break_while_saving(run, 4)
    time.sleep(delay_s)
    cluster.run_as_user(["scancel", run.job_id])
    begun = len(run.events("start"))
    cluster.wait(run.job_id, "CANCELLED", 30)
    time.sleep(3)
    assert "CANCELLED" in run.job().flags
    assert len(run.events("start")) == begun


def test_a_healthy_job_that_is_cancelled_is_not_requeued(run: Run) -> None:
    run.submit()
    run.event("step")
    run.cluster.run_as_user(["scancel", run.job_id])
    assert run.cluster.wait(run.job_id, OVER, 30).restarts == 0
    assert "CANCELLED" in run.job().flags


def test_no_requeue_is_obeyed_and_explained(run: Run) -> None:
    run.submit("--no-requeue")
    bad, _ = break_while_saving(run, 4)
    done = run.cluster.wait(run.job_id, OVER, 60)
    assert ("FAILED" in done.flags, done.restarts) == (True, 0)
    assert "ExitCode=1:0" in run.cluster.root("scontrol", "show", "job", run.job_id)
    assert any("not requeued" in line and "sbatch --requeue" in line for line in run.log())
    drained(run.cluster, bad)


def test_an_xid_that_scrolled_away_keeps_the_node_out_until_a_reboot(cluster: Cluster) -> None:
    cluster.brk("n3", "xid:79@5")
    reason = drained(cluster, "n3")
    assert reason.startswith("hpkit: gpu.xid: ")
    cluster.brk("n3", "scroll")
    rounds(cluster, "n3", 2)
    cluster.heal("n3", reboot=False)
    rounds(cluster, "n3", 2)
    node = cluster.node("n3")
    assert ("DRAIN" in node.flags, node.reason) == (True, reason)
    cluster.heal("n3")
    cluster.wait_node("n3", lambda node: "DRAIN" not in node.flags, 40)


def rounds(cluster: Cluster, name: str, count: int) -> None:
    """So many background rounds of a node."""
    for _ in range(count):
        assert hook(cluster, name, "prolog/hpkit-health").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("which", ["prolog/hpkit", "epilog/hpkit", "prolog/hpkit-health"])
def test_a_hook_without_a_controller_does_no_harm(cluster: Cluster, which: str, number: int) -> None:
    os.kill(cluster.state.processes["slurmctld"].pid, number)
    cluster.brk("n4", "gpu-lost")
    forget_verdict(cluster, "n4")
    ran = hook(cluster, "n4", which, SLURM_JOB_EXIT_CODE="256", SLURM_JOB_EXIT_CODE2="1:0")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    cluster.heal("n4")


@pytest.mark.parametrize("which", ["prolog/hpkit", "epilog/hpkit", "prolog/hpkit-health"])
def test_a_tool_that_ignores_sigterm_does_not_hold_a_hook(cluster: Cluster, which: str) -> None:
    cluster.brk("n4", "hang:nvml")
    configure(cluster, "[hooks.health]\nsuite = 'health'\nbudget_s = 6.0\n")
    forget_verdict(cluster, "n4")
    ran = hook(cluster, "n4", which, SLURM_JOB_EXIT_CODE="256", SLURM_JOB_EXIT_CODE2="1:0")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "DRAIN" not in cluster.node("n4").flags


@pytest.mark.parametrize("state", ["drain", "fail", "down"])
def test_what_an_administrator_did_to_a_node_stays(cluster: Cluster, state: str) -> None:
    cluster.root("scontrol", "update", "nodename=n3", f"state={state}", "reason=bob: broken fan")
    cluster.wait_node("n3", lambda node: node.flags != frozenset({"IDLE"}))
    before = cluster.node("n3")
    cluster.brk("n3", "gpu-lost")
    for which in ("prolog/hpkit", "epilog/hpkit", "prolog/hpkit-health"):
        forget_verdict(cluster, "n3")
        hook(cluster, "n3", which, SLURM_JOB_EXIT_CODE="256", SLURM_JOB_EXIT_CODE2="1:0")
    hpkit(cluster, "undrain", "n[1-4]")
    cluster.heal("n3")
    rounds(cluster, "n3", 3)
    after = cluster.node("n3")
    assert (after.flags, after.reason, after.reason_at) == (before.flags, before.reason, before.reason_at)


def hpkit(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    """An administrator's hpkit command, with the nodes' configuration, which says where this Slurm is."""
    import sys

    code = "import sys; from hpkit.cli import main; sys.exit(main())"
    config = f"{paths(cluster.state.node('n1')).etc}/hpkit.toml"
    env = {**os.environ, "SLURM_CONF": cluster.state.conf, "HPKIT_CONFIG": config}
    return subprocess.run(
        [sys.executable, "-c", code, *words], env=env, capture_output=True, text=True, timeout=60
    )


def test_undrain_brings_back_what_hpkit_took_out(cluster: Cluster) -> None:
    cluster.brk("n2", "gpu-lost")
    drained(cluster, "n2")
    cluster.heal("n2", reboot=False)
    ran = hpkit(cluster, "undrain", "n2")
    assert ran.returncode == 0, ran.stderr
    assert "DRAIN" not in cluster.node("n2").flags


def die(run: Run) -> None:
    """Make the program die as from a hardware error, wherever it is."""
    run.cluster.run_as_user(["touch", f"{run.folder}/die"])


def test_an_xid_that_only_root_sees_counts_as_hardware(run: Run, expected: str) -> None:
    run.submit(options=[f"--die-when={run.folder}/die"])
    run.event("saved", step=4)
    bad = run.nodes()[0]
    at = time.time()
    die(run)
    run.cluster.brk(bad, "xid:79@2")
    run.cluster.wait(run.job_id, ("PENDING", "COMPLETING"), 30)
    run.cluster.run_as_user(["rm", f"{run.folder}/die"])
    assert_resumed(run, bad, at, 4, expected)
    assert any("cause: hardware" in line and "gpu.xid" in line for line in run.log())


def test_without_an_answer_of_root_the_cause_is_unknown(run: Run, silent: None) -> None:
    run.submit(options=[f"--die-when={run.folder}/die"], env={"HPKIT_ANSWER": "2"})
    run.event("saved", step=4)
    run.cluster.brk(run.nodes()[0], "xid:79@2")
    die(run)
    assert "cause: unknown" in run.await_("the cause is told", lambda: cause(run))
    run.await_("an unknown cause is retried", lambda: run.job().restarts or None)


def cause(run: Run) -> str | None:
    """What hp-srun said about the cause."""
    return next((line for line in run.log() if "hp-srun: cause:" in line), None)


@pytest.mark.parametrize("nohold", [True, False])
def test_a_prolog_that_rejects_a_node_does_not_leave_the_job_held(
    session_cluster: Cluster, nohold: bool
) -> None:
    folder = f"{session_cluster.folder}-held"
    second = clusters.up(folder, nodes=2, gpus=8, nohold=nohold, health_interval_s=3600)
    try:
        second.brk("n1", "gpu-lost")
        forget_verdict(second, "n1")
        job = second.submit("#!/bin/sh\nsleep 1\n", "--nodes=1")
        assert drained(second, "n1").startswith("hpkit: gpu.count: ")
        done = second.wait(job, "COMPLETED", 40)
        assert (done.nodes, done.restarts) == ("n2", 1)
    finally:
        print(Path(second.state.node("n1"), "hpkit.log").read_text())
        second.down()


def test_the_template_says_what_to_set(cluster: Cluster) -> None:
    job = cluster.submit(template(), "--gres=gpu:1", f"--output={cluster.folder}/home/empty.out")
    assert "FAILED" in cluster.wait(job, OVER).flags
    assert "set TRAIN to the command" in Path(f"{cluster.folder}/home/empty.out").read_text()


def test_a_person_who_undrains_a_node_accepts_what_it_failed_for(cluster: Cluster) -> None:
    cluster.brk("n3", "xid:79@5")
    drained(cluster, "n3")
    cluster.brk("n3", "scroll")
    cluster.heal("n3", reboot=False)
    rounds(cluster, "n3", 1)  # the round that drained has looked again
    assert hpkit(cluster, "undrain", "n3").returncode == 0
    rounds(cluster, "n3", 2)
    assert "DRAIN" not in cluster.node("n3").flags, "the kept failure is accepted"
    cluster.brk("n3", "gpu-lost")
    assert drained(cluster, "n3").startswith("hpkit: gpu.count: ")
