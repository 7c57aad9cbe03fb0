"""The accepted baseline of a node: boot, identities, counters, latched failures. It moves by acceptance only."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hpkit.model import Clock, Finding, finding_document, finding_from
from hpkit.paths import Paths

NONE: Mapping[str, int] = MappingProxyType({})
SCHEMA = "hpkit.past/1"
LIMIT = 4 << 20


class Past(NamedTuple):
    """`counters` were accepted at `accepted_at` (wall seconds) because of `accepted_why` ("boot", "reset", "deep").

    `latched` holds failures of this boot that stay until acceptance; `blind` counts rounds in a row in which a check
    could not tell. `note` says why the stored past could not be used ("" when it could): the next round tells it.
    """

    boot_id: str = ""
    accepted_at: float = 0.0
    accepted_uptime: float = 0.0
    accepted_why: str = ""
    counters: Mapping[str, int] = NONE
    latched: tuple[Finding, ...] = ()
    blind: Mapping[str, int] = NONE
    note: str = ""


def load(paths: Paths) -> Past:
    """The stored past; a fresh one when there is none, and a fresh one with a `note` when the file is broken.

    A fresh past is the strict one: no counter is accepted and every event since boot counts.
    """
    from hpkit.files import BROKEN, read_small

    path = _file(paths)
    data = read_small(path, LIMIT)
    if data is None:
        readable = os.path.lexists(path) and os.access(
            path, os.R_OK
        )  # a user cannot read root's past: no note
        return Past(note=f"{path} is no plain file of at most {LIMIT} bytes" if readable else "")
    try:
        return _from(json.loads(data))
    except BROKEN as error:
        return Past(
            note=f"{path} is not understood ({type(error).__name__}); counters and events count from the boot"
        )


def save(paths: Paths, past: Past) -> None:
    """Store it, whole or not at all; raises OSError."""
    from hpkit.files import ensure_dir, write_atomic

    ensure_dir(paths.lib)
    document = {
        "schema": SCHEMA,
        "boot_id": past.boot_id,
        "accepted_at": past.accepted_at,
        "accepted_uptime": past.accepted_uptime,
        "accepted_why": past.accepted_why,
        "counters": dict(past.counters),
        "latched": [finding_document(f) for f in past.latched],
        "blind": dict(past.blind),
    }
    write_atomic(_file(paths), json.dumps(document, sort_keys=True) + "\n")


def begin(past: Past, clock: Clock) -> Past:
    """The past for a round that starts now: the first round of a new boot accepts it ("boot").

    Device counters start anew with a boot, so none is carried over. An unknown boot id accepts nothing.
    """
    if not clock.boot_id or past.boot_id == clock.boot_id:
        return past
    return Past(clock.boot_id, clock.wall, 0.0, "boot", note=past.note)


def accept(past: Past, why: str, clock: Clock, counters: Mapping[str, int]) -> Past:
    """The node as it is now is the new baseline: after a device reset ("reset") or a good deep run ("deep").

    `counters` are the device counters of now (`counters_of` the round that proved it). Events up to now and latched
    failures no longer count.
    """
    return Past(clock.boot_id or past.boot_id, clock.wall, clock.uptime, why, dict(counters))


def counters_of(findings: Iterable[Finding]) -> dict[str, int]:
    """The device counters that the findings of a round carry in `data["counters"]`."""
    found: dict[str, int] = {}
    for finding in findings:
        carried = finding.data.get("counters", {})
        if isinstance(carried, Mapping):
            found.update({str(k): v for k, v in carried.items() if type(v) is int})
    return found


def _file(paths: Paths) -> str:
    return os.path.join(paths.lib, "past.json")


def _from(document: Any) -> Past:
    """The past in a document; raises for anything that `save` did not write."""
    if document["schema"] != SCHEMA:
        raise ValueError("not an hpkit.past/1 document")
    return Past(
        _text(document["boot_id"]),
        _seconds(document["accepted_at"]),
        _seconds(document["accepted_uptime"]),
        _text(document["accepted_why"]),
        _counts(document["counters"]),
        tuple(finding_from(f) for f in document["latched"]),
        _counts(document["blind"]),
    )


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("no text")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError("no number of seconds")
    return float(value)


def _counts(value: Any) -> dict[str, int]:
    if not all(type(v) is int and v >= 0 for v in value.values()):
        raise TypeError("no counts")
    return {str(k): int(v) for k, v in value.items()}
