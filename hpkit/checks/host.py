"""The checks of the host itself: disks, expected mounts, memory."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hpkit.checks.model import Check, NoOptions, Seen
from hpkit.model import NO_DATA, Action, Finding, Space, Status, Unread, View
from hpkit.past import Past
from hpkit.probes import memory, mounts, place
from hpkit.probes.mounts import Asked
from hpkit.want import Want

GIB = 1 << 30
WRITABLE = frozenset(
    (
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "f2fs",
        "jfs",
        "bcachefs",
        "zfs",
        "lustre",
        "gpfs",
        "beegfs",
        "tmpfs",
    )
)
"""Kinds of file systems of which read-only means trouble. overlay, squashfs, iso9660 and NFS are read-only by design,
or tell nothing about the disk below."""
SCRATCH = "/tmp"  # named, not written to
UNANSWERED = (errno.ETIMEDOUT, errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH)
"""What a mount answers whose server or disk is gone: statfs(2), and ESTALE of NFS, ENOTCONN of FUSE and Lustre."""


class DiskOptions(NamedTuple):
    """Percent used of what ordinary users may write.

    Full is a failure only for the system's own file systems, and only when less than `fail_below_gib` GiB is left. A
    `/tmp` of its own and shared file systems are what jobs fill: a warning.
    """

    warn_percent: float = 95.0
    fail_percent: float = 99.0
    fail_below_gib: float = 2.0
    warn_inodes_percent: float = 95.0
    fail_inodes_percent: float = 99.5


class MemoryOptions(NamedTuple):
    """A warning below both `low_percent` and `low_gib` of available memory. `total_gib` is what the site expects: 10 %
    less than it is a failure (a DIMM is missing); without it the catalogue's size gives a warning at most."""

    low_percent: float = 2.0
    low_gib: float = 2.0
    total_gib: float = 0.0


def judge_disk(seen: Seen, _want: Want, _past: Past, options: DiskOptions) -> Iterable[Finding]:
    """Space, inodes and unexpected read-only, one finding for each file system."""
    step = seen(place.probe).view is View.STEP
    done = set()
    for asked in seen(mounts.probe).asked:
        point = asked.mount.point if asked.mount else asked.path
        if point in done or (asked.wanted and not asked.mounted):
            continue  # judged already, or not there: host.mounts tells
        done.add(point)
        if isinstance(asked.space, Space):
            yield _disk(asked, asked.space, options, step)
        elif not asked.wanted:
            text = f"{asked.path} does not tell its free space: {asked.space.why}"
            yield Finding("host.disk", asked.path, Status.ERROR, Action.NONE, text)


def _disk(asked: Asked, space: Space, options: DiskOptions, step: bool) -> Finding:
    """The worst about one file system."""
    if _turned_read_only(asked, space):
        return _read_only(asked)
    if space.read_only or (asked.mount is not None and "ro" in (*asked.mount.options, *asked.mount.state)):
        return _about(asked, Status.SKIP, "read-only by design: nobody fills it")
    if space.total <= 0:
        return _about(asked, Status.SKIP, "this file system has no size")
    used = 100.0 * (1 - space.avail / space.total)
    inodes = 100.0 * (1 - space.inodes_free / space.inodes) if space.inodes > 0 else 0.0
    text = f"{used:.0f} % used, {space.avail / GIB:.1f} GiB left"
    if space.inodes > 0:
        text += f"; {inodes:.0f} % of the inodes used"
    data = {"used_percent": round(used, 2), "inodes_percent": round(inodes, 2), "avail": space.avail}
    status = _fullness(asked, used, inodes, space.avail / GIB, options)
    if status is Status.FAIL and not step:
        return _about(asked, status, f"{asked.path} is full: {text}", Action.RETEST, data)
    if status is not Status.PASS:
        return _about(asked, Status.WARN, f"{asked.path} is nearly full: {text}", Action.OPERATOR, data)
    return _about(asked, status, text, data=data)


def _fullness(asked: Asked, used: float, inodes: float, left_gib: float, options: DiskOptions) -> Status:
    """What the percentages mean; full is a failure only where the system itself writes."""
    own = not asked.wanted and asked.path != SCRATCH
    full = used >= options.fail_percent and left_gib < options.fail_below_gib
    if own and (full or inodes >= options.fail_inodes_percent):
        return Status.FAIL
    high = used >= options.warn_percent or inodes >= options.warn_inodes_percent
    return Status.WARN if high else Status.PASS


def _about(
    asked: Asked, status: Status, text: str, action: Action = Action.NONE, data: Mapping[str, Any] = NO_DATA
) -> Finding:
    hint = (
        f"make room in {asked.path}; nothing can be written there when it is full"
        if action is not Action.NONE
        else ""
    )
    return Finding("host.disk", asked.path, status, action, text, hint, data=data)


def _turned_read_only(asked: Asked, space: Space) -> bool:
    """Read-only although it was mounted to be written to: that is what the kernel does after an I/O error.

    `mount -o ro` shows in the mount's own options; an error shows in the file system's state alone.
    """
    mount = asked.mount
    if mount is None or mount.kind not in WRITABLE or "ro" in mount.options:
        return False
    return space.read_only or "ro" in mount.state


def _read_only(asked: Asked) -> Finding:
    kind = asked.mount.kind if asked.mount else ""
    text = f"{asked.path} ({kind}) has become read-only, although it was mounted writable"
    hint = "see dmesg for the I/O error; check the disk and its file system before the next job"
    return Finding("host.disk", asked.path, Status.FAIL, Action.OPERATOR, text, hint)


def judge_mounts(seen: Seen, want: Want, _past: Past, _options: NoOptions) -> Iterable[Finding]:
    """Each wanted mount is there and answers. A dead one fails until it answers again in two rounds (`retest`)."""
    if not want.mounts:
        yield Finding("host.mounts", "", Status.SKIP, Action.NONE, "no mounts are wanted ([want] mounts)")
    where = seen(place.probe)
    for asked in seen(mounts.probe).asked:
        if asked.wanted:
            yield _mount(asked, where)


def _mount(asked: Asked, where: place.Place) -> Finding:
    path, answer = asked.path, asked.space
    if isinstance(answer, Unread) and answer.errno in UNANSWERED:
        if answer.errno == errno.ETIMEDOUT and not asked.fair:
            text = f"{path} had too little time to answer, for other mounts hang"
            return Finding("host.mounts", path, Status.ERROR, Action.NONE, text)
        kind = asked.mount.kind if asked.mount else "mount"
        text = f"{path} ({kind}) does not answer: {answer.why}"
        hint = (
            "see that its server is reachable from this node; remount it, or reboot if processes hang on it"
        )
        return Finding("host.mounts", path, Status.FAIL, Action.RETEST, text, hint)
    if not asked.mounted:
        return _not_mounted(path, where)
    if isinstance(answer, Unread) and answer.errno in (errno.EACCES, errno.EPERM) and not where.sees_all:
        return Finding(
            "host.mounts", path, Status.SKIP, Action.NONE, f"{path} may not be looked at: {answer.why}"
        )
    if isinstance(answer, Unread):
        return Finding(
            "host.mounts", path, Status.ERROR, Action.NONE, f"{path} could not be asked: {answer.why}"
        )
    kind = asked.mount.kind if asked.mount else ""
    return Finding("host.mounts", path, Status.PASS, Action.NONE, f"{kind} is mounted and answers")


def _not_mounted(path: str, where: place.Place) -> Finding:
    """A step may live in a mount namespace of its own; only the host's own table proves that a mount is missing."""
    if where.view is View.STEP:
        return Finding("host.mounts", path, Status.SKIP, Action.NONE, f"{path} is not mounted in this step")
    hint = f"mount {path}, or take it from [want] mounts"
    return Finding("host.mounts", path, Status.FAIL, Action.RETEST, f"{path} is not mounted", hint)


def judge_memory(seen: Seen, want: Want, _past: Past, options: MemoryOptions) -> Iterable[Finding]:
    """Total memory against the expectation, and how much is available now."""
    found = seen(memory.probe)
    total = found.total / GIB
    data = {"total": found.total, "available": found.available}
    expected = options.total_gib or want.memory_gib or 0.0
    if expected and total < 0.9 * expected:
        text = f"{total:.0f} GiB of memory, {expected:.0f} GiB expected"
        hint = "look for a missing or disabled memory module"
        status = Status.FAIL if options.total_gib else Status.WARN
        yield Finding("host.memory", "", status, Action.OPERATOR, text, hint, data=data)
        return
    if found.available is None:
        yield Finding("host.memory", "", Status.PASS, Action.NONE, f"{total:.1f} GiB of memory", data=data)
        return
    left = found.available / GIB
    text = f"{left:.1f} of {total:.1f} GiB available"
    if left < options.low_gib and left < total * options.low_percent / 100:
        hint = "look for processes that no job owns"
        yield Finding(
            "host.memory",
            "",
            Status.WARN,
            Action.OPERATOR,
            f"memory is nearly used up: {text}",
            hint,
            data=data,
        )
        return
    yield Finding("host.memory", "", Status.PASS, Action.NONE, text, data=data)


CHECKS = (
    Check(
        "host.disk",
        (place.probe, mounts.probe),
        judge_disk,
        "The system's and the wanted file systems have space and inodes left and were not turned read-only.",
        options=DiskOptions,
    ),
    Check(
        "host.mounts",
        (place.probe, mounts.probe),
        judge_mounts,
        "Every wanted mount is there and answers.",
    ),
    Check(
        "host.memory",
        (memory.probe,),
        judge_memory,
        "Memory is complete, and some of it is available.",
        options=MemoryOptions,
    ),
)
