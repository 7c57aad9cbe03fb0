"""Helpers that outlive us, programs beside us, stamps, and ending exactly the right process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit import proc

LONG = 60.0
ENV = {"PATH": proc.PATH}


@pytest.fixture
def ours() -> Iterator[list[proc.Stamp]]:
    """Processes to end after the test."""
    started: list[proc.Stamp] = []
    yield started
    for process in started:
        assert proc.end(process, grace_s=0.1)


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return "closed meanwhile"


def test_detach_leaves_nothing_of_ours(ours: list[proc.Stamp], tmp_path: Path) -> None:
    with open(tmp_path / "held", "w") as held:
        os.set_inheritable(held.fileno(), True)
        helper = proc.detach(["sleep", "1000"], env={"A": "1"})
        ours.append(helper)
    folder = f"/proc/{helper.pid}"
    for _ in range(500):  # its loader has libraries open for a moment
        found = {fd: _target(f"{folder}/fd/{fd}") for fd in os.listdir(f"{folder}/fd")}
        if len(found) == 3:
            break
        time.sleep(0.01)
    assert found == dict.fromkeys("012", "/dev/null")
    assert os.getsid(helper.pid) not in (os.getsid(0), helper.pid), "another session, which it does not lead"
    assert os.readlink(f"{folder}/cwd") == "/"
    built = [f"PATH={proc.PATH}", "LC_ALL=C", "TZ=UTC", "HOME=/", "A=1"]
    assert Path(f"{folder}/environ").read_text().split("\0")[:-1] == built
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert proc.alive(helper)


@pytest.mark.parametrize("how", ["detach", "apart"])
def test_a_forked_child_does_not_hold_our_pipe(ours: list[proc.Stamp], how: str) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    if how == "detach":
        ours.append(proc.detach(["sleep", "1000"]))
        os.close(writer)
    else:
        fds = proc.apart(lambda: b"%d" % len(os.listdir("/proc/self/fd")), timeout_s=LONG)
        assert fds.stdout == b"5", "the standard streams, the answer's pipe, the listing"
        os.close(writer)
    assert os.read(reader, 1) == b"", "nobody else has it open"
    os.close(reader)


def test_detach_resets_signals(ours: list[proc.Stamp]) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        helper = proc.detach(["sleep", "1000"])
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ours.append(helper)
    status = dict(line.split(":\t") for line in Path(f"/proc/{helper.pid}/status").read_text().splitlines())
    assert int(status["SigBlk"], 16) == 0
    assert not int(status["SigIgn"], 16) & (1 << (signal.SIGTERM - 1) | 1 << (signal.SIGPIPE - 1))


@pytest.mark.parametrize(
    ("program", "kind"), [("no-such-program", FileNotFoundError), ("/etc", PermissionError)]
)
def test_detach_says_when_it_cannot(program: str, kind: type[OSError]) -> None:
    with pytest.raises(kind):
        proc.detach([program])
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _raise() -> bytes:
    raise OSError(5, "broken")


def test_apart() -> None:
    big = b"x" * 300_000
    assert proc.apart(lambda: big, timeout_s=LONG)[1:4] == (0, big, b"")
    failed = proc.apart(_raise, timeout_s=LONG)
    assert (failed.rc, failed.stdout, failed.stderr, failed.failure) == (1, b"", b"[Errno 5] broken", "")
    hung = proc.apart(lambda: time.sleep(1000) or b"", timeout_s=0.1)  # type: ignore[func-returns-value] # one line
    assert (hung.failure, hung.rc, hung.stdout) == ("timeout", -9, b"")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_foreground_has_exactly_the_environment_given(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    child = proc.foreground(["env"], env={"PATH": "/usr/bin:/bin", "ONLY": "this"}, log=str(log))
    assert child.wait() == 0
    assert log.read_text() == "before\nPATH=/usr/bin:/bin\nONLY=this\n"
    assert child.poll() == 0
    assert not child.signal(signal.SIGTERM)


def test_foreground_shares_our_streams(capfd: pytest.CaptureFixture[str]) -> None:
    child = proc.foreground(["sh", "-c", "echo out; echo err >&2; exit 3"], env=ENV)
    assert child.wait(LONG) == 3
    assert capfd.readouterr() == ("out\n", "err\n")


@pytest.mark.parametrize("new_session", [False, True])
def test_foreground_session(new_session: bool) -> None:
    child = proc.foreground(["sleep", "1000"], env=ENV, new_session=new_session)
    assert (os.getsid(child.stamp.pid) == child.stamp.pid) is new_session
    assert child.poll() is None
    assert child.wait(0.05) is None
    assert child.signal(signal.SIGKILL)
    assert child.wait() == -9


def test_foreground_raises_when_it_cannot_start() -> None:
    with pytest.raises(FileNotFoundError):
        proc.foreground(["no-such-program"], env=ENV)


@pytest.mark.parametrize("pidfd", [True, False])
def test_a_signal_handler_may_poll_and_forward(monkeypatch: pytest.MonkeyPatch, pidfd: bool) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    child = proc.foreground(["sh", "-c", "trap 'exit 6' TERM; while :; do sleep 0.05; done"], env=ENV)
    seen: list[int | None] = []

    def handler(_number: int, _frame: object) -> None:
        seen.append(child.poll())
        child.signal(signal.SIGTERM)

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.01)  # goes on while the end is noticed and reaped
    try:
        assert child.wait() == 6
        for _ in range(20):
            assert child.poll() == 6
            time.sleep(0.005)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen[0] is None
    assert set(seen) <= {None, 6}


BECOME = """
import sys
sys.path.insert(0, sys.argv[1])
from hpkit import proc
print("first")
proc.become(["sh", "-c", "echo $A $(grep SigIgn /proc/self/status)"], {"A": "1", "PATH": "/usr/bin:/bin"})
"""


def test_become(tmp_path: Path) -> None:
    top = str(Path(proc.__file__).parent.parent)
    ran = proc.run([sys.executable, "-c", BECOME, top], timeout_s=LONG)
    assert ran.text.split()[:3] == ["first", "1", "SigIgn:"]
    assert not int(ran.text.split()[3], 16) >> (signal.SIGPIPE - 1) & 1
    with pytest.raises(FileNotFoundError):
        proc.become([str(tmp_path / "nothing")], {})
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


def test_a_stamp_is_of_one_process_only() -> None:
    own = proc.stamp(os.getpid())
    assert own and proc.alive(own)
    assert proc.stamp(2**22 + 1) is None
    child = proc.foreground(["sleep", "1000"], env=ENV)
    other = child.stamp._replace(started=child.stamp.started + 1)
    assert not proc.alive(other)
    assert proc.end(other), "a process of another time with that pid is gone already"
    assert child.wait(0.2) is None, "and this one was not touched"
    assert child.signal(signal.SIGKILL)
    assert child.wait() == -9


def test_a_zombie_is_not_alive() -> None:
    child = proc.foreground(["sleep", "1000"], env=ENV)
    assert proc.end(child.stamp)
    assert proc.stamp(child.stamp.pid) is None
    assert child.poll() == -15


def test_end_of_one_process_and_of_its_group(ours: list[proc.Stamp], tmp_path: Path) -> None:
    told = tmp_path / "pid"
    script = f"(trap '' TERM; echo ready; exec sleep 1000) & echo $! >{told}.new; mv {told}.new {told}; exec sleep 1000"
    for group in (False, True):
        leader = proc.foreground(["sh", "-c", script], env=ENV, new_session=True, log=str(tmp_path / "log"))
        while not told.exists() or not (tmp_path / "log").read_text():
            time.sleep(0.01)
        member = proc.stamp(int(told.read_text()))
        assert member
        told.unlink()
        (tmp_path / "log").unlink()
        if not group:
            ours.append(member)
        assert proc.end(leader.stamp, group=group, grace_s=0.1)
        assert proc.alive(member) is not group
        assert leader.wait(LONG) is not None


def test_end_uses_sigkill_when_it_must(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = proc.foreground(
        ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"], env=ENV, log=str(log)
    )
    while not log.read_text():
        time.sleep(0.01)
    assert proc.end(child.stamp, grace_s=0.1)
    assert child.wait(LONG) == -9


def test_titled() -> None:
    title = f"hpkit test {os.getpid()}: [1"
    with subprocess.Popen([f"{title}.0]", "60"], executable="/bin/sleep") as child:
        try:
            while not Path(
                f"/proc/{child.pid}/cmdline"
            ).read_bytes():  # the kernel sets it a moment after exec
                time.sleep(0.001)
            found = proc.titled(f"{title}.", os.getuid())
            assert [(kin.stamp, kin.name, kin.title) for kin in found] == [
                (proc.stamp(child.pid), "sleep", f"{title}.0] 60")
            ]
            assert proc.titled(f"{title}.1", os.getuid()) == ()
            assert proc.titled(title, os.getuid() + 1) == ()
        finally:
            child.kill()
