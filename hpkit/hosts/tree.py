"""Files, folders and links of a machine: the real one, or one kept below a folder that no path can leave.

Nothing here raises for what a path holds, blocks on a FIFO or opens a device other than the kernel log.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TypeVar

from hpkit.model import Unread

T = TypeVar("T")

KMSG = "/dev/kmsg"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
MAX_LINKS = 40  # the kernel's own limit
_KMSG_DEVICE = os.makedev(1, 11)
_RECORD = 16384  # more than the longest record of /dev/kmsg (8 KiB)
_MAX_RECORDS = 1_000_000  # so that a kernel that logs faster than we read cannot hold us


class Tree:
    """A tree of files; paths are absolute paths of its machine.

    With a `base` folder they mean what is below it: links are resolved here, component by component, an absolute
    target starts at `base` again and `..` stops there. Without, the kernel does all that.
    """

    def __init__(self, base: str = "") -> None:
        self._base = base

    def read(self, path: str, limit: int) -> bytes | Unread:
        """A regular file's first `limit` bytes; of the kernel log the last ones, whole records."""
        return _told(path, lambda: _read(self.resolve(path), limit, self._base, _plain(path) == KMSG))

    def list(self, path: str) -> tuple[str, ...] | Unread:
        """The sorted names in a folder."""
        return _told(path, lambda: tuple(sorted(os.listdir(self.resolve(path)))))

    def link(self, path: str) -> str | Unread:
        """The text of a link, as it stands."""
        return _told(path, lambda: os.readlink(self.resolve(path, follow_last=False)))

    def resolve(self, path: str, *, follow_last: bool = True) -> str:
        """Where a path really is. Raises OSError (ENOENT, ELOOP, …), ValueError for a path with a NUL."""
        if not self._base:
            return path
        done: list[str] = []
        todo = path.split("/")[::-1]
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                del done[-1:]
            if part in ("", ".", ".."):
                continue
            here = "/".join((self._base, *done, part))
            target = _target(here) if follow_last or any(todo) else None
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                done.clear()
            todo += target.split("/")[::-1]
        return "/".join((self._base, *done)) or "/"


def _plain(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part)


def _told(path: str, ask: Callable[[], T]) -> T | Unread:
    """An answer, or why there is none."""
    try:
        return ask()
    except OSError as error:
        return Unread(path, error.errno or errno.EIO, error.strerror or str(error))
    except ValueError as error:  # a NUL, or a letter that no file name can hold
        return Unread(path, errno.EINVAL, str(error))


def _target(path: str) -> str | None:
    """The target of a link, None for anything else that exists."""
    try:
        return os.readlink(path)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        raise


def _read(path: str, limit: int, base: str, kernel_log: bool) -> bytes:
    """Look before opening: to open a device may already do something (a watchdog starts)."""
    found = os.stat(path, follow_symlinks=not base)
    records = not base and stat.S_ISCHR(found.st_mode) and found.st_rdev == _KMSG_DEVICE
    if not (records or stat.S_ISREG(found.st_mode)):
        raise _no_file(found, path)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (os.O_NOFOLLOW if base else 0)
    fd = os.open(path, flags)
    try:
        opened = os.fstat(fd)
        if (stat.S_IFMT(opened.st_mode), opened.st_rdev) != (stat.S_IFMT(found.st_mode), found.st_rdev):
            raise _no_file(opened, path)
        if records:
            return _read_records(fd, limit)
        if not kernel_log:
            return _read_bytes(fd, limit)
        return _newest(_read_bytes(fd, limit, max(0, opened.st_size - limit)), opened.st_size > limit)
    finally:
        os.close(fd)


def _no_file(found: os.stat_result, path: str) -> OSError:
    number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
    return OSError(number, "is a folder" if number == errno.EISDIR else "is no regular file", path)


def _read_bytes(fd: int, limit: int, start: int = 0) -> bytes:
    if start:
        os.lseek(fd, start, os.SEEK_SET)
    parts: list[bytes] = []
    while limit > 0:
        part = os.read(fd, min(limit, 1 << 20))
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _newest(data: bytes, cut: bool) -> bytes:
    """Without the part of a record that a cut left at the beginning."""
    return data.partition(b"\n")[2] if cut else data


def _read_records(fd: int, limit: int) -> bytes:
    """The kernel log up to its present end; each read(2) gives one record."""
    kept: list[bytes] = []
    for _ in range(_MAX_RECORDS):
        try:
            record = os.read(fd, _RECORD)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno == errno.EPIPE:  # overwritten while we read: go on with the oldest there is
                continue
            raise
        if not record:
            break
        kept.append(record)
    size = 0
    for index in range(len(kept) - 1, -1, -1):
        size += len(kept[index])
        if size > limit:
            return b"".join(kept[index + 1 :])
    return b"".join(kept)
