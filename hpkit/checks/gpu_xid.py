"""gpu.xid: errors that NVIDIA's driver wrote to the kernel log since boot, or since the node was accepted anew.

The code stands after the bracket; the number in the bracket is the PCI bus. A line counts only when it begins with
`NVRM:`, so a program's log that quotes one does not. Code 0 means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from hpkit.checks.gpu_names import Names
from hpkit.checks.model import Seen
from hpkit.checks.stamp import utc
from hpkit.model import Action, Finding, Status
from hpkit.past import Past
from hpkit.probes import kmsg as kmsg_probe
from hpkit.probes import pci as pci_probe
from hpkit.probes import place as place_probe
from hpkit.probes.kmsg import Kmsg, Record
from hpkit.probes.pci import normalise
from hpkit.probes.place import Place
from hpkit.want import Want

if TYPE_CHECKING:
    from hpkit.catalog.xid import Xid

NAME = "gpu.xid"
TOLD = 20
"""Events in a finding's data, newest last; a broken GPU writes thousands."""
_BDF = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"
_XID = rf"NVRM: Xid \((?:PCI:)?{_BDF}[^)]*\): ([0-9]{{1,6}})(?![\w.])(?:,\s*(.*))?"
_FELL_OFF = rf"NVRM: GPU (?:at )?(?:PCI:)?{_BDF}: GPU has fallen off the bus"
_NAMED = rf"NVRM: The NVIDIA GPU {_BDF}"
_FELL_OFF_TAIL = r"NVRM: (?:has )?fallen off the bus and is not responding to commands"
_DRIVERS = r"NVRM: Xid \((?:PCI:[0-9a-fA-F]|[0-9a-fA-F]{4}:)"
# 16 letters: a program's name, with which the kernel begins some lines (`NAME[PID]: segfault at`), has 15 at most.
_RECOVERY = r"changed from 0x[0-9a-fA-F]+.* to 0x([0-9a-fA-F]+)"
_FATAL = r"(?<![A-Za-z-])Fatal\b"
# Patterns are text, compiled by `re` when the first line needs them: most rounds see no line of the driver at all.
HINTS = {
    Action.RESET: "let the jobs end, then reset the GPU (nvidia-smi --gpu-reset) or reboot",
    Action.REBOOT: "reboot the node; if it comes back, replace the GPU",
    Action.OPERATOR: "look the code up in NVIDIA's Xid catalogue; dmesg has the lines around it",
    Action.NONE: "usually a program's own fault; look at the job that ran then",
}


class XidOptions(NamedTuple):
    """`ignore`: codes that are only noted. `recent_s`: how long a code that no action cures stays a warning (seconds);
    older ones are only noted, for a program's crash of last week says nothing about the node."""

    ignore: tuple[int, ...] = ()
    recent_s: float = 3600.0


class Event(NamedTuple):
    """One error: seconds since boot (None when the line has no usable time), normalised PCI address, code, text.

    `code` is None for a line that begins like an Xid and could not be understood.
    """

    uptime: float | None
    pci: str
    code: int | None
    text: str


def judge(seen: Seen, want: Want, past: Past, options: XidOptions) -> Iterable[Finding]:
    """One finding for each GPU with errors, one for the node when there are none or when the log could not be read."""
    place, pci, kmsg = seen(place_probe.probe), seen(pci_probe.probe), seen(kmsg_probe.for_nvidia)
    if not kmsg.asked:
        yield _finding("", Status.SKIP, Action.NONE, "no NVIDIA GPU found, and none is wanted")
        return
    if kmsg.unread:
        yield _unread(kmsg, place, want)
        return
    names = Names(pci)
    by_gpu: dict[str, list[Event]] = {}
    for event in events(kmsg):
        if event.uptime is None or max(0.0, past.accepted_uptime) < event.uptime:
            by_gpu.setdefault(names(event.pci), []).append(event)
    found = [_gpu(subject, list_of, place, options) for subject, list_of in by_gpu.items()]
    if kmsg.cut:
        found.append(
            _finding("", Status.ERROR, Action.NONE, "the kernel log is cut off: newer lines are missing")
        )
    yield from found or [
        _finding("", Status.PASS, Action.NONE, f"no Xid since {past.accepted_why or 'boot'}")
    ]


def _unread(kmsg: Kmsg, place: Place, want: Want) -> Finding:
    """Users may not read the kernel log; root on a node with GPUs ought to."""
    if not place.sees_all and kmsg.closed:
        return _finding("", Status.SKIP, Action.NONE, f"only root may read the kernel log ({kmsg.unread})")
    if place.sees_all and want.gpus:
        hint = "the background round must run as root on the host, with CAP_SYSLOG"
        return _finding("", Status.ERROR, Action.NONE, f"the kernel log cannot be read ({kmsg.unread})", hint)
    return _finding("", Status.SKIP, Action.NONE, f"the kernel log cannot be read ({kmsg.unread})")


def events(kmsg: Kmsg) -> Iterator[Event]:
    """The driver's errors in a log, in its order; code 0 is left out."""
    named = ""
    for record in kmsg_probe.records(kmsg, b"NVRM"):
        hit = re.match(_NAMED, record.text)
        if hit:
            named = hit[1]
        event = _event(record, named)
        if event is not None and event.code != 0:
            yield event


def _event(record: Record, named: str) -> Event | None:
    """The error in one line; `named` is the GPU that a line before it named."""
    text = record.text
    xid = re.match(_XID, text, re.DOTALL)
    if xid:
        return Event(record.uptime, normalise(xid[1]), int(xid[2]), (xid[3] or "").strip())
    fell = re.match(_FELL_OFF, text)
    if fell:
        return Event(record.uptime, normalise(fell[1]), 79, "GPU has fallen off the bus")
    if re.match(_FELL_OFF_TAIL, text):
        return Event(record.uptime, normalise(named), 79, "GPU has fallen off the bus and does not respond")
    return Event(record.uptime, "", None, text[:120]) if text.startswith("NVRM: Xid") else None


def _gpu(subject: str, found: list[Event], place: Place, options: XidOptions) -> Finding:
    """The worst of one GPU's errors speaks; the others are named beside it."""
    rated = [(event, _rate(event, found, place, options)) for event in found]
    event, xid = min(rated, key=lambda r: (r[1].status.rank, -r[1].action.weight, -(r[0].uptime or 0.0)))
    same = sum(e.code == event.code for e in found)
    others = sorted({e.code for e in found if e.code is not None and e.code != event.code})
    text = f"Xid {event.code}: {xid.name}" if event.code is not None else f"{xid.name}: {event.text}"
    if xid.status is Status.PASS:
        text = f"only noted: {text}"
    text += f" ({same} times, last {_when(event, place)})" if same > 1 else f" ({_when(event, place)})"
    if event.pci and event.pci != subject:
        text += f" at {event.pci}"
    if others:
        text += f"; also Xid {', '.join(map(str, others[:8]))}"
    data = {
        "pci": event.pci,
        "xids": [{"code": e.code, "uptime": e.uptime, "text": e.text[:200]} for e in found[-TOLD:]],
    }
    hint = "" if xid.status is Status.PASS else HINTS[xid.action]
    return _finding(subject, xid.status, xid.action, text, hint, data)


def _rate(event: Event, found: list[Event], place: Place, options: XidOptions) -> Xid:
    """What one error means here and now."""
    from hpkit.catalog.xid import (
        NVLINK5,
        RECOVERIES,
        RECOVERY,
        Xid,
        lookup,
    )  # imported here: most nodes have none

    if event.code is not None:
        xid = lookup(event.code)
    elif re.match(_DRIVERS, event.text):
        xid = Xid("an Xid line is not understood", Status.ERROR)
    else:  # a form that is new, or a program of that name, which any user may run
        xid = Xid("this begins like an Xid", Status.WARN)
    if event.code == RECOVERY:
        xid = _recovery(event, found, RECOVERIES)
    elif event.code in NVLINK5 and re.search(_FATAL, event.text):
        xid = xid._replace(status=Status.FAIL, action=Action.RESET)
    recent = event.uptime is None or place.uptime - event.uptime <= options.recent_s
    program = xid.status is Status.WARN and xid.action is Action.NONE
    if event.code in options.ignore or (program and not recent):
        return xid._replace(status=Status.PASS, action=Action.NONE)
    return xid


def _recovery(event: Event, found: list[Event], table: dict[int, Xid]) -> Xid:
    """Xid 154 tells a state: only the last one of a GPU holds, and "none" takes the former ones back."""
    last = [e for e in found if e.code == event.code][-1]
    hit = re.search(_RECOVERY, last.text, re.DOTALL)
    if not hit:
        return table[0]._replace(
            name="recovery action is not understood", status=Status.WARN, action=Action.OPERATOR
        )
    wanted = table.get(int(hit[1], 16))
    return wanted or table[3]._replace(name=f"the driver asks for recovery 0x{hit[1]}")


def _when(event: Event, place: Place) -> str:
    """The wall time of an event, UTC."""
    if event.uptime is None:
        return "at an unknown time"
    return utc(place.wall - place.uptime + event.uptime)


def _finding(
    subject: str,
    status: Status,
    action: Action,
    text: str,
    hint: str = "",
    data: dict[str, Any] | None = None,
) -> Finding:
    return Finding(NAME, subject, status, action, text, hint, data=data or {})
