"""proc.run and proc.stream against real programs that misbehave. Nothing is timed: a hang is the test's own timeout."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from hpkit import proc

LONG = 60.0


@pytest.fixture(params=["pidfd", "old kernel"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With and without pidfd_open (Linux before 5.3)."""
    if request.param == "old kernel":
        monkeypatch.delattr(os, "pidfd_open")
    return str(request.param)


def shell(script: str, timeout_s: float = LONG, grace_s: float = 2.0, limit: int = 8 << 20) -> proc.Ran:
    return proc.run(["sh", "-c", script], timeout_s=timeout_s, grace_s=grace_s, limit=limit)


def gone(pid: int) -> bool:
    """Whether a process ends soon after it was killed."""
    for _ in range(500):
        if proc.stamp(pid) is None:
            return True
        signal.sigtimedwait((), 0.01)
    return False


@pytest.mark.parametrize(
    ("script", "rc", "out", "err"),
    [
        ("exit 0", 0, b"", b""),
        ("echo out; echo err >&2; exit 3", 3, b"out\n", b"err\n"),
        ("kill -9 $$", -9, b"", b""),
        ("kill -TERM $$", -15, b"", b""),
        ("exec >&- 2>&-; sleep 0.2; exit 4", 4, b"", b""),
        ("printf '\\377'", 0, b"\xff", b""),
    ],
)
@pytest.mark.usefixtures("kernel")
def test_a_program_that_ends_by_itself(script: str, rc: int, out: bytes, err: bytes) -> None:
    ran = shell(script)
    assert (ran.rc, ran.stdout, ran.stderr) == (rc, out, err)
    assert (ran.failure, ran.truncated, ran.pid, ran.ok) == ("", False, 0, rc == 0)


def _file(folder: Path, text: str, mode: int) -> str:
    path = folder / "program"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("make", "failure"),
    [
        (lambda _: "no-such-program-here", "missing"),
        (lambda d: str(d / "nothing"), "missing"),
        (lambda d: _file(d, "x", 0o644) + "/below", "missing"),
        (lambda d: _file(d, "#!/no/such/interpreter\n", 0o755), "missing"),
        (lambda d: str(d), "denied"),
        (lambda d: _file(d, "#!/bin/sh\n", 0o644), "denied"),
        (lambda d: _file(d, "neither script nor binary", 0o755), "denied"),
        (lambda d: "a\0b", "denied"),
    ],
    ids=["unknown", "absent", "below a file", "no interpreter", "folder", "mode", "format", "nul"],
)
def test_what_cannot_start_is_a_result(tmp_path: Path, make: Callable[[Path], str], failure: str) -> None:
    ran = proc.run([make(tmp_path), "arg"], timeout_s=LONG)
    assert (ran.failure, ran.rc, ran.ok) == (failure, -1000, False)
    assert ran.stderr


def test_the_environment_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD_OF_A_USER", "evil")
    ran = proc.run(["env"], timeout_s=LONG, env={"SLURM_CONF": "/x", "TZ": "Asia/Tokyo"})
    assert sorted(ran.text.split()) == sorted(
        [f"PATH={proc.PATH}", "LC_ALL=C", "TZ=Asia/Tokyo", "HOME=/", "SLURM_CONF=/x"]
    )


def test_a_session_a_folder_and_signals_of_its_own() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        masks = proc.run(["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"], timeout_s=LONG)
        places = shell("pwd; cut -d' ' -f1,5,6 /proc/$$/stat")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    folder, ids = places.text.splitlines()
    blocked, ignored = (int(line.split()[1], 16) for line in masks.text.splitlines())
    assert folder == "/"
    assert len(set(ids.split())) == 1, "pid, group and session are one number"
    assert blocked == 0
    assert not ignored >> (signal.SIGPIPE - 1) & 1


def test_no_other_descriptor_is_passed_on(tmp_path: Path) -> None:
    with open(tmp_path / "lock", "w") as file:
        os.set_inheritable(file.fileno(), True)
        ran = shell("ls /proc/$$/fd")
    assert ran.text.split() == ["0", "1", "2"]


@pytest.mark.parametrize("program", ["cat", "true"])
def test_standard_input_larger_than_a_pipe(program: str) -> None:
    data = bytes(range(256)) * 4096
    ran = proc.run([program], timeout_s=LONG, stdin=data)
    assert ran.ok
    assert ran.stdout == (data if program == "cat" else b"")


def test_output_is_capped_and_the_rest_drained() -> None:
    ran = shell("head -c 50000000 /dev/zero; echo done >&2; exit 5", limit=1000)
    assert (ran.rc, len(ran.stdout), ran.stderr, ran.truncated) == (5, 1000, b"done\n", True)
    exact = shell("head -c 1000 /dev/zero", limit=1000)
    assert (len(exact.stdout), exact.truncated) == (1000, False)


@pytest.mark.usefixtures("kernel")
def test_sigterm_ignored_by_a_program_whose_child_holds_stdout() -> None:
    ran = shell("trap '' TERM; sleep 1000 & echo $!; while :; do sleep 1000; done", 0.3, grace_s=0.2)
    assert (ran.failure, ran.rc) == ("timeout", -9)
    assert gone(int(ran.stdout))


def test_sigterm_ends_a_program_in_its_own_way_and_its_children_with_it() -> None:
    ran = shell("trap 'echo bye; exit 7' TERM; (trap '' TERM; sleep 1000) & echo $!; wait", 0.3, grace_s=LONG)
    child, bye = ran.text.split()
    assert (ran.failure, ran.rc, bye) == ("timeout", 7, "bye")
    assert gone(int(child))


@pytest.mark.usefixtures("kernel")
def test_a_stopped_program_still_gets_sigterm() -> None:
    ran = shell("kill -STOP $$", 0.2, grace_s=LONG)
    assert (ran.failure, ran.rc) == ("timeout", -15)


@pytest.mark.parametrize("noise", ["sleep 1000", "while :; do echo noise; done", "yes"])
@pytest.mark.usefixtures("kernel")
def test_a_grandchild_that_holds_the_pipe_does_not_hold_us(noise: str) -> None:
    ran = shell(f"({noise}) & echo $! >&2; echo out")
    child = proc.stamp(int(ran.stderr.split()[0]))
    try:
        assert (ran.rc, ran.failure) == (0, "")
        assert b"out\n" in ran.stdout
        if noise.startswith("sleep"):  # the noisy one dies of its closed pipe, as it should
            assert child, "we did not wait for it, nor end what a tool left behind on purpose"
    finally:
        assert child is None or proc.end(child, grace_s=0.1)


def test_the_exit_status_survives_an_inherited_ignore_of_sigchld() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert shell("exit 3").rc == 3
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_no_zombie_and_no_descriptor_is_left() -> None:
    shell("exit 0")
    before = os.listdir("/proc/self/fd")
    for script in ("exit 0", "kill -9 $$", "head -c 100000 /dev/zero"):
        shell(script)
    shell("sleep 1000", 0.1)
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


UNKILLABLE = """
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>
int main(void) {
    if (setresuid(0, 0, 0)) return 9;
    printf("%d\\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
"""
STUCK = """
import os, sys
sys.path.insert(0, sys.argv[2])
from hpkit import proc
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
ran = proc.run([sys.argv[1]], timeout_s=1.0, grace_s=0.1)
print(ran.failure, ran.rc, ran.pid == int(ran.stdout), proc.alive(proc.Stamp(ran.pid, ran.started)), ran.pid)
"""


@pytest.fixture
def unkillable(tmp_path: Path) -> Iterator[str]:
    """A program that an ordinary user can start but not signal: as good as one in D state."""
    if os.geteuid() != 0 or shutil.which("gcc") is None:
        pytest.skip("needs root and a compiler to build a set-uid program")
    source = tmp_path / "unkillable.c"
    source.write_text(UNKILLABLE)
    program = Path("/tmp") / f"hpkit-unkillable-{os.getpid()}"
    assert proc.run(["gcc", "-o", str(program), str(source)], timeout_s=LONG).ok
    program.chmod(0o4755)
    yield str(program)
    program.unlink()


def test_what_cannot_be_killed_is_left_behind(unkillable: str) -> None:
    top = str(Path(proc.__file__).parent.parent)
    ran = proc.run([sys.executable, "-c", STUCK, unkillable, top], timeout_s=LONG)
    *said, pid = ran.text.split()
    left = proc.stamp(int(pid))
    assert left and proc.end(left)
    assert said == ["stuck", "-1000", "True", "True"]


def lines(steps: Generator[str, None, proc.Ran]) -> tuple[list[str], proc.Ran]:
    found = []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as stop:
            return found, stop.value


def test_stream_gives_lines_as_they_come() -> None:
    steps = proc.stream(["sh", "-c", "echo a; read x; echo never"], timeout_s=LONG)
    assert next(steps) == "a"
    steps = proc.stream(["sh", "-c", "printf 'a\\n\\nb\\377\\nc'; echo err >&2; exit 3"], timeout_s=LONG)
    found, ran = lines(steps)
    assert found == ["a", "", "b\ufffd", "c"]
    assert (ran.rc, ran.stdout, ran.stderr) == (3, b"a\n\nb\xff\nc", b"err\n")


def test_stream_cuts_an_endless_line() -> None:
    found, ran = lines(proc.stream(["head", "-c", "300000", "/dev/zero"], timeout_s=LONG, limit=10))
    assert "".join(found) == "\0" * 300000
    assert len(found) > 1
    assert (len(ran.stdout), ran.truncated) == (10, True)


def test_stream_has_the_deadline_too() -> None:
    found, ran = lines(proc.stream(["sh", "-c", "echo a; exec sleep 1000"], timeout_s=0.3))
    assert (found, ran.failure, ran.rc) == (["a"], "timeout", -15)


def test_closing_a_stream_ends_the_program() -> None:
    steps = proc.stream(["sh", "-c", "echo $$; exec sleep 1000"], timeout_s=LONG)
    process = proc.stamp(int(next(steps)))
    assert process
    steps.close()
    assert not proc.alive(process)


def test_stream_of_a_missing_program() -> None:
    found, ran = lines(proc.stream(["no-such-program-here"], timeout_s=LONG))
    assert (found, ran.failure) == ([], "missing")
