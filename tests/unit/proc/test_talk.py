"""A program that is asked again and again, and all the ways in which it may fail to answer. Nothing is timed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from hpkit import pids, proc
from hpkit.talk import Said, Talk

LONG = 60.0
ECHO = """
import os, sys
for line in sys.stdin:
    word, _, rest = line.rstrip("\\n").partition(" ")
    if word == "exit":
        sys.exit(int(rest))
    if word == "kill":
        os.kill(os.getpid(), int(rest))
    if word == "hang":
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    if word == "fill":
        print("x" * int(rest), end="")
    if word == "last":
        print("x" * int(rest), flush=True)
        os._exit(0)
    if word == "env":
        rest = " ".join(f"{k}={v}" for k, v in sorted(os.environ.items()))
    if word == "err":
        print(rest, file=sys.stderr, flush=True)
    print(rest, flush=True)
"""


def talk(limit: int = 1 << 20) -> Talk:
    return Talk([sys.executable, "-I", "-c", ECHO], limit=limit)


def ask(it: Talk, words: str, timeout_s: float = LONG) -> Said:
    return it.ask(words.encode(), timeout_s=timeout_s, grace_s=0.1)


def gone(pid: int) -> bool:
    """Whether a process ends soon."""
    for _ in range(1000):
        if proc.stamp(pid) is None:
            return True
        signal.sigtimedwait((), 0.01)
    return False


@pytest.fixture(params=["pidfd", "old kernel"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without pidfd_open (Linux before 5.3)."""
    if request.param == "old kernel":
        monkeypatch.delattr(os, "pidfd_open")


def test_question_and_answer() -> None:
    it = talk()
    pid = it.pid
    assert [ask(it, f"say {n}") for n in range(3)] == [Said(b"%d" % n) for n in range(3)]
    assert (it.pid, it.alive) == (pid, True)
    assert ask(it, "say " + "y" * 300_000).line == b"y" * 300_000  # more than a pipe holds
    assert ask(it, "err words") == Said(b"words", stderr=b"words\n")
    assert ask(it, "say x").stderr == b""
    it.end()
    assert (it.pid, it.alive, gone(pid)) == (0, False, True)
    assert ask(it, "say x").failure == "ended"


def test_its_environment_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOILED", "yes")
    it = Talk([sys.executable, "-I", "-c", ECHO], env={"SLURM_CONF": "/x"})
    said = ask(it, "env").line.decode().split()
    assert {"SLURM_CONF=/x", "TZ=UTC", "HOME=/"} <= set(said)
    assert "SPOILED=yes" not in said
    it.end()


@pytest.mark.parametrize(("words", "rc"), [("exit 0", 0), ("exit 3", 3), ("kill 11", -11), ("kill 9", -9)])
def test_it_ends_while_it_is_asked(words: str, rc: int) -> None:
    it = talk()
    said = ask(it, words)
    assert (said.failure, said.rc, said.line, it.alive) == ("ended", rc, b"", False)


def test_the_answer_of_one_that_ended_right_after_it() -> None:
    it = talk()
    assert ask(it, "last 300000") == Said(b"x" * 300_000)
    assert ask(it, "say x").failure == "ended"


def test_it_ended_before_it_is_asked() -> None:
    it = talk()
    pid = it.pid
    os.kill(pid, signal.SIGTERM)
    while it.alive:
        signal.sigtimedwait((), 0.01)
    assert ask(it, "say x").failure == "ended"
    assert gone(pid)


def test_a_deadline() -> None:
    it = talk()
    pid = it.pid
    assert ask(it, "hang", timeout_s=0.5) == Said(b"", "timeout")
    assert (it.alive, gone(pid)) == (False, True)


def test_an_answer_beyond_the_limit() -> None:
    it = talk(limit=1000)
    assert ask(it, "fill 5000").failure == "long"
    assert not it.alive


class InterruptedError_(BaseException):
    """What a signal handler of a caller raises."""


def test_an_interrupted_question_leaves_no_answer_for_the_next() -> None:
    def handler(number: int, frame: object) -> None:
        inner.append(ask(it, "say from-the-handler"))
        raise InterruptedError_

    it, inner = talk(), list[Said]()
    pid = it.pid
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(InterruptedError_):
            ask(it, "hang")
    finally:
        signal.signal(signal.SIGALRM, before)
    assert inner == [Said(b"", "busy")]
    assert (it.alive, gone(pid)) == (False, True)


def test_it_goes_with_its_object() -> None:
    it = talk()
    pid = it.pid
    assert ask(it, "say x").line == b"x"
    del it
    for _ in range(1000):
        if pids.peek(pid) is not None:
            break
        signal.sigtimedwait((), 0.01)
    pids.reap_left()
    assert proc.stamp(pid) is None


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import os, sys\nsys.path.insert(0, sys.argv[1])\nfrom hpkit.talk import Talk\n"
        "it = Talk([sys.executable, '-I', '-c', sys.argv[2]])\n"
        "assert it.ask(b'say x', timeout_s=60).line == b'x'\n"
        "print(it.pid, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    here = str(Path(proc.__file__).parents[1])
    ran = proc.run([sys.executable, "-I", "-c", program, here, ECHO], timeout_s=LONG)
    assert ran.rc == -9
    assert gone(int(ran.text))


def test_what_cannot_start() -> None:
    with pytest.raises(OSError):
        Talk(["/no/such/program"])
