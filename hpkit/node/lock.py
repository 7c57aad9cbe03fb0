"""The one lock that orders the hooks of a node: prolog, epilog and background round never run a round at once."""

from __future__ import annotations

import fcntl
import os
import time
from types import TracebackType

from hpkit import files, log
from hpkit.paths import Paths

TICK_S = 0.05


class Lock:
    """A held lock; the kernel frees it when the process ends, however it ends. `waited`: another hook had it first."""

    def __init__(self, fd: int, waited: bool) -> None:
        self._fd = fd
        self.waited = waited

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def acquire(paths: Paths, deadline: float, name: str = "lock") -> Lock | None:
    """Take the lock, waiting until `deadline` (time.monotonic) at most; None when another hook still has it then.

    The file's mode is 0600: whoever can open it could hold it for ever. Where there can be no file (a read-only or
    broken folder) the caller goes on without: two rounds at once cost time, but none at all would hide a bad node.
    """
    flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        files.ensure_dir(paths.run)
        fd = os.open(f"{paths.run}/{name}", flags, 0o600)
    except OSError as error:
        log.error("no-lock", name=name, why=error)
        return Lock(-1, False)
    waited = False
    try:
        while not _try(fd):
            waited = True
            if time.monotonic() >= deadline:
                os.close(fd)
                return None
            time.sleep(TICK_S)
    except BaseException:
        os.close(fd)
        raise
    return Lock(fd, waited)


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
