"""Jobs submitted with `--requeue=expedite` under hp-srun: Slurm's fastest requeue, and each of its traps."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpkit.paths import paths
from hpkit.sandbox.cluster import Cluster
from hpkit.sandbox.training import Plan, Run
from tests.slurm.test_e2e import HEAD, PLAIN, STEP, drained
from tests.slurm.test_fast_restart import FAILS, PROGRESS
from tests.slurm.test_hp_srun import AFTER, Jobs

EXPEDITE = ("--requeue=expedite", "--exclusive", "--open-mode=append", "--ntasks-per-node=1")
EXEC = f"{HEAD}exec {STEP}\n"
PLAN = Plan(steps=24, save_every=4, step_s=0.3, save_s=0.3)
Tell = Callable[[str, float], None]


@pytest.fixture
def able(cluster: Cluster) -> None:
    """Only where the running Slurm can."""
    found = cluster.client.abilities()
    if not found.expedited_requeue:
        pytest.skip(
            f"Slurm {found.release} has no expedited requeue; 25.11 and newer do, where it is enabled"
        )


@pytest.fixture
def jobs(cluster: Cluster, able: None) -> Iterator[Jobs]:
    yield Jobs(cluster)


@pytest.fixture
def run(cluster: Cluster, able: None, request: pytest.FixtureRequest) -> Iterator[Run]:
    """A run in a folder of its own; its log is shown when the test fails."""
    made = Run(cluster, "".join(c if c.isalnum() else "-" for c in request.node.name), PLAN)
    yield made
    print("\n".join(made.log()))


@pytest.fixture
def tell(record_property: Callable[[str, object], None], request: pytest.FixtureRequest) -> Tell:
    """Prints and records the seconds from the fault to the step running again."""

    def told(way: str, seconds: float) -> None:
        print(f"{request.node.name}: {way}: running again {seconds:.2f} s after the fault")
        record_property("recovery_s", round(seconds, 2))

    return told


def broken(run: Run) -> tuple[str, float]:
    """Break the job's last node once there is a checkpoint; the node, and when."""
    run.event("saved", step=4)
    bad = run.nodes()[-1]
    at = time.time()
    run.cluster.brk(bad, "gpu-lost")
    return bad, at


def again(run: Run, at: float) -> float:
    """Wait for the training to start once more, at a checkpoint; seconds since `at`."""
    started = run.event("start", after=at)
    assert started["step"] >= 4 and started["origin"].endswith(f"step-{started['step']}")
    return float(started["wall"]) - at


def exit_code(cluster: Cluster, job: str) -> str:
    found = re.search(r" ExitCode=(\S+)", cluster.root("scontrol", "show", "job", job))
    assert found
    return found[1]


def said(run: Run, *parts: str) -> None:
    """hp-srun said each of these in a line of its own."""
    lines = [line for line in run.log() if line.startswith("hp-srun:")]
    for part in parts:
        assert [line for line in lines if part in line], f"not said: {part}"


def test_the_environment_asks_for_it_on_any_release(cluster: Cluster) -> None:
    """As the template tells: a line in the script, or an option, is refused by releases that do not know it."""
    script = "#!/bin/sh\n#SBATCH --requeue\n#SBATCH --hold\ntrue\n"
    job = cluster.job(cluster.submit(script, env={"SBATCH_REQUEUE": "expedite"}))
    assert job.requeue and job.expedited is cluster.client.abilities().expedited_requeue


def test_the_exit_code_puts_the_job_back(run: Run, tell: Tell) -> None:
    cluster = run.cluster
    run.submit(*EXPEDITE, "--nodes=3")  # the template, which execs hp-srun
    bad, at = broken(run)
    tell("exit code", again(run, at))
    said(
        run,
        "if a node fails, the job has an expedited requeue",
        f"because {bad} is drained and its epilog fails",
    )
    assert run.job().restarts == 1 and bad not in run.nodes()
    assert "gpu" in drained(cluster, bad), "the drain keeps our reason, though the epilog failed"
    told = [Path(cluster.state.node(n), "hpkit.log").read_text() for n in cluster.names]
    assert sum(f"event=expedited job={run.job_id}" in text for text in told) == 3
    cluster.wait(run.job_id, "COMPLETED")
    from hpkit.commands.attempts import show

    (folder,) = Path(run.folder).parent.glob(".hpkit")
    first, second = show(run.job_id, [str(folder)]).document["attempts"]
    assert (first["way"], second["attempt"], second["restart"]) == ("exit code", 2, 1)


@pytest.fixture
def slow_epilog(cluster: Cluster) -> Iterator[None]:
    """The epilog of n1 takes longer than those of the other nodes."""
    with epilog_with(cluster, '[ "$SLURMD_NODENAME" = n1 ] && /bin/sleep 1.5\n'):
        yield


@pytest.fixture
def epilog_of_n1_only(cluster: Cluster) -> Iterator[None]:
    """On all other nodes hpkit's epilog is missing."""
    with epilog_with(cluster, '[ "$SLURMD_NODENAME" = n1 ] || exit 0\n'):
        yield


@contextmanager
def epilog_with(cluster: Cluster, line: str) -> Iterator[None]:
    """The epilog begins with one more line."""
    script = Path(cluster.folder, "hooks/epilog/hpkit")
    text = script.read_text()
    script.write_text(text.replace("umask 022\n", f"umask 022\n{line}", 1))
    yield
    script.write_text(text)


@contextmanager
def busy_queue(cluster: Cluster) -> Iterator[None]:
    """Let Slurm look for a job to start as often as it ever does: one is submitted all the time."""
    over = threading.Event()

    def submit() -> None:
        while not over.wait(0.2):
            cluster.submit("#!/bin/sh\ntrue\n", "--nodes=4", "--exclusive")

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.usefixtures("slow_epilog")
def test_another_job_does_not_get_the_nodes_meanwhile(jobs: Jobs, cluster: Cluster) -> None:
    """Slurm gives each node away when its own epilog has ended; so all of them end at the same moment."""
    task = "sh -c 'echo up; until [ -e {flag} ]; do sleep 0.1; done; exit 7'"  # no task is killed, no daemon lingers
    body = f"[ -z $SLURM_RESTART_COUNT ] || exec sleep 5\nexec hp-srun --auto-resume --kill-on-bad-exit=0 {task}\n"
    job = jobs.submit(body, *EXPEDITE, "--nodes=3", "--gres=gpu:8")
    jobs.until(job, "up")
    waiting = cluster.submit("#!/bin/sh\nsleep 600\n", "--nodes=2", "--exclusive")
    with busy_queue(cluster):
        cluster.brk(cluster.client.hostnames(cluster.job(job).nodes)[2], "gpu-lost")
        jobs.fail()
        back = cluster.until(
            lambda: cluster.job(job), lambda j: j.restarts == 1 and "RUNNING" in j.flags, 60, job
        )
    assert "PENDING" in cluster.job(waiting).flags, (
        f"the other job took nodes meanwhile; ours has {back.nodes}"
    )
    assert "before all others" in jobs.text(job)


def test_a_script_that_goes_on_is_requeued_and_not_completed(run: Run, tell: Tell) -> None:
    run.submit(*EXPEDITE, "--nodes=2", script=PLAIN + "exit 0\n")
    bad, at = broken(run)
    tell("requeue by hp-srun", again(run, at))
    said(
        run,
        "but not expedited: the batch script may go on",
        "requeueing job",
        "as soon as its nodes are free",
    )
    assert run.text("after") == "", "the rest of the script ran"
    run.cluster.wait(run.job_id, "COMPLETED")
    assert run.job().restarts == 1 and bad not in run.nodes()
    assert run.text("after") == "after 1 0\n"


@pytest.mark.parametrize("script", [EXEC, f"{HEAD}{STEP}\n"], ids=["exec", "last"])
def test_a_users_bug_ends_the_job_and_does_not_hold_it(run: Run, script: str) -> None:
    run.submit(*EXPEDITE, "--nodes=2", script=script, options=("--die-at=3",))
    job = run.cluster.wait(run.job_id, ("FAILED", "REQUEUE_HOLD", "COMPLETED"))
    assert job.flags == {"FAILED"} and job.restarts == 0
    assert exit_code(run.cluster, run.job_id) == "3:0"
    said(run, "cause: user", "its expedited requeue is switched off")


def test_a_later_step_of_the_script_is_requeued_all_the_same(jobs: Jobs, cluster: Cluster) -> None:
    """What the first step's hp-srun switched off, the second one's switches on again."""
    task = (
        "sh -c 'echo up; until [ -e {flag} ]; do sleep 0.1; done; [ $SLURM_PROCID = 0 ] || exit 7; sleep 60'"
    )
    body = f"[ -z $SLURM_RESTART_COUNT ] || exit 0\nhp-srun --auto-resume sh -c 'exit 3'\nhp-srun --auto-resume {task}"
    job = jobs.submit(body + AFTER, *EXPEDITE, "--nodes=2")
    jobs.until(job, "up")
    assert "is switched off" in jobs.text(job) and cluster.job(job).requeue
    cluster.brk(cluster.client.hostnames(cluster.job(job).nodes)[1], "gpu-lost")
    jobs.fail()
    done = cluster.wait(job, ("COMPLETED", "FAILED", "REQUEUE_HOLD"))
    assert (done.flags, done.restarts) == ({"COMPLETED"}, 1)


def test_with_a_full_drain_budget_the_job_is_not_held(run: Run, tell: Tell) -> None:
    """The epilog does not fail then: a requeue by the exit code would end in a hold."""
    for name in run.cluster.names:
        own = paths(run.cluster.state.node(name))
        Path(own.etc, "conf.d", "test.toml").write_text("[drain]\nmax_nodes = 0\nmax_share = 0.0\n")
    run.submit(*EXPEDITE, "--nodes=2", script=EXEC)
    bad, at = broken(run)
    tell("requeue by hp-srun", again(run, at))
    said(run, "not by its exit code: hpkit may not drain it: 0 of 4 nodes of the cluster drained")
    assert run.job().restarts == 1 and bad not in run.nodes(), "it was excluded instead"
    assert "DRAIN" not in run.cluster.node(bad).flags
    run.cluster.wait(run.job_id, "COMPLETED")


NOTED = """python3 - <<'END'
import json, os
for name in "{nodes}".split():
    path = os.environ["HPKIT_ROOT"].replace("%n", name) + "/root/run/hpkit/suspects/job-" + os.environ["SLURM_JOB_ID"]
    with open(path, "w") as file:
        json.dump({"job": os.environ["SLURM_JOB_ID"], "uptime": 1.0}, file)
END
"""


@pytest.mark.usefixtures("epilog_of_n1_only")
def test_a_job_that_slurm_holds_though_its_node_is_drained_is_released(
    cluster: Cluster, jobs: Jobs, tell: Tell
) -> None:
    """No epilog failed, since the drained node has none: the job would wait for a person."""
    body = NOTED.replace("{nodes}", " ".join(cluster.names))
    wait = "echo noted\nuntil [ -e {flag} ]; do sleep 0.1; done\ndate +%s.%N\nexit 7\n"
    job = jobs.submit(
        f"[ -z $SLURM_RESTART_COUNT ] || exit 0\n{body}{wait}", *EXPEDITE, "--nodes=2", "--nodelist=n1"
    )
    jobs.until(job, "noted")
    bad = cluster.client.hostnames(cluster.job(job).nodes)[1]
    cluster.root("scontrol", "update", f"nodename={bad}", "state=drain", "reason=hpkit: gpu.count: test")
    jobs.fail()
    done = cluster.wait(job, ("COMPLETED", "FAILED"))
    assert ("COMPLETED" in done.flags, done.restarts) == (True, 1)
    tell("hold released", (done.start_at or 0.0) - float(jobs.text(job).split()[-1]))
    log = Path(cluster.state.node("n1"), "hpkit.log").read_text()
    assert f"event=helper-ended helper=start job={job} outcome=released" in log


def test_a_job_on_healthy_nodes_stays_held(cluster: Cluster, jobs: Jobs) -> None:
    """Else a script with a bug would run for ever, as soon as its owner has left a note."""
    body = NOTED.replace("{nodes}", " ".join(cluster.names))
    job = jobs.submit(f"{body}exit 7\n", *EXPEDITE, "--nodes=2", "--nodelist=n1")
    log, told = Path(cluster.state.node("n1"), "hpkit.log"), f"event=helper-ended helper=start job={job}"
    cluster.until(log.read_text, lambda text: told in text, 60, "the helper's end")
    assert "no node of it is drained" in log.read_text().partition(told)[2].partition("\n")[0]
    held = cluster.job(job)
    assert (held.flags, held.restarts) == ({"REQUEUE_HOLD"}, 1)


@pytest.mark.parametrize("who", ["root", "user"])
def test_a_persons_hold_is_left_alone(cluster: Cluster, jobs: Jobs, who: str) -> None:
    body = NOTED.replace("{nodes}", " ".join(cluster.names))
    job = jobs.submit(body + "echo noted\nsleep 60\n", *EXPEDITE, "--nodes=2")
    jobs.until(job, "noted")
    if who == "root":
        cluster.root("scontrol", "requeuehold", job)
    else:
        assert cluster.run_as_user(["scontrol", "requeuehold", job]).ok
    ended = Path(cluster.state.node("n1"), "hpkit.log")
    told = f"event=helper-ended helper=start job={job}"
    cluster.until(ended.read_text, lambda text: told in text, 60, "the helper's end")
    assert "outcome=released" not in ended.read_text().partition(told)[2].partition("\n")[0]
    held = cluster.job(job)
    assert held.flags == {"PENDING"} and held.priority == 0, "as 26.05 shows such a hold"


RESTARTS = 10


@pytest.mark.long
def test_restarts_without_a_start_time_lose_nothing(cluster: Cluster, jobs: Jobs) -> None:
    """Older releases revoke the credential of a run that begins in the second in which the former was requeued."""
    task = FAILS.replace("{restarts}", str(RESTARTS))
    body = f"{PROGRESS}hp-srun --auto-resume --hp-resume-on=any {task}"
    job = jobs.submit(body + AFTER, *EXPEDITE, "--nodes=4", "--gres=gpu:8")
    done = cluster.wait(job, ("COMPLETED", "FAILED", "REQUEUE_HOLD"), 280)
    text = jobs.text(job)
    assert (done.flags, done.restarts) == ({"COMPLETED"}, RESTARTS)
    assert "revoked" not in text and "launch failed" not in text
    assert text.count(f"restart {RESTARTS}\n") == 4


def test_two_steps_at_once_do_not_take_each_others_requeue(jobs: Jobs, cluster: Cluster) -> None:
    """The program of one has a bug, which switches the requeue off; then the node of the other fails."""
    task = (
        "sh -c 'echo up; until [ -e {flag} ]; do sleep 0.1; done; [ $SLURM_PROCID = 0 ] || exit 7; sleep 60'"
    )
    bug = "hp-srun --auto-resume --overlap -N1 -n1 sh -c 'sleep 1; exit 3' &\n"
    body = f"[ -z $SLURM_RESTART_COUNT ] || exit 0\n{bug}hp-srun --auto-resume --overlap {task} &\nwait\n"
    job = jobs.submit(body, *EXPEDITE, "--nodes=2")
    jobs.until(job, "is switched off")
    cluster.brk(cluster.client.hostnames(cluster.job(job).nodes)[1], "gpu-lost")
    jobs.fail()
    done = cluster.wait(job, ("COMPLETED", "FAILED", "REQUEUE_HOLD"))
    assert (done.flags, done.restarts) == ({"COMPLETED"}, 1)


@pytest.mark.long
def test_at_the_time_limit_the_job_is_not_held(jobs: Jobs, cluster: Cluster) -> None:
    """Slurm goes by the code of a script that it ends itself, too: without us the job is held with a bad one."""
    body = "exec {run} sh -c 'trap \"exit 5\" TERM; while :; do sleep 0.2; done'\n"
    words = ("--nodes=1", "--time=1", *EXPEDITE)
    ours = jobs.submit(body.replace("{run}", "hp-srun --auto-resume"), *words)
    plain = jobs.submit(body.replace("{run}", "srun"), *words)
    over = ("TIMEOUT", "REQUEUE_HOLD", "FAILED")
    assert cluster.wait(ours, over, 150).flags == {"TIMEOUT"}
    assert "ending with SIGTERM: with code 5" in jobs.text(ours)
    assert cluster.wait(plain, over, 30).flags == {"REQUEUE_HOLD"}, "the trap is gone from this release"


def test_a_mistake_in_the_command_line_does_not_hold_the_job(jobs: Jobs, cluster: Cluster) -> None:
    job = jobs.submit("exec hp-srun --auto-resume --hp-answer=soon true\n", *EXPEDITE, "--nodes=1")
    assert cluster.wait(job, ("FAILED", "REQUEUE_HOLD")).flags == {"FAILED"}
    assert exit_code(cluster, job) == "3:0"


@pytest.mark.long
def test_a_node_that_dies_before_its_epilog_holds_the_job_only_until_slurm_gives_it_up(
    cluster: Cluster, jobs: Jobs
) -> None:
    task = (
        "sh -c 'echo up; until [ -e {flag} ]; do sleep 0.1; done; [ $SLURM_PROCID = 0 ] || exit 7; sleep 60'"
    )
    body = f"[ -z $SLURM_RESTART_COUNT ] || exit 0\nexec hp-srun --auto-resume {task}\n"
    job = jobs.submit(body, *EXPEDITE, "--nodes=2")
    cluster.until(lambda: jobs.text(job), lambda text: text.count("up\n") == 2, 60, "both tasks")
    first, bad = cluster.client.hostnames(cluster.job(job).nodes)
    cluster.brk(bad, "gpu-lost")
    jobs.fail()
    jobs.until(job, "ending with code 7")
    os.kill(cluster.state.processes[bad].pid, signal.SIGKILL)
    done = cluster.wait(job, ("COMPLETED", "FAILED", "CANCELLED"), 150)
    assert (done.flags, done.restarts) == ({"COMPLETED"}, 1)
    log = Path(cluster.state.node(first), "hpkit.log").read_text()
    assert f"event=helper-ended helper=start job={job} outcome=released" in log
