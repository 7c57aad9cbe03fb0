"""The mount table, and how much room is where; a mount that is dead costs its own short deadline and no more."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from hpkit.errors import CannotTell
from hpkit.host import Host
from hpkit.model import Space, Unread
from hpkit.want import Want

MOUNTINFO, MOUNTS = "/proc/self/mountinfo", "/proc/mounts"
LIMIT = 8 << 20
SYSTEM = ("/", "/tmp", "/var")  # looked at, never written to
ASK_S = 2.0
FAIR_S = 1.0
"""Who gets less than this to answer is not called dead: a busy file server takes hundreds of milliseconds."""
QUICK_S = 0.2
ALL_S = 5.0
"""All questions together, half of a prolog's budget; beyond it each mount gets QUICK_S, enough for one that lives."""
_OCTAL = r"\\([0-7]{3})"


class Mount(NamedTuple):
    """A mount as the kernel lists it.

    `options` are the mount's own. `layered` is True when they are known apart from the file system's state: then a file
    system that is read-only under a mount that is not was turned read-only by the kernel, not by the administrator.
    """

    point: str
    kind: str
    source: str
    options: tuple[str, ...]
    state: tuple[str, ...]
    layered: bool


class Asked(NamedTuple):
    """One place that was asked: its path as wanted (or a system path), the mount that holds it, and its answer.

    `fair` is False when it had less than FAIR_S to answer. `wanted` paths come from the site.
    """

    path: str
    mount: Mount | None
    space: Space | Unread
    fair: bool
    wanted: bool

    @property
    def mounted(self) -> bool:
        """Whether something is mounted at that very path (an automounter that has mounted nothing does not count)."""
        return self.mount is not None and self.mount.point == self.path and self.mount.kind != "autofs"


class Mounts(NamedTuple):
    """The places that were asked: the system's own (once for each file system), then the wanted ones."""

    asked: tuple[Asked, ...]


class _Patience:
    """What is left of ALL_S for questions to mounts."""

    def __init__(self) -> None:
        self._end = time.monotonic() + ALL_S

    def next(self) -> float:
        """Seconds that the next mount gets."""
        left = self._end - time.monotonic()
        return min(ASK_S, left) if left >= FAIR_S else QUICK_S


def probe(host: Host, want: Want) -> Mounts:
    """Ask the system's and the wanted file systems; raises CannotTell when there is no mount table."""
    mounts = table(host)
    patience = _Patience()
    asked = [_ask(host, mounts, path, patience, False) for path in _own_file_systems(mounts)]
    wanted = [_ask(host, mounts, _target(host, path), patience, True) for path in want.mounts]
    if any(a.mount is not None and a.mount.kind == "autofs" for a in wanted):  # our question made it mount
        mounts = table(host)
        wanted = [a._replace(mount=holder(mounts, a.path)) for a in wanted]
    named = [
        a._replace(path=path, mount=_renamed(a, path)) for a, path in zip(wanted, want.mounts, strict=True)
    ]
    return Mounts((*asked, *named))


def table(host: Host) -> tuple[Mount, ...]:
    """The mounts in the kernel's order: of two at one place the later one hides the other."""
    data = host.read(MOUNTINFO, LIMIT)
    layered = not isinstance(data, Unread)
    if isinstance(data, Unread):
        first = data.why
        data = host.read(MOUNTS, LIMIT)
        if isinstance(data, Unread):
            raise CannotTell(f"{MOUNTINFO}: {first}; {MOUNTS}: {data.why}")
    if not data.endswith(b"\n"):
        raise CannotTell("the mount table is empty or cut off")
    # Not splitlines: users name mount points, and the kernel escapes no other letter that ends a line for Python.
    rows = data.decode("utf-8", "surrogateescape").split("\n")[:-1]
    return tuple(_layered_row(row) if layered else _plain_row(row) for row in rows)


def holder(mounts: tuple[Mount, ...], path: str) -> Mount | None:
    """The mount that holds `path`."""
    best: Mount | None = None
    for mount in mounts:
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _own_file_systems(mounts: tuple[Mount, ...]) -> list[str]:
    """`/`, and `/tmp` and `/var` where they are file systems of their own."""
    points = {mount.point for mount in mounts}
    return [path for path in SYSTEM if path == "/" or path in points]


def _ask(host: Host, mounts: tuple[Mount, ...], path: str, patience: _Patience, wanted: bool) -> Asked:
    given = patience.next()
    mount = holder(mounts, path)
    return Asked(path, mount, host.space(path, given), given >= FAIR_S, wanted)


def _target(host: Host, path: str) -> str:
    """Where a wanted path leads when it is a link itself; mounts are listed by their real place."""
    plain = path.rstrip("/") or "/"
    target = host.link(plain)
    if isinstance(target, Unread):
        return plain
    joined = target if target.startswith("/") else f"{plain.rpartition('/')[0]}/{target}"
    return joined.rstrip("/") or "/"


def _renamed(asked: Asked, path: str) -> Mount | None:
    """The mount under the name that the site uses, so that `mounted` compares like with like."""
    if asked.mount is None or not asked.mounted:
        return asked.mount
    return asked.mount._replace(point=path)


def _layered_row(row: str) -> Mount:
    """`36 35 98:0 / /mnt rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue` (proc(5), /proc/pid/mountinfo)."""
    left, dash, right = row.partition(" - ")
    mine, theirs = left.split(" "), right.split(" ")
    if not dash or len(mine) < 6 or len(theirs) < 3:
        raise CannotTell(f"a line of {MOUNTINFO} is not understood: {row[:120]!r}")
    return Mount(
        _unescape(mine[4]),
        theirs[0],
        _unescape(theirs[1]),
        tuple(mine[5].split(",")),
        tuple(theirs[2].split(",")),
        True,
    )


def _plain_row(row: str) -> Mount:
    """`/dev/sda1 /mnt ext4 rw,noatime 0 0` (fstab(5))."""
    words = row.split(" ")
    if len(words) < 4:
        raise CannotTell(f"a line of {MOUNTS} is not understood: {row[:120]!r}")
    options = tuple(words[3].split(","))
    return Mount(_unescape(words[1]), words[2], _unescape(words[0]), options, options, False)


def _unescape(text: str) -> str:
    """The kernel writes space, tab, newline and backslash as `\\040` and the like."""
    return re.sub(_OCTAL, lambda found: chr(int(found[1], 8)), text) if "\\" in text else text
