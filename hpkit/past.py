"""The accepted baseline of a node: boot, identities, counters, latched failures. It moves by acceptance only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from hpkit.model import Finding

NONE: Mapping[str, int] = MappingProxyType({})


class Past(NamedTuple):
    """`counters` were accepted at `accepted_at` (wall seconds) because of `accepted_why` ("boot", "reset", "deep").

    `latched` holds failures of this boot that stay until acceptance; `blind` counts rounds in a row in which a probe
    could not tell.
    """

    boot_id: str = ""
    accepted_at: float = 0.0
    accepted_uptime: float = 0.0
    accepted_why: str = ""
    counters: Mapping[str, int] = NONE
    latched: tuple[Finding, ...] = ()
    blind: Mapping[str, int] = NONE
