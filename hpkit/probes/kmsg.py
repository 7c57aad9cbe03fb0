"""The kernel's log of this boot, kept as it is; `records` finds the lines of one driver in it.

Accepted are /dev/kmsg records (`prio,seq,usec,flags;text`, then continuation lines that begin with a space) and the
text that dmesg, syslog or the journal make of them.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import NamedTuple

from hpkit.host import Host
from hpkit.model import Unread
from hpkit.probes.nvml import suggested
from hpkit.want import Want

KMSG = "/dev/kmsg"
LIMIT = 64 << 20
"""More than any kernel's ring (log_buf_len is at most 2 GiB, but 16 MiB is what the largest machines use)."""

_RECORD = r"\d+,\d+,(\d+),[^;]*;(.*)\Z"
_STAMP = r"\d{4}-\d\d-\d\d[T ][\d:.,]{8,}(?:Z|[+-]\d\d:?\d\d)?"
_SYSLOG = rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|({_STAMP})) \S+ kernel: ?"
_BRACKET = r"(?:<\d+>)?\[([^\]]*)\] ?"
_SECONDS = r" *\d+\.\d+\Z"
_CTIME = r"[A-Z][a-z]{2} ([A-Z][a-z]{2}) +(\d+) (\d\d):(\d\d):(\d\d) (\d{4})\Z"
_ISO = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,]\d+)?(?:Z|([+-])(\d\d):?(\d\d))?\Z"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Kmsg(NamedTuple):
    """`raw` is the log, `booted` the wall time of the boot (seconds). `unread` says why there is no log.

    `closed` is True when only the permission is missing, `cut` when the log does not end with a whole line, `asked`
    False when nothing on this machine needs it.
    """

    raw: bytes = b""
    booted: float = 0.0
    unread: str = ""
    closed: bool = False
    cut: bool = False
    asked: bool = True


class Record(NamedTuple):
    """One line: its text without stamps and tags, and seconds since boot (None: the line has no usable time)."""

    uptime: float | None
    text: str


def probe(host: Host, _want: Want) -> Kmsg:
    """The whole log up to now; what cannot be read is told in `unread`, for the judge knows what that means here."""
    data = host.read(KMSG, LIMIT)
    if isinstance(data, Unread):
        return Kmsg(unread=f"{KMSG}: {data.why}", closed=data.errno in (errno.EPERM, errno.EACCES))
    clock = host.now()
    cut = len(data) >= LIMIT or not (not data or data.endswith(b"\n"))
    return Kmsg(data, clock.wall - clock.uptime, cut=cut)


def for_nvidia(host: Host, want: Want) -> Kmsg:
    """The log, read only where something suggests an NVIDIA GPU: thousands of records cost the prolog milliseconds."""
    return probe(host, want) if suggested(host, want) else Kmsg(asked=False)


def records(facts: Kmsg, needle: bytes) -> Iterator[Record]:
    """The lines that hold `needle`, in order of the log; the others are not even decoded."""
    at = facts.raw.find(needle)
    while at >= 0:
        start = facts.raw.rfind(b"\n", 0, at) + 1
        end = facts.raw.find(b"\n", at)
        end = len(facts.raw) if end < 0 else end
        line = facts.raw[start:end].decode("utf-8", "replace").rstrip("\r")
        if not line.startswith(" "):  # a continuation: the dictionary of a record, never its text
            yield parse(line, facts.booted)
        at = facts.raw.find(needle, end)


def parse(line: str, booted: float) -> Record:
    """One line of the log, in whatever form it was kept; `booted` is the wall time of this boot."""
    found = re.match(_RECORD, line, re.DOTALL)
    if found:
        return _tagged(found[2], float(found[1]) / 1e6)
    uptime: float | None = None
    prefix = re.match(_SYSLOG, line)
    if prefix:
        line = line[prefix.end() :]
        uptime = _iso(prefix[1], booted) if prefix[1] else None
    bracket = re.match(_BRACKET, line)
    if bracket and re.match(_SECONDS, bracket[1]):
        return _tagged(line[bracket.end() :], uptime if uptime is not None else float(bracket[1]))
    if bracket and re.match(_CTIME, bracket[1]):
        return _tagged(line[bracket.end() :], _ctime(bracket[1], booted))
    return _tagged(line, uptime)


def _tagged(text: str, uptime: float | None) -> Record:
    """The record without caller tags like `[ T1946]`."""
    bracket = re.match(_BRACKET, text)
    while bracket:
        text = text[bracket.end() :]
        bracket = re.match(_BRACKET, text)
    return Record(uptime, text.strip())


def _iso(stamp: str, booted: float) -> float | None:
    """ISO 8601 as seconds since boot (negative: a former boot); a stamp without zone is UTC."""
    found = re.match(_ISO, stamp)
    if not found:
        return None
    sign, hours, minutes = found[7], int(found[8] or 0), int(found[9] or 0)
    offset = (hours * 3600 + minutes * 60) * (-1 if sign == "-" else 1)
    wall = _wall(*(int(found[n]) for n in range(1, 7)))
    return None if wall is None else wall - offset - booted


def _ctime(stamp: str, booted: float) -> float | None:
    """The stamp of `dmesg -T` as seconds since boot; it is taken as UTC, for it does not tell its zone."""
    found = re.match(_CTIME, stamp)
    if not found or found[1] not in _MONTHS:
        return None
    day, hour, minute, second, year = (int(found[n]) for n in (2, 3, 4, 5, 6))
    wall = _wall(year, _MONTHS.index(found[1]) + 1, day, hour, minute, second)
    return None if wall is None else wall - booted


def _wall(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    from datetime import datetime, timezone  # imported here: /dev/kmsg never needs it

    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
