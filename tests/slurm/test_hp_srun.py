"""What hp-srun relies on in Slurm, and what it does there: measured on the real thing."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit.paths import paths
from hpkit.resume import evidence
from hpkit.sandbox.cluster import Cluster

OVER = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
TWO = ("-N2", "--ntasks-per-node=1", "--gres=gpu:8", "--open-mode=append")
AFTER = '\nrc=$?\necho "after $rc"\nexit $rc\n'
# Runs until a file appears; then the second task exits 7. Attempts after the first end well.
TASK = """sh -c 'echo "task $SLURM_PROCID attempt $HPKIT_ATTEMPT on $SLURMD_NODENAME"
[ "$HPKIT_ATTEMPT" = 1 ] || exit 0
until [ -e {flag} ]; do sleep 0.1; done
[ $SLURM_PROCID = 1 ] && exit 7
sleep 60'"""


class Jobs:
    """Submits jobs of hp-srun and reads what they printed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.home = f"{cluster.folder}/home"
        self.flag = f"{self.home}/flag-{os.urandom(4).hex()}"

    def submit(self, body: str, *args: str) -> str:
        """A batch script; {flag} in it is the file that `fail` makes."""
        return self.cluster.submit("#!/bin/bash\n" + body.replace("{flag}", self.flag), *args)

    def fail(self) -> None:
        """Let the tasks that wait for the flag fail."""
        Path(self.flag).touch()
        os.chmod(self.flag, 0o644)

    def text(self, job: str) -> str:
        path = Path(self.home, f"slurm-{job}.out")
        return path.read_text() if path.exists() else ""

    def until(self, job: str, part: str, timeout_s: float = 150.0) -> str:
        """Wait until the job has printed this."""
        return self.cluster.until(lambda: self.text(job), lambda text: part in text, timeout_s, f"job {job}")

    def over(self, job: str) -> str:
        """Wait for the job's end; what it printed."""
        self.cluster.wait(job, OVER, 200)
        return self.text(job)


@pytest.fixture
def jobs(cluster: Cluster) -> Iterator[Jobs]:
    yield Jobs(cluster)


def user_env(cluster: Cluster, job: str) -> dict[str, str]:
    return {**cluster.env(), "SLURM_JOB_ID": job}


def asked(cluster: Cluster, job: str, nodes: list[str], answer_s: float) -> set[str]:
    """The nodes that answer a witness step of this job, asked as its user."""
    code = (
        "import json, os, sys; sys.path.insert(0, sys.argv[1]); from hpkit.resume.evidence import ask; "
        "print(json.dumps(sorted(ask(sys.argv[3:], os.environ, float(sys.argv[2])))))"
    )
    words = [cluster.state.python, "-I", "-c", code, f"{cluster.folder}/lib", str(answer_s), *nodes]
    ran = cluster.run_as_user(words, env=user_env(cluster, job), timeout_s=60)
    assert ran.ok, ran.stderr
    return set(json.loads(ran.text))


def test_the_witness_step_runs_beside_a_step_that_holds_everything(cluster: Cluster, jobs: Jobs) -> None:
    job = jobs.submit(
        "srun --gres=gpu:8 sleep 60\n", "-N4", "--exclusive", "--gres=gpu:8", "--ntasks-per-node=2"
    )
    cluster.wait(job, "RUNNING")
    assert asked(cluster, job, list(cluster.names), 10.0) == set(cluster.names)


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_the_others_answer_beside_a_dead_slurmd(cluster: Cluster, jobs: Jobs, number: signal.Signals) -> None:
    job = jobs.submit("srun -N4 true && echo ready\nsleep 60\n", "-N4")
    jobs.until(job, "ready")  # every prolog has ended: until then no step starts anywhere
    os.kill(cluster.state.processes["n3"].pid, number)
    assert asked(cluster, job, list(cluster.names), 4.0) == {"n1", "n2", "n4"}


def test_a_step_of_too_many_nodes_answers_for_none_so_nodes_that_are_down_are_left_out(
    cluster: Cluster, jobs: Jobs
) -> None:
    job = jobs.submit("sleep 60\n", "-N4", "--no-kill")
    cluster.wait(job, "RUNNING")
    cluster.root("scontrol", "update", "nodename=n4", "state=down", "reason=test")
    assert asked(cluster, job, list(cluster.names), 2.0) == set()
    assert asked(cluster, job, ["n1", "n2", "n3"], 2.0) == {"n1", "n2", "n3"}


def test_the_own_code_of_the_first_task_comes_out(jobs: Jobs) -> None:
    body = "hp-srun --auto-resume sh -c '[ $SLURM_PROCID = 1 ] && exit 3; sleep 60'" + AFTER
    job = jobs.submit(body, *TWO)
    text = jobs.over(job)
    assert "after 3" in text and "cause: user" in text and "task 1 on" in text
    assert jobs.cluster.job(job).restarts == 0


@pytest.mark.parametrize(
    "script",
    [
        "hp-srun --auto-resume {task}" + AFTER,
        "exec hp-srun --auto-resume {task}" + AFTER,
        "trap 'echo trapped' TERM\nhp-srun --auto-resume {task}" + AFTER,
        "trap '' TERM\n(hp-srun --auto-resume {task}; echo inner $?)" + AFTER,
        "hp-srun --auto-resume {task} &\nwait $!" + AFTER,
    ],
    ids=["plain", "exec", "trap", "subshell", "background"],
)
def test_nothing_of_the_script_runs_after_a_requeue(cluster: Cluster, jobs: Jobs, script: str) -> None:
    job = jobs.submit(script.replace("{task}", TASK), *TWO)
    jobs.until(job, "task 1 attempt 1")
    bad = cluster.client.hostnames(cluster.job(job).nodes)[1]
    cluster.brk(bad, "gpu-lost")
    jobs.fail()
    text = jobs.over(job)
    before, _, again = text.partition("attempt 2 of job")
    assert "cause: hardware" in before and bad in before
    assert not [line for line in before.splitlines() if line.split()[0] in ("trapped", "inner", "after")]
    assert f"on {bad}\n" not in again
    done = cluster.job(job)
    assert "COMPLETED" in done.flags and done.restarts == 1


def test_a_time_limit_is_no_fault(cluster: Cluster, jobs: Jobs) -> None:
    job = jobs.submit("trap 'echo TERM' TERM\nhp-srun --auto-resume sleep 300" + AFTER, *TWO)
    cluster.wait(job, "RUNNING")
    cluster.root("scontrol", "update", f"jobid={job}", "endtime=now+2")
    text = jobs.over(job)
    done = cluster.job(job)
    assert "TIMEOUT" in done.flags and done.restarts == 0
    assert "cause: scheduler" in text and "time limit" in text


COUNT = """sh -c 'trap "echo got $SLURM_PROCID" USR1; echo up; i=0
while [ $i -lt 100 ]; do sleep 0.1; i=$((i+1)); done'"""


@pytest.mark.parametrize(
    ("script", "how"),
    [
        ("hp-srun --auto-resume {task} &\ntrap 'kill -USR1 $!' USR1\nwait; wait" + AFTER, ("--batch",)),
        ("exec hp-srun --auto-resume {task}" + AFTER, ("--batch",)),
        ("hp-srun --auto-resume {task}" + AFTER, ()),
    ],
    ids=["shell-passes-on", "exec", "to-the-steps"],
)
def test_a_signal_reaches_each_task_once(
    cluster: Cluster, jobs: Jobs, script: str, how: tuple[str, ...]
) -> None:
    job = jobs.submit(script.replace("{task}", COUNT), "-N2", "--ntasks-per-node=1")
    cluster.until(lambda: jobs.text(job), lambda text: text.count("up\n") == 2, 30, "both tasks")
    time.sleep(0.5)  # the shells set their traps before "up", srun its handlers around it
    cluster.root("scancel", "--signal=USR1", *how, job)
    text = jobs.over(job)
    assert sorted(line for line in text.splitlines() if line.startswith("got")) == ["got 0", "got 1"]


@pytest.mark.long  # in observe mode no helper of root's mends a begin time that was lost: two minutes each, then
def test_a_faulty_node_that_nobody_drains_is_excluded_and_let_in_again(cluster: Cluster, jobs: Jobs) -> None:
    for name in cluster.names:
        own = paths(cluster.state.node(name))
        Path(own.etc, "conf.d", "test.toml").write_text('mode = "observe"\n')
    task = TASK.replace('[ "$HPKIT_ATTEMPT" = 1 ] || exit 0', '[ "$HPKIT_ATTEMPT" -lt 3 ] || exit 0')
    task = task.replace("{flag}", "{flag}$HPKIT_ATTEMPT")
    job = jobs.submit(
        f"hp-srun --auto-resume {task}" + AFTER, "-N2", "-x", "n4", "--ntasks-per-node=1", *TWO[2:]
    )
    for attempt, others in (("1", "n3,n4"), ("2", "")):
        jobs.until(job, f"task 1 attempt {attempt}")
        shown = cluster.job(job)
        names = cluster.client.hostnames(shown.nodes)
        excluded = set(cluster.client.hostnames(shown.exc_nodes))
        if attempt == "1":
            assert excluded == {"n4"} and others
            bad = names[1]
        else:
            assert excluded == {"n4", bad} and bad not in names
            assert not cluster.node(bad).flags & {"DRAIN"}
            cluster.heal(bad)
            bad = names[1]
        cluster.brk(bad, "gpu-lost")
        Path(jobs.flag + attempt).touch()
    text = jobs.over(job)
    assert "attempt 3 of job" in text
    assert set(cluster.client.hostnames(cluster.job(job).exc_nodes)) == {"n4", bad}


@pytest.mark.long  # srun itself needs a minute to end a step without the controller
def test_a_controller_that_comes_back_is_asked_again(cluster: Cluster, jobs: Jobs) -> None:
    if cluster.client.abilities().version >= (25, 11):
        pytest.skip(
            "srun waits for the controller to come back before it tells that a task has ended (26.05.5)"
        )
    job = jobs.submit(f"export HPKIT_ANSWER=1\nhp-srun --auto-resume {TASK}" + AFTER, *TWO)
    jobs.until(job, "task 1 attempt 1")
    cluster.stop("slurmctld")
    try:
        jobs.fail()
        jobs.until(job, "asking again", 120)
    finally:
        cluster.start("slurmctld")
    # It may start late: nodes that have to register again complete the job after the begin time that we asked for.
    cluster.until(lambda: cluster.job(job), lambda found: found.restarts == 1, 60, f"job {job}")
    assert "NOT requeued" not in jobs.text(job)


def test_attempts_shows_the_run(cluster: Cluster, jobs: Jobs) -> None:
    job = jobs.submit(f"hp-srun --auto-resume {TASK}" + AFTER, *TWO)
    jobs.until(job, "task 1 attempt 1")
    cluster.brk(cluster.client.hostnames(cluster.job(job).nodes)[1], "gpu-lost")
    jobs.fail()
    jobs.over(job)
    record = Path(jobs.home, f".local/state/hpkit/runs/sandbox-{job}.jsonl")
    from hpkit.commands.attempts import show

    shown = show(job, [str(record.parent)])
    first, second = shown.document["attempts"]
    assert (first["code"], first["cause"], first["action"]) == (7, "hardware", "requeue")
    assert second["code"] == 0 and 0 < second["recovery_s"] < 60


def test_the_witness_words_are_srun_options_here(cluster: Cluster) -> None:
    help_text = cluster.run_as_user(["srun", "--help"]).text
    words = [w.split("=")[0] for w in evidence.witness_argv(("n1",), 1.0) if w.startswith("--")]
    assert all(word in help_text for word in words)
