"""The node's memory, from /proc/meminfo."""

from __future__ import annotations

from typing import NamedTuple

from hpkit.errors import CannotTell
from hpkit.host import Host
from hpkit.model import Unread
from hpkit.want import Want

MEMINFO = "/proc/meminfo"


class Memory(NamedTuple):
    """Bytes; `available` is None on kernels that do not tell (before 3.14)."""

    total: int
    available: int | None


def probe(host: Host, _want: Want) -> Memory:
    """Total and available memory; raises CannotTell when the file is unreadable or cut off."""
    data = host.read(MEMINFO)
    if isinstance(data, Unread):
        raise CannotTell(f"{MEMINFO}: {data.why}")
    sizes = dict(filter(None, map(_row, data.decode("ascii", "replace").splitlines())))
    if "MemTotal" not in sizes or "MemFree" not in sizes:
        raise CannotTell(f"{MEMINFO} has no MemTotal or MemFree line")
    if "MemAvailable" not in sizes and "Buffers" not in sizes:
        raise CannotTell(f"{MEMINFO} is cut off")
    return Memory(sizes["MemTotal"], sizes.get("MemAvailable"))


def _row(line: str) -> tuple[str, int] | None:
    """`MemTotal:  2113929216 kB` as a name and bytes; None for any other line."""
    name, colon, rest = line.partition(":")
    words = rest.split()
    if not colon or len(words) != 2 or words[1] != "kB" or not words[0].isdecimal() or len(words[0]) > 18:
        return None
    return name, int(words[0]) * 1024
