"""hpkit's own files: written whole or not at all, read without following links, blocking, or growing.

Only for files below `Paths`; the machine's files are read through host.py.
"""

from __future__ import annotations

import os
import stat
from typing import Any, NamedTuple

LIMIT = 65536
BROKEN = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What taking a document apart can raise that hpkit did not write like that."""


class Small(NamedTuple):
    """A small regular file: its bytes, the uid that owns it, and its time of last change (wall seconds)."""

    data: bytes
    uid: int
    mtime: float


def write_atomic(path: str, data: bytes | str, mode: int = 0o644, *, durable: bool = True) -> None:
    """Replace `path` by a file with exactly these bytes and this mode; raises OSError and then leaves no trace.

    A reader sees the old or the new content, never a part. With `durable` the bytes are on the disk before the name
    changes; files of one boot (below `Paths.run`) need no such wait.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            _write_all(fd, data.encode() if isinstance(data, str) else data)
            os.fchmod(fd, mode)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    if durable:
        _sync_folder(folder or ".")


def read_owned(path: str, limit: int = LIMIT, *, dir_fd: int | None = None) -> Small | None:
    """A regular file of at most `limit` bytes with its owner.

    None when there is none, when it is a link, FIFO, folder or device, when it has a second name (a hard link may lead
    to somebody else's file), when it may not be read, or when it is longer than `limit`. Never blocks on a FIFO.
    """
    try:
        if not _plain(os.stat(path, dir_fd=dir_fd, follow_symlinks=False)):
            return None
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(fd)
        if not _plain(found) or found.st_size > limit:
            return None
        data = _read_up_to(fd, limit + 1)
        return Small(data, found.st_uid, found.st_mtime) if len(data) <= limit else None
    except OSError:
        return None
    finally:
        os.close(fd)


def read_small(path: str, limit: int = LIMIT) -> bytes | None:
    """The bytes of a regular file of at most `limit` bytes; None in every case that `read_owned` names."""
    found = read_owned(path, limit)
    return None if found is None else found.data


def read_json(path: str, limit: int = LIMIT) -> Any:
    """The JSON document in a file of ours; None when there is none, and when the file holds anything else."""
    import json

    try:
        return json.loads(read_small(path, limit) or b"null")
    except (ValueError, RecursionError):
        return None


def ensure_dir(path: str, mode: int = 0o755) -> None:
    """Make a folder (and those above it, 0755) with exactly this mode; raises OSError, also when `path` is a link."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        parent = os.path.dirname(path)
        if parent and not os.path.isdir(parent):
            ensure_dir(parent)
        _make(path)
        found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "exists and is no folder", path)
    if stat.S_IMODE(found.st_mode) != mode and found.st_uid == os.geteuid():
        os.chmod(path, mode)


def remove(path: str) -> bool:
    """Remove one name; False when there was none or it could not be removed."""
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another hook was faster


def _plain(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_nlink <= 1  # 0: replaced by its writer since we opened it


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_up_to(fd: int, limit: int) -> bytes:
    parts: list[bytes] = []
    while limit > 0:
        part = os.read(fd, limit)
        if not part:
            break
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
