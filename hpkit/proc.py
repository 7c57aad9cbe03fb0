"""The one door to programs: argv only, a built environment, an own session, a deadline, capped output.

Nothing else in hpkit starts or signals a process (a lint test enforces it); `pids` and `forks` are this door's back
rooms, and the rest of hpkit takes their names from here.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NoReturn

from hpkit.forks import apart, built, detach
from hpkit.pids import (
    KILL_WAIT_S,
    NO_STATUS,
    PATH,
    TICK_S,
    Child,
    Kin,
    Ran,
    Stamp,
    alive,
    ancestors,
    end,
    kill,
    leave,
    milliseconds,
    peek,
    pidfd_of,
    reap,
    reap_left,
    stamp,
    titled,
)

__all__ = [
    "NO_STATUS", "PATH", "Child", "Kin", "Ran", "Stamp", "alive", "ancestors", "apart",
    "become", "detach", "end", "foreground", "kill", "kill_running", "run", "stamp", "stream", "titled",
]  # fmt: skip

_CHUNK = 1 << 16
_LINE = 1 << 16
_DRAIN_S = 0.2  # at most this long for what an ended program left in its pipes

_running: set[int] = set()  # leaders of the groups that run and stream have going


class Piped:
    """One program in its own session, its pipes, and what it has printed so far. With `talk` its input stays open."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        stdin: bytes,
        limit: int,
        cwd: str,
        shield: bool = False,
        talk: bool = False,
    ) -> None:
        popen = _popen(
            argv,
            shield=shield,
            env=built(env),
            cwd=cwd,
            stdin=subprocess.PIPE if stdin or talk else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        popen.returncode = 0  # we do the waiting: Popen must neither reap the child nor warn about it
        self.popen = popen
        self.pid = popen.pid
        _running.add(self.pid)
        self.limit = limit
        self.truncated = False
        self.pidfd = pidfd_of(self.pid)
        self.poller = select.poll()
        self.stdin = memoryview(stdin)
        self.talk = talk
        for pipe in (popen.stdin, popen.stdout, popen.stderr):
            if pipe:
                os.set_blocking(pipe.fileno(), False)
                if pipe is not popen.stdin or stdin:
                    self.poller.register(pipe, select.POLLOUT if pipe is popen.stdin else select.POLLIN)
        assert popen.stdout and popen.stderr
        self.out_fd, self.err_fd = popen.stdout.fileno(), popen.stderr.fileno()
        self.output = {self.out_fd: bytearray(), self.err_fd: bytearray()}
        if self.pidfd >= 0:
            self.poller.register(self.pidfd, select.POLLIN)

    def pump(self, wait_s: float) -> Generator[bytes, None, bool]:
        """Move what is ready within `wait_s`; yields pieces of stdout; returns whether anything was moved."""
        if self.pidfd < 0:
            wait_s = min(wait_s, TICK_S)
        moved = False
        for fd, _ in self.poller.poll(milliseconds(wait_s)):
            if fd == self.pidfd:
                continue
            moved = True
            if fd not in self.output:
                self._feed(fd)
                continue
            piece = os.read(fd, _CHUNK)
            if not piece:
                self.poller.unregister(fd)
                continue
            kept = self.output[fd]
            room = self.limit - len(kept)
            kept += piece[:room] if room > 0 else b""
            self.truncated = self.truncated or len(piece) > room
            if fd == self.out_fd:
                yield piece
        return moved

    def _feed(self, fd: int) -> None:
        try:
            self.stdin = self.stdin[os.write(fd, self.stdin[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:  # it closed its stdin: its business
            self.stdin = self.stdin[:0]
        if not self.stdin and self.popen.stdin:
            self.poller.unregister(fd)
            if not self.talk:
                self.popen.stdin.close()

    def until(self, deadline: float) -> Generator[bytes, None, bool]:
        """Pump until the program has ended (True) or `deadline` (monotonic seconds) has passed (False)."""
        while peek(self.pid) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            yield from self.pump(left)
        return True

    def drain(self) -> Generator[bytes, None, None]:
        """What an ended program left in the pipes; a grandchild that goes on writing does not hold us."""
        until = time.monotonic() + _DRAIN_S
        while (yield from self.pump(0)) and time.monotonic() < until:
            pass

    def kill(self, grace_s: float) -> Generator[bytes, None, bool]:
        """SIGTERM, then SIGKILL to the group; False when the program still lives after that."""
        for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_WAIT_S)):
            _send_group(self.pid, number)
            _send_group(self.pid, signal.SIGCONT)  # a stopped process would not see SIGTERM
            if (yield from self.until(time.monotonic() + wait_s)):
                _send_group(self.pid, signal.SIGKILL)  # not reaped yet, so the group's number is still ours
                return True
        return False

    def close(self, stuck: bool) -> None:
        """Close the pipes and reap, or remember a stuck child for later."""
        _running.discard(self.pid)
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe:
                pipe.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
        if stuck:
            leave(self.pid)
        else:
            reap(self.pid)


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    limit: int = 8 << 20,
    grace_s: float = 2.0,
    cwd: str = "/",
    shield: bool = False,
) -> Ran:
    """Run a program to its end or its deadline, in a session of its own; never raises for what the program does.

    The environment is built (PATH, LC_ALL=C, TZ=UTC, HOME=/) and `env` is added to it. At the deadline SIGTERM, after
    `grace_s` SIGKILL, goes to the whole group; what still lives after that is left behind as "stuck". A grandchild that
    keeps a pipe open does not hold us. `limit` bytes are kept of each stream. Signals that we ignore stay ignored in
    the program, except SIGPIPE. With `shield` it starts with SIGTERM, SIGINT, SIGHUP and SIGPIPE ignored: it outlives
    the end of the job that it is part of, and us.
    """
    driven = _drive(argv, timeout_s, env, stdin, limit, grace_s, cwd, shield)
    while True:
        try:
            next(driven)
        except StopIteration as stop:
            ran: Ran = stop.value
            return ran


def stream(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    limit: int = 8 << 20,
    grace_s: float = 2.0,
    cwd: str = "/",
) -> Generator[str, None, Ran]:
    """Like `run`, but yields each line of standard output as it comes; closing the generator ends the program.

    A line longer than 64 KiB comes in pieces. The deadline is looked at whenever the caller asks for the next line.
    """
    driven = _drive(argv, timeout_s, env, b"", limit, grace_s, cwd)
    tail = b""
    try:
        while True:
            try:
                *lines, tail = (tail + next(driven)).split(b"\n")
            except StopIteration as stop:
                ran: Ran = stop.value
                break
            if len(tail) > _LINE:
                lines, tail = [*lines, tail], b""
            for line in lines:
                yield line.decode("utf-8", "replace")
        if tail:
            yield tail.decode("utf-8", "replace")
    finally:
        driven.close()
    return ran


def _drive(
    argv: Sequence[str],
    timeout_s: float,
    env: Mapping[str, str] | None,
    stdin: bytes,
    limit: int,
    grace_s: float,
    cwd: str,
    shield: bool = False,
) -> Generator[bytes, None, Ran]:
    """The body of run and stream: yields pieces of stdout, returns how it ended."""
    begun = time.monotonic()
    try:
        job = Piped(argv, env, stdin, limit, cwd, shield)
    except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        failure = "missing" if missing else "denied"
        seconds = time.monotonic() - begun
        return Ran(tuple(argv), NO_STATUS, b"", str(error).encode(), seconds, failure)
    timely, gone = False, None
    try:
        timely = yield from job.until(begun + timeout_s)
        gone = timely or (yield from job.kill(grace_s))
        yield from job.drain()
        rc = (peek(job.pid) if gone else None) or 0
    finally:
        if gone is None:  # the caller gave up, or was interrupted
            gone = exhaust(job.kill(grace_s))
        job.close(stuck=not gone)
    return Ran(
        argv=tuple(argv),
        rc=rc if gone else NO_STATUS,
        stdout=bytes(job.output[job.out_fd]),
        stderr=bytes(job.output[job.err_fd]),
        seconds=time.monotonic() - begun,
        failure="" if timely else "timeout" if gone else "stuck",
        truncated=job.truncated,
        pid=0 if gone else job.pid,
        started=0 if gone else (stamp(job.pid) or Stamp(job.pid, 0)).started,
    )


def kill_running() -> None:
    """SIGKILL all that `run` and `stream` have going, and wait for nothing: a watchdog's last act before it exits."""
    for pid in tuple(_running):
        _send_group(pid, signal.SIGKILL)


def foreground(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    new_session: bool = False,
    log: str = "",
    stderr: int | None = None,
) -> Child:
    """Start a program with our own standard streams (or `log` appended to) and exactly the environment given.

    With `log` its standard input is /dev/null. `stderr` is a descriptor for its standard error instead of ours. The
    working directory is ours. Raises OSError when it cannot start.
    """
    if not log:
        popen = _popen(argv, env=env, start_new_session=new_session, stderr=stderr)
    else:
        with open(log, "ab") as file:
            popen = _popen(
                argv,
                env=env,
                start_new_session=new_session,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
    popen.returncode = 0  # Child does the waiting
    return Child(popen.pid)


def become(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by another program (exec); raises OSError when that is not possible."""
    for text in (sys.stdout, sys.stderr):
        if text:
            text.flush()
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
    try:
        os.execvpe(argv[0], list(argv), env)
    finally:
        signal.signal(signal.SIGPIPE, before)


def _popen(argv: Sequence[str], *, shield: bool = False, **options: Any) -> subprocess.Popen[bytes]:
    """Popen with our signal mask left out; the mask is only touched when there is one, because that costs a fork."""
    reap_left()
    _keep_statuses()
    if shield or signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        options["preexec_fn"] = lambda: _before_exec(shield)
    return subprocess.Popen(list(argv), bufsize=0, **options)


def _before_exec(shield: bool) -> None:
    """In the child: the signals that it ignores, and no signal mask."""
    if shield:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_statuses() -> None:
    """Undo an inherited "ignore" of SIGCHLD, with which the kernel throws exit statuses away."""
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        except ValueError:  # only the main thread may; statuses then read -1000
            return


def exhaust(steps: Generator[bytes, None, bool]) -> bool:
    """Run a generator to its end and return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return bool(stop.value)


def _send_group(pid: int, number: int) -> None:
    """Signal a whole group; one that is gone or that we may not touch shows in whether its leader still lives."""
    try:
        os.killpg(pid, number)
    except OSError:
        return
