"""Children by fork alone: helpers that outlive us, and work that may hang.

Part of `proc`, which offers these names. fork, not Popen: a helper must not stay our child, and a new interpreter for
one statvfs would cost more than the round.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from hpkit.pids import (
    KILL_WAIT_S,
    NO_STATUS,
    PATH,
    Ran,
    Stamp,
    leave,
    milliseconds,
    peek,
    pidfd_of,
    reap,
    sleep_on,
    stamp,
)


def built(env: Mapping[str, str] | None) -> dict[str, str]:
    """The environment that programs get: nothing of ours but what `env` names."""
    return {"PATH": PATH, "LC_ALL": "C", "TZ": "UTC", "HOME": "/", **(env or {})}


def detach(argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = "/") -> Stamp:
    """Start a helper that outlives us: own session, not our child any more, all three standard streams on /dev/null.

    It inherits no other file descriptor and no ignored or blocked signal; its environment is built as in `run`.
    Raises OSError when it cannot be started.
    """
    told, tell = os.pipe()
    middle = os.fork()
    if middle == 0:
        _detached([os.fspath(word) for word in argv], built(env), cwd, tell)
    os.close(tell)
    with open(told, "rb") as pipe:
        words = [int(word) for word in pipe.read().split()]
    reap(middle, block=True)
    if len(words) != 2:  # pid and start time when exec went well, then errno when it did not
        number = words[-1] if words else 0
        raise OSError(number, os.strerror(number) if number else "the helper died before it started", argv[0])
    return Stamp(*words)


def _detached(argv: list[str], env: dict[str, str], cwd: str, tell: int) -> NoReturn:
    """The child's side of detach: a second fork leaves the session leader behind, so no terminal can come back."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        tell = _let_go(tell)
        for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(cwd)
        own = stamp(os.getpid()) or Stamp(os.getpid(), 0)
        os.write(tell, b"%d %d" % own)
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(tell, b" %d" % (error.errno or 0))
    finally:
        os._exit(127)


def apart(work: Callable[[], bytes], *, timeout_s: float) -> Ran:
    """Do `work` in a forked child that holds nothing of ours open; stdout of the result is what it returned.

    rc is 1 when it raised (its text is stderr). At the deadline the child is killed ("timeout"), or left behind when it
    sits in the kernel ("stuck"). Raises OSError when there can be no child. `work` must not touch our state.
    """
    begun = time.monotonic()
    told, tell = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(told)
        os.close(tell)
        raise
    if pid == 0:
        _apart(work, tell)
    os.close(tell)
    data = None
    try:
        data = _read_all(told, begun + timeout_s)
    finally:
        os.close(told)
        if data is None:
            os.kill(pid, signal.SIGKILL)
    rc = _await(pid, KILL_WAIT_S)
    failure = "stuck" if rc is None else "timeout" if data is None else ""
    started = (stamp(pid) or Stamp(pid, 0)).started if rc is None else 0
    return Ran(
        argv=(),
        rc=NO_STATUS if rc is None else rc,
        stdout=b"" if rc or data is None else data,
        stderr=data or b"" if rc else b"",
        seconds=time.monotonic() - begun,
        failure=failure,
        pid=pid if rc is None else 0,
        started=started,
    )


def _apart(work: Callable[[], bytes], tell: int) -> NoReturn:
    """The child's side of apart."""
    rc = 1
    try:
        os.setsid()
        tell = _let_go(tell)
        try:
            data, rc = work(), 0
        except (OSError, ValueError) as error:
            data = str(error).encode("utf-8", "replace")
        while data:
            data = data[os.write(tell, data) :]
    finally:
        os._exit(rc)


def _let_go(keep: int) -> int:
    """In a fresh child: standard streams to /dev/null, every other descriptor closed but `keep`; its new number."""
    keep = fcntl.fcntl(keep, fcntl.F_DUPFD_CLOEXEC, 3)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    os.closerange(3, keep)
    os.closerange(keep + 1, highest + 1)
    return keep


def _read_all(fd: int, deadline: float) -> bytes | None:
    """A pipe's bytes up to its end; None when the end has not come by `deadline` (monotonic seconds)."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    parts: list[bytes] = []
    while poller.poll(milliseconds(deadline - time.monotonic())):
        part = os.read(fd, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return None


def _await(pid: int, wait_s: float) -> int | None:
    """Our child's exit status, collected; None when it still lives after `wait_s` seconds."""
    until = time.monotonic() + wait_s
    pidfd = pidfd_of(pid)
    tick_s = wait_s if pidfd >= 0 else 0.001
    while (rc := peek(pid)) is None and (left := until - time.monotonic()) > 0:
        sleep_on(pidfd, min(tick_s, left))
    if pidfd >= 0:
        os.close(pidfd)
    if rc is None:
        leave(pid)
    else:
        reap(pid)
    return rc
