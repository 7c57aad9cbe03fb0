"""Processes by pid: whose they are, whether they live, how to signal and end exactly the right one.

Starts nothing. `proc` offers these names; the rest of hpkit takes them from there.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import NamedTuple

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NO_STATUS = -1000
TICK_S = 0.05  # how often we look where the kernel has no pidfd (before 5.3)
KILL_WAIT_S = 1.0  # SIGKILL works at once unless the process sits in the kernel

_left: list[int] = []  # our children that could not be killed


class Ran(NamedTuple):
    """How a program ended.

    `rc` is its exit status, `-N` when signal N ended it, `-1000` when it never started, never ended, or nobody knows.
    `failure` is "" (it ran to its end), "missing", "denied", "timeout" (killed at its deadline) or "stuck" (could not
    be killed: left behind, `pid` and `started` tell which one). `truncated` means output beyond the limit was dropped.
    """

    argv: tuple[str, ...]
    rc: int
    stdout: bytes
    stderr: bytes
    seconds: float
    failure: str = ""
    truncated: bool = False
    pid: int = 0
    started: int = 0

    @property
    def ok(self) -> bool:
        """It ran to its end and exited 0."""
        return not self.failure and self.rc == 0

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")


class Stamp(NamedTuple):
    """A process that cannot be mistaken for a later one with the same pid: `started` is field 22 of /proc/PID/stat."""

    pid: int
    started: int


class Child:
    """A program that goes on beside us (hp-srun's srun, a daemon of the sandbox). Not for use from two threads.

    All methods may be called from a Python signal handler that interrupts one of them.
    """

    stamp: Stamp

    def __init__(self, pid: int) -> None:
        self.stamp = stamp(pid) or Stamp(pid, 0)
        self._pidfd = pidfd_of(pid)
        self._rc: int | None = None

    def __del__(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)

    def poll(self) -> int | None:
        """Its exit status (-N for signal N), None while it runs."""
        if self._rc is None:
            # Look first, keep the status, reap last: a signal handler may poll between any two of these steps.
            rc = peek(self.stamp.pid)
            if rc is not None and self._rc is None:
                self._rc = rc
                reap(self.stamp.pid)
        return self._rc

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; None when it still runs after `timeout_s`."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while self.poll() is None:
            left = TICK_S if self._pidfd < 0 else 3600.0
            if until is not None:
                left = min(left, until - time.monotonic())
                if left <= 0:
                    break
            sleep_on(self._pidfd, left)
        return self._rc

    def signal(self, number: int) -> bool:
        """Send a signal to this process; False when it has ended."""
        return self.poll() is None and _send(self.stamp.pid, self._pidfd, number)


def stamp(pid: int) -> Stamp | None:
    """The stamp of a running process, None when there is none."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else Stamp(pid, int(fields[19]))


class Kin(NamedTuple):
    """A process somebody asked for: its real uid, its short name, and its title (arguments joined by blanks)."""

    stamp: Stamp
    uid: int
    name: str
    title: str


def ancestors() -> tuple[Kin, ...]:
    """The processes above us, our parent first, as far up as they can be read."""
    found: list[Kin] = []
    pid = os.getppid()
    while pid > 0 and (fields := _stat(pid)) is not None:
        kin = _kin(pid, int(fields[19]))
        if kin is None:
            break
        found.append(kin)
        pid = int(fields[1])
    return tuple(found)


def titled(prefix: str, uid: int) -> tuple[Kin, ...]:
    """The processes of this machine with this real uid whose title begins so; a title is the process's own claim."""
    wanted = prefix.encode()
    found: list[Kin] = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                begins = file.read(len(wanted)) == wanted
        except OSError:
            continue
        fields = _stat(int(name)) if begins else None
        kin = _kin(int(name), int(fields[19])) if fields else None
        if kin is not None and kin.uid == uid:
            found.append(kin)
    return tuple(found)


def kill(process: Stamp) -> bool:
    """SIGKILL to exactly that process, at once; False when it was gone or may not be signalled."""
    pidfd = pidfd_of(process.pid)
    try:
        return alive(process) and _send(process.pid, pidfd, signal.SIGKILL)
    finally:
        if pidfd >= 0:
            os.close(pidfd)


def _kin(pid: int, started: int) -> Kin | None:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            status = dict(line.split(b":", 1) for line in file.read().splitlines() if b":" in line)
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            title = file.read().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
        name = status[b"Name"].strip().decode("utf-8", "replace")
        return Kin(Stamp(pid, started), int(status[b"Uid"].split()[0]), name, title)
    except (OSError, KeyError, ValueError):
        return None


def alive(process: Stamp) -> bool:
    """Whether exactly that process still exists (a zombie does not count)."""
    return stamp(process.pid) == process


def end(process: Stamp, *, grace_s: float = 2.0, group: bool = False) -> bool:
    """SIGTERM, then SIGKILL, to exactly that process (or its whole process group); True when it is gone.

    With `group`, the group is the one that the process leads; one that leads none is ended alone.
    """
    members = _group(process.pid) if group and alive(process) else []
    wanted = [process, *(member for member in members if member != process)]
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, KILL_WAIT_S)):
        for each in wanted:
            _end_one(each, number)
        until = time.monotonic() + wait_s
        while any(map(alive, wanted)) and time.monotonic() < until:
            time.sleep(0.01)
    return not any(map(alive, wanted))


def _end_one(process: Stamp, number: int) -> None:
    """Signal exactly that process: the stamp is compared after the pidfd pins it."""
    pidfd = pidfd_of(process.pid)
    try:
        if alive(process):
            _send(process.pid, pidfd, number)
            _send(process.pid, pidfd, signal.SIGCONT)
    finally:
        if pidfd >= 0:
            os.close(pidfd)


def _group(leader: int) -> list[Stamp]:
    """The living members of the process group that `leader` leads."""
    found = []
    for name in os.listdir("/proc"):
        fields = _stat(int(name)) if name.isdigit() else None
        if fields and int(fields[2]) == leader and (member := stamp(int(name))):
            found.append(member)
    return found


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third (state) on; the command's name before it may hold anything."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def peek(pid: int) -> int | None:
    """Our child's exit status without reaping it; None while it runs, -1000 when somebody else took it."""
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return NO_STATUS
    if found is None:
        return None
    return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status


def reap(pid: int, *, block: bool = False) -> bool:
    """Collect a child that has ended; False when it still runs (`block` waits for it)."""
    try:
        return os.waitpid(pid, 0 if block else os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def leave(pid: int) -> None:
    """Remember a child that could not be killed, so that `reap_left` collects it when it has ended after all."""
    _left.append(pid)


def reap_left() -> None:
    """Collect those left-behind children that have ended meanwhile: a watcher that runs for months keeps no zombies."""
    _left[:] = [pid for pid in _left if not reap(pid)]


def pidfd_of(pid: int) -> int:
    """A descriptor that pins the process, readable when it has ended; -1 where the kernel or Python has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def sleep_on(pidfd: int, wait_s: float) -> None:
    """Sleep until the process behind the pidfd ends, or for `wait_s`."""
    poller = select.poll()
    if pidfd >= 0:
        poller.register(pidfd, select.POLLIN)
    poller.poll(milliseconds(wait_s))


def milliseconds(seconds: float) -> int:
    """A wait for poll(2): never shorter than asked, at most an hour."""
    return int(min(max(seconds, 0.0), 3600.0) * 1000) + (1 if seconds > 0 else 0)


def _send(pid: int, pidfd: int, number: int) -> bool:
    try:
        if pidfd >= 0:
            signal.pidfd_send_signal(pidfd, number)
        else:
            os.kill(pid, number)
    except OSError:
        return False
    return True
