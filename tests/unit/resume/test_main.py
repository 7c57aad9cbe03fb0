"""hp-srun as a program: taking srun's place, refusing bad options, and the whole path after a failed step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpkit.resume import attempts, timeline
from tests.support.fake_srun import FakeSrun
from tests.unit.resume.test_evidence import document

TOP = Path(__file__).parents[3]
PROGRAM = "import sys; from hpkit.resume.main import main; sys.exit(main())"
# A real hp-srun whose Slurm is in memory: the step, the witness, the signals and the record are real.
WITH_SLURM = """\
import json, os, sys
import hpkit.slurm
from tests.support.fake_slurm import FakeSlurm, running
facts = json.loads(os.environ.pop("FAKE_SLURM"))
slurm = FakeSlurm.of(4)
slurm.queue["7"] = running("7", "n[1-2]")._replace(num_nodes=2, start_at=1.0)._replace(**facts.get("job", {}))
if "flags" in facts:
    slurm.queue["7"] = slurm.queue["7"]._replace(flags=frozenset(facts["flags"]))
slurm.down = facts.get("down", "")
if facts.get("refuse"):
    slurm.before_write = lambda: slurm.queue.update({"7": slurm.queue["7"]._replace(requeue=False)})
if facts.get("deaf"):
    def deaf():
        from hpkit.errors import SlurmError
        raise SlurmError("timeout", "scontrol did not answer within 5 s")
    slurm.before_write = deaf
if facts.get("ends_first"):
    def ends_first():
        from hpkit.errors import SlurmError
        slurm.queue["7"] = slurm.queue["7"]._replace(flags=frozenset({"COMPLETING"}))
        raise SlurmError("refused", "Job has already finished")
    slurm.before_write = ends_first
if facts.get("break"):
    del slurm.queue
def connect(config, **kwargs):
    print(config.bin, file=open(os.environ["HOME"] + "/bin", "w"))
    return slurm
hpkit.slurm.connect = connect
if facts.get("bad_load"):
    import hpkit.config
    hpkit.config.load = None
if facts.get("no_process"):
    import hpkit.proc
    def foreground(*args, **kwargs):
        raise BlockingIOError(11, "Resource temporarily unavailable")
    hpkit.proc.foreground = foreground
import hpkit.resume.requeue as requeue
requeue.RETRY_S = 0.0
if facts.get("shell"):
    from hpkit.resume.signals import Place
    requeue.find_batch = lambda *args: requeue.Batch(Place(1, is_shell=True))
slurm.settings.update(facts.get("settings", {}))
for name, reason in facts.get("drained", {}).items():
    slurm.put(name, flags="MIXED+DRAIN", reason=reason, by="root")
if facts.get("off_at_end"):  # another hp-srun of the script switches the requeue off while our step runs
    import hpkit.resume.run
    supervise = hpkit.resume.run.supervise
    def switched_off(*args, **kwargs):
        ended = supervise(*args, **kwargs)
        slurm.queue["7"] = slurm.queue["7"]._replace(requeue=False)
        return ended
    hpkit.resume.run.supervise = switched_off
if facts.get("bad_judge"):
    import hpkit.resume.run
    hpkit.resume.run.judge = None
from hpkit.resume.main import main
code = main()
home = os.environ["HOME"]
print(json.dumps(slurm.writes), file=open(home + "/writes", "w"))
slurm.script_ends("7", code, epilog_fails=bool(facts.get("drained")))
print(json.dumps([sorted(slurm.queue["7"].flags), slurm.queue["7"].restarts]), file=open(home + "/job", "w"))
sys.exit(code)
"""


@pytest.fixture
def fake(tmp_path: Path) -> FakeSrun:
    return FakeSrun(tmp_path / "fake")


class Ran:
    """How hp-srun ended."""

    def __init__(self, done: subprocess.CompletedProcess[str], home: Path) -> None:
        self.code = done.returncode
        self.out, self.err = done.stdout, done.stderr
        writes = home / "writes"
        self.writes: list[list[str]] = json.loads(writes.read_text()) if writes.exists() else []
        self.home = home
        self.job: list[Any] = json.loads((home / "job").read_text()) if (home / "job").exists() else []

    def events(self) -> list[Mapping[str, Any]]:
        found = attempts.read(str(self.home / ".local/state/hpkit/runs/cluster-7.jsonl"))
        assert not found.trouble
        return list(found.events)


def hp_srun(
    fake: FakeSrun, *words: str, slurm: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> Ran:
    home = Path(os.environ["HOME"])
    given = {
        "PATH": fake.path,
        "PYTHONPATH": str(TOP),
        "HOME": str(home),
        "FAKE_SRUN": str(fake.folder),
        **(env or {}),
    }
    code = PROGRAM
    if slurm is not None:
        code = WITH_SLURM
        given |= {"FAKE_SLURM": json.dumps(slurm), "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"}
    argv = [sys.executable, "-c", code, *words]
    return Ran(subprocess.run(argv, env=given, capture_output=True, text=True, timeout=60), home)


@pytest.mark.parametrize(
    ("words", "env", "part"),
    [
        (["-N2", "p", "--x"], {}, "no --auto-resume"),
        (["--auto-resume=0", "-N2", "p", "--x"], {"SLURM_JOB_ID": "7"}, "no --auto-resume"),
        (["--auto-resume=1", "-N2", "p", "--x"], {}, "not inside a Slurm job"),
    ],
)
def test_srun_takes_our_place(fake: FakeSrun, words: list[str], env: dict[str, str], part: str) -> None:
    fake.step("exit 7")
    ran = hp_srun(fake, *words, env=env)
    assert ran.code == 7 and fake.calls == [["-N2", "p", "--x"]]
    assert ran.err.count("\n") == 1 and ran.err.startswith("hp-srun: ") and part in ran.err


def test_another_jobs_step_is_not_ours(fake: FakeSrun) -> None:
    ran = hp_srun(fake, "--auto-resume", "--jobid=9", "p", env={"SLURM_JOB_ID": "7"})
    assert "--jobid" in ran.err and fake.calls == [["--jobid=9", "p"]]


def test_without_a_checkpoint_folder_the_words_are_the_programs_own(fake: FakeSrun) -> None:
    hp_srun(fake, "--auto-resume", "p", "--filename", "{epoch}-{step}", "--every", "{step}", slurm={})
    assert fake.calls == [["-K1", "p", "--filename", "{epoch}-{step}", "--every", "{step}"]]


def test_asking_srun_for_information_is_silent(fake: FakeSrun) -> None:
    fake.step("echo slurm 22.05")
    ran = hp_srun(fake, "--version")
    assert (ran.out, ran.err) == ("slurm 22.05\n", "")


def test_our_own_help(fake: FakeSrun) -> None:
    ran = hp_srun(fake, "--hp-help")
    assert ran.code == 0 and "--hp-checkpoint-dir" in ran.out and fake.calls == []


@pytest.mark.parametrize(
    ("words", "env", "part"),
    [
        (["--hp-max-restarts=x", "p"], {}, "--hp-max-restarts"),
        (["--hp-unheard-of=1", "p"], {}, "unknown option"),
        (["p"], {"HPKIT_RESUME_ON": "never"}, "HPKIT_RESUME_ON"),
        (["p", "{checkpoint}"], {}, "--hp-checkpoint-dir"),
        (["--hp-checkpoint-dir=/none", "--hp-checkpoint-format=zip", "p"], {}, "checkpoint-format"),
        (["p"], {"HPKIT_CONFIG": "/no/such/file"}, "configuration"),
    ],
)
def test_a_bad_value_stops_before_anything_runs(
    fake: FakeSrun, words: list[str], env: dict[str, str], part: str
) -> None:
    ran = hp_srun(fake, *words, env=env)
    assert ran.code == 3 and part in ran.err and "Traceback" not in ran.err
    assert fake.calls == []


def test_nothing_to_resume_from_is_said_and_the_argument_dropped(fake: FakeSrun, tmp_path: Path) -> None:
    ran = hp_srun(fake, f"--hp-checkpoint-dir={tmp_path}/none", "p", "--ckpt", "{checkpoint}", "--lr", "1")
    assert fake.calls == [["p", "--lr", "1"]]
    assert "from the beginning" in ran.err
    assert fake.env()["HPKIT_CHECKPOINT"] == "" and fake.env()["HPKIT_ATTEMPT"] == "1"


def test_an_incomplete_checkpoint_is_never_silently_a_fresh_start(fake: FakeSrun, tmp_path: Path) -> None:
    (tmp_path / "ckpt" / "step-5").mkdir(parents=True)
    (tmp_path / "ckpt" / "step-5" / "__0_0.distcp").write_bytes(b"half")
    ran = hp_srun(fake, f"--hp-checkpoint-dir={tmp_path}/ckpt", "p", "--ckpt={checkpoint}")
    assert fake.calls == [["p"]]
    assert "WARNING" in ran.err and "step-5" in ran.err


def test_no_srun_at_all(fake: FakeSrun, tmp_path: Path) -> None:
    ran = hp_srun(fake, "p", env={"PATH": str(tmp_path)})
    assert ran.code == 127 and "srun cannot be started" in ran.err


def test_a_step_that_ends_well(fake: FakeSrun) -> None:
    ran = hp_srun(fake, "--auto-resume", "-N2", "p", slurm={})
    assert (ran.code, ran.writes) == (0, [])
    assert fake.calls == [["-K1", "-N2", "p"]]
    assert [e["event"] for e in ran.events()] == ["run", "start", "end"]


def test_a_users_bug_ends_with_its_own_code(fake: FakeSrun) -> None:
    fake.step("echo Traceback >&2; exit 3")
    fake.answers(document("n1"), document("n2"))
    ran = hp_srun(fake, "--auto-resume", "p", slurm={})
    assert (ran.code, ran.writes) == (3, [])
    assert "cause: user" in ran.err and "not requeued" in ran.err


def test_a_faulty_node_means_a_requeue(fake: FakeSrun) -> None:
    fake.step("exit 9")
    fake.answers(document("n1"), document("n2", "unhealthy"))
    ran = hp_srun(fake, "--auto-resume=1", "--hp-begin-in=5", "p", slurm={})
    assert ran.code == 9
    assert ran.writes == [["requeue", "7", "5", "n2"]]  # not drained, and enough nodes are left
    shown = timeline.document(ran.events(), "x")["attempts"]
    assert [(a["code"], a["cause"], a["nodes"], a["action"]) for a in shown] == [
        (9, "hardware", ["n2"], "requeue")
    ]


def test_no_answer_is_unknown_and_retried_once(fake: FakeSrun) -> None:
    fake.step("exit 9")
    ran = hp_srun(fake, "--auto-resume", "--hp-answer=0", "p", slurm={})
    assert "cause: unknown" in ran.err and [w[:2] for w in ran.writes] == [["requeue", "7"]]
    (ran.home / "writes").unlink()
    again = hp_srun(fake, "--auto-resume", "--hp-answer=0", "p", slurm={}, env={"SLURM_RESTART_COUNT": "1"})
    assert (again.code, again.writes) == (9, [])
    assert "attempt 2" in again.err and "one restart for an unknown cause" in again.err
    assert fake.env()["HPKIT_ATTEMPT"] == "2"


def test_a_step_that_was_not_started_is_not_done_and_retried_once(fake: FakeSrun) -> None:
    fake.step("echo 'srun: error: task 1 launch failed: Slurmd could not execve job' >&2; exit 0")
    fake.answers(document("n1"), document("n2"))
    ran = hp_srun(fake, "--auto-resume", "p", slurm={})
    assert (ran.code, [w[:2] for w in ran.writes]) == (1, [["requeue", "7"]])
    assert "cause: unknown: the step was not started everywhere (task 1 launch failed" in ran.err
    (ran.home / "writes").unlink()
    again = hp_srun(fake, "--auto-resume", "p", slurm={}, env={"SLURM_RESTART_COUNT": "1"})
    assert (again.code, again.writes) == (1, [])
    assert [e.get("code") for e in again.events() if e["event"] == "end"] == [1, 1]


def test_a_program_that_wants_no_restart(fake: FakeSrun) -> None:
    fake.step("exit 93")
    fake.answers(document("n1"), document("n2", "unhealthy"))
    ran = hp_srun(fake, "--auto-resume", "p", slurm={})
    assert (ran.code, ran.writes) == (93, [])


@pytest.mark.parametrize(
    ("option", "env", "code"),
    [
        ([], {}, 3),
        (["-K"], {}, 3),
        (["-K0"], {}, 137),
        (["--kill-on-bad-exit=0"], {"SLURM_KILL_BAD_EXIT": "1"}, 137),
        ([], {"SLURM_KILL_BAD_EXIT": "0"}, 137),
        (["-K1"], {"SLURM_KILL_BAD_EXIT": "0"}, 3),
    ],
)
def test_the_first_failure_is_the_steps_where_it_ends_the_others(
    fake: FakeSrun, option: list[str], env: Mapping[str, str], code: int
) -> None:
    fake.step("echo 'srun: error: n1: task 0: Exited with exit code 3' >&2; exit 137")
    fake.answers(document("n1"), document("n2"))
    assert hp_srun(fake, "--auto-resume", *option, "p", slurm={}, env=env).code == code


def test_a_job_that_may_not_be_requeued(fake: FakeSrun) -> None:
    fake.step("exit 4")
    fake.answers(document("n1"), document("n2", "unhealthy"))
    ran = hp_srun(fake, "--auto-resume", "p", slurm={"job": {"requeue": False}})
    assert (ran.code, ran.writes) == (4, [])
    assert ran.err.count("--requeue") >= 2  # at the start, and after the failure


def test_a_cancelled_job(fake: FakeSrun) -> None:
    fake.step("exit 143")
    ran = hp_srun(fake, "--auto-resume", "p", slurm={"flags": ["CANCELLED", "COMPLETING"]})
    assert (ran.code, ran.writes) == (143, [])
    assert "cancelled" in ran.err and len(fake.calls) == 1


@pytest.mark.parametrize(
    ("slurm", "part"), [({"refuse": True}, "disabled"), ({"down": "unreachable"}, "contact")]
)
def test_a_refused_requeue_keeps_the_code(fake: FakeSrun, slurm: dict[str, Any], part: str) -> None:
    fake.step("exit 5")
    fake.answers(document("n1"), document("n2", "unhealthy"))
    ran = hp_srun(fake, "--auto-resume", "--hp-answer=0", "p", slurm=slurm)
    assert (ran.code, ran.writes) == (5, [])
    assert "NOT requeued" in ran.err and part in ran.err and "scontrol requeue 7" in ran.err


def test_a_site_can_want_another_code_when_hp_srun_gives_up(fake: FakeSrun) -> None:
    fake.step("exit 5")
    ran = hp_srun(
        fake, "--auto-resume", "--hp-give-up-code=77", "--hp-answer=0", "p", slurm={"job": {"requeue": False}}
    )
    assert ran.code == 77
    fake.answers(document("n1"), document("n2"))
    assert hp_srun(fake, "--auto-resume", "--hp-give-up-code=77", "p", slurm={}).code == 5  # a user's bug


def test_our_own_failure_before_the_step_does_not_cost_the_job(fake: FakeSrun) -> None:
    fake.step("exit 6")
    ran = hp_srun(fake, "--auto-resume", "-N2", "p", slurm={"break": True})
    assert ran.code == 6 and fake.calls == [["-N2", "p"]]
    assert "running srun as it is" in ran.err


def test_srun_takes_our_place_when_no_process_can_be_started(fake: FakeSrun) -> None:
    fake.step("kill -TERM $$; exit 6")  # no signal of it may still be blocked
    ran = hp_srun(fake, "--auto-resume", "-N2", "p", slurm={"no_process": True})
    assert ran.code == -15 and fake.calls == [["-K1", "-N2", "p"]]


def test_scontrol_is_looked_for_where_srun_is(fake: FakeSrun) -> None:
    ran = hp_srun(fake, "--auto-resume", "p", slurm={})
    assert (ran.home / "bin").read_text().strip() == str(fake.bin)


def test_our_own_failure_before_the_settings_does_not_cost_the_job(fake: FakeSrun) -> None:
    fake.step("exit 6")
    ran = hp_srun(fake, "--auto-resume", "-N2", "p", "--ckpt", "{checkpoint}", slurm={"bad_load": True})
    assert ran.code == 6 and fake.calls == [["-N2", "p"]]
    assert "running srun as it is" in ran.err


def test_a_bad_site_configuration_is_said_and_passed_over(fake: FakeSrun, tmp_path: Path) -> None:
    etc = tmp_path / "node" / "root" / "etc" / "hpkit"
    etc.mkdir(parents=True)
    (etc / "hpkit.toml").write_text("[resume]\nmax_restarts = 'x'\n")
    ran = hp_srun(fake, "p", env={"HPKIT_ROOT": str(tmp_path / "node")})
    assert ran.code == 0 and fake.calls == [["p"]] and "going on with the defaults" in ran.err


def test_the_sites_configuration_counts(fake: FakeSrun, tmp_path: Path) -> None:
    etc = tmp_path / "node" / "root" / "etc" / "hpkit"
    etc.mkdir(parents=True)
    (etc / "hpkit.toml").write_text("[resume]\ngive_up_code = 70\nanswer_s = 0.0\n")
    fake.step("exit 5")
    env = {"HPKIT_ROOT": str(tmp_path / "node")}
    assert hp_srun(fake, "--auto-resume", "p", slurm={"job": {"requeue": False}}, env=env).code == 70


def test_dry_run_starts_nothing(fake: FakeSrun) -> None:
    ran = hp_srun(fake, "--hp-dry-run", "--auto-resume=1", "-N2", "-l", "p", "a b", slurm={})
    assert ran.code == 0 and fake.calls == [] and ran.writes == []
    assert "srun -K1 -N2 -l p 'a b'" in ran.out and "requeue incomplete 7" in ran.out
    assert not (ran.home / ".local").exists()


STDERR = {"full": "/dev/full", "broken pipe": "&2", "closed": "&-"}


@pytest.mark.parametrize("stderr", list(STDERR))
@pytest.mark.parametrize("code", [0, 7])
def test_a_standard_error_that_takes_nothing_does_not_cost_the_code(
    fake: FakeSrun, tmp_path: Path, stderr: str, code: int
) -> None:
    fake.step(f"exit {code}")
    argv = [sys.executable, "-c", PROGRAM, "--auto-resume", "--hp-answer=0", "p"]
    env = {"PATH": fake.path, "PYTHONPATH": str(TOP), "HOME": str(tmp_path), "FAKE_SRUN": str(fake.folder)}
    reader, writer = os.pipe()
    os.close(reader)
    shell = ["sh", "-c", f'exec "$@" 2>{STDERR[stderr]}', "sh", *argv]
    try:
        done = subprocess.run(shell, env=env | {"SLURM_JOB_ID": "x"}, stderr=writer, timeout=60)
    finally:
        os.close(writer)
    assert done.returncode == code and fake.calls == [["-K1", "p"]]
