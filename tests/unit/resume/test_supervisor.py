"""Real processes under hp-srun: codes, streams, signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hpkit.resume.options import parse
from hpkit.resume.signals import SI_KERNEL, Got, Place, must_forward
from hpkit.resume.srun_options import Table
from hpkit.resume.supervisor import exit_code, srun_argv
from tests.support.fake_srun import FakeSrun

OURS = "HPKIT_CHECKPOINT,HPKIT_CHECKPOINT_STEP,HPKIT_ATTEMPT"
TOP = Path(__file__).parents[3]
DRIVER = """\
import sys
from hpkit.resume.signals import Inbox, Place
from hpkit.resume.supervisor import supervise
import os
ended = supervise(["srun", *sys.argv[1:]], dict(os.environ), Inbox(), Place())
print("first", ended.first, flush=True)
sys.exit(ended.code)
"""


@pytest.mark.parametrize(
    ("line", "env", "expected"),
    [
        ("-N2 p a", {}, "srun -K1 -N2 p a"),
        ("-K0 p", {}, "srun -K0 p"),
        ("-lK p", {}, "srun -lK p"),
        ("--kill-on-bad-exit=0 p", {}, "srun --kill-on-bad-exit=0 p"),
        ("--kill-on p", {}, "srun --kill-on p"),
        ("p -K0", {}, "srun -K1 p -K0"),
        ("p", {"SLURM_KILL_BAD_EXIT": "0"}, "srun p"),
        ("-N1 a : -K0 b : c", {}, "srun -K1 -N1 a : -K0 b : -K1 c"),
        ("--export=NONE p a", {}, f"srun -K1 --export=NONE --export={OURS} p a"),
        ("--export A,B -- p", {}, f"srun -K1 --export A,B --export=A,B,{OURS} -- p"),
        ("--export=A,all p", {"SLURM_EXPORT_ENV": "NONE"}, "srun -K1 --export=A,all p"),
        ("p", {"SLURM_EXPORT_ENV": "NONE"}, f"srun -K1 --export={OURS} p"),
        ("p", {"SLURM_EXPORT_ENV": "ALL"}, "srun -K1 p"),
        ("--export=NIL p", {}, "srun -K1 --export=NIL p"),
        ("a : --export=none b", {}, f"srun -K1 a : -K1 --export=none --export={OURS} b"),
    ],
)
def test_the_step_is_ended_everywhere_when_one_task_fails(
    line: str, env: Mapping[str, str], expected: str
) -> None:
    command = parse(line.split(), lambda: Table({}, {}))
    assert srun_argv(command, env) == tuple(expected.split())


def test_exit_code() -> None:
    assert [exit_code(s) for s in (0, 3, 255, -9, -15)] == [0, 3, 255, 137, 143]


@pytest.mark.parametrize(
    ("got", "place", "forward"),
    [
        (Got(signal.SIGUSR1, 0, 77), Place(50), True),  # another process, kill(1)
        (Got(signal.SIGINT, SI_KERNEL, 0), Place(50), False),  # ^C: the terminal told srun too
        (Got(signal.SIGTERM, 0, 50), Place(50), False),  # slurmstepd told every process of the batch step
        (
            Got(signal.SIGUSR1, 0, 50),
            Place(50, is_shell=True),
            True,
        ),  # perhaps the shell alone, and that is us
        (Got(signal.SIGTERM, 0, 0), Place(), True),  # a sender from outside our pid namespace
    ],
)
def test_who_sent_it_decides(got: Got, place: Place, forward: bool) -> None:
    assert must_forward(got, place) is forward


@pytest.fixture
def fake(tmp_path: Path) -> FakeSrun:
    return FakeSrun(tmp_path / "fake")


def start(fake: FakeSrun, **options: object) -> subprocess.Popen[str]:
    env = {**os.environ, "PATH": fake.path, "PYTHONPATH": str(TOP)}
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, "a", "b"], env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,  # type: ignore[call-overload]  # passed on
    )  # fmt: skip


@pytest.mark.parametrize("code", [0, 1, 3, 93, 127, 128, 200, 255])
def test_the_code_is_the_steps(fake: FakeSrun, code: int) -> None:
    fake.step(f"echo out; echo err >&2; exit {code}")
    driver = start(fake)
    out, err = driver.communicate(timeout=30)
    assert (driver.returncode, out.splitlines()[0], err) == (code, "out", "err\n")
    assert fake.calls == [["a", "b"]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_srun_ended_by_a_signal(fake: FakeSrun, number: signal.Signals) -> None:
    fake.step(f"kill -{number.value} $$")
    driver = start(fake)
    driver.communicate(timeout=30)
    assert driver.returncode == 128 + number


def test_the_code_of_the_task_that_failed_first(fake: FakeSrun) -> None:
    fake.step("echo 'srun: error: n2: task 1: Exited with exit code 3' >&2; exit 143")
    driver = start(fake)
    out, _ = driver.communicate(timeout=30)
    assert driver.returncode == 3 and "node='n2', task='1'" in out


def until(ready: Callable[[], bool]) -> None:
    for _ in range(1500):
        if ready():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within 30 s")


COUNTING = """\
for s in INT TERM HUP QUIT USR1 USR2 CONT; do trap "echo $s >> {0}/got" $s; done
echo $$ > {0}/pid
while [ ! -e {0}/done ]; do sleep 0.05; done
exit 5
"""


def test_each_signal_is_passed_on_once(fake: FakeSrun) -> None:
    fake.step(COUNTING.format(fake.folder))
    driver = start(fake)
    until((fake.folder / "pid").exists)
    got = fake.folder / "got"
    names = ["USR1", "USR2", "INT", "TERM", "HUP", "QUIT", "USR1"]
    for number, name in enumerate(names, 1):
        driver.send_signal(getattr(signal, f"SIG{name}"))
        until(lambda n=number: got.exists() and len(got.read_text().split()) >= n)
    (fake.folder / "done").touch()
    driver.communicate(timeout=30)
    assert driver.returncode == 5
    assert got.read_text().split() == names


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_stop_and_continue(fake: FakeSrun) -> None:
    fake.step(COUNTING.format(fake.folder))
    # A group of its own: the kernel drops SIGTSTP in an orphaned one, as ours may be.
    driver = start(fake, preexec_fn=os.setpgrp)
    until((fake.folder / "pid").exists)
    srun = int((fake.folder / "pid").read_text())
    driver.send_signal(signal.SIGTSTP)
    until(lambda: state_of(driver.pid) == "T" and state_of(srun) == "T")
    driver.send_signal(signal.SIGCONT)
    until(lambda: state_of(driver.pid) != "T" and state_of(srun) != "T")
    (fake.folder / "done").touch()
    driver.communicate(timeout=30)
    assert driver.returncode == 5


def test_signals_that_we_must_ignore_are_ignored_by_srun_too(fake: FakeSrun) -> None:
    fake.step(
        f"grep -e SigIgn -e SigBlk /proc/self/status | sort -r > {fake.folder}/mask"  # a shell blocks while it forks
    )
    driver = start(fake, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    driver.communicate(timeout=30)
    ignored, blocked = (int(line.split()[1], 16) for line in (fake.folder / "mask").read_text().splitlines())
    assert ignored & (1 << (signal.SIGHUP - 1))
    assert blocked == 0


def test_no_srun(tmp_path: Path) -> None:
    env = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(TOP)}
    ran = subprocess.run([sys.executable, "-c", DRIVER], env=env, capture_output=True, text=True, timeout=30)
    assert ran.returncode == 1 and "FileNotFoundError" in ran.stderr
