"""Free space as a small JSON document: how a child tells it, and how a bundle keeps it."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from hpkit.model import Space, Unread


def statvfs(find: Callable[[], str], hang_s: float = 0.0) -> bytes:
    """The document for the file system that `find` names, or {"errno": N}; for a child process: it may never return.

    `hang_s` is how long a simulated dead mount takes to answer.
    """
    if hang_s > 0:
        time.sleep(hang_s)
    try:
        found = os.statvfs(find())
    except OSError as error:
        return json.dumps({"errno": error.errno}).encode()
    except ValueError:  # a NUL in the path
        return json.dumps({"errno": errno.EINVAL}).encode()
    space = Space(
        total=found.f_blocks * found.f_frsize,
        avail=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_free=found.f_favail,
        read_only=bool(found.f_flag & os.ST_RDONLY),
    )
    return json.dumps(space._asdict()).encode()


def space_from(path: str, document: Mapping[str, Any]) -> Space | Unread:
    """The answer in a document; one that makes no sense is EINVAL, one that hangs ETIMEDOUT."""
    try:
        if "hang" in document:
            return Unread(path, errno.ETIMEDOUT, "no answer in time")
        if "errno" in document:
            number = int(document["errno"])
            return Unread(path, number, str(document.get("why") or os.strerror(number)))
        total, avail, inodes, free = (
            int(document[name]) for name in ("total", "avail", "inodes", "inodes_free")
        )
        return Space(total, avail, inodes, free, bool(document["read_only"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return Unread(path, errno.EINVAL, "this answer of the bundle makes no sense")


def space_document(answer: Space | Unread) -> dict[str, Any]:
    """The document of an answer; the reverse of `space_from`."""
    if isinstance(answer, Unread):
        return {"errno": answer.errno, "why": answer.why}
    return answer._asdict()
