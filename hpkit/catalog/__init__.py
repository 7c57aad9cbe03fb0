"""What is known about hardware and vendors, as data with sources; nothing here decides anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hpkit.errors import UsageError

NO_SUITES: Mapping[str, tuple[str, ...]] = {}


def suites() -> dict[str, tuple[str, ...]]:
    """The suites that hpkit ships: name → check-name patterns."""
    return {name: tuple(row["checks"]) for name, row in _load("suites").items()}


def suite(name: str, site: Mapping[str, tuple[str, ...]] = NO_SUITES) -> tuple[str, ...]:
    """The patterns of one suite, the site's own first; raises UsageError when nobody defines it."""
    if name in site:
        return site[name]
    ours = suites()
    if name not in ours:
        known = ", ".join(sorted({*ours, *site}))
        raise UsageError(f"there is no suite {name!r}", f"known suites: {known}")
    return ours[name]


def instance(kind: str) -> Mapping[str, Any]:
    """What is known of an instance type; empty when it is not in the catalogue."""
    from hpkit.catalog.instances import INSTANCES

    return INSTANCES.get(kind, {})


def _load(name: str) -> dict[str, Any]:
    from hpkit import toml

    with open(os.path.join(os.path.dirname(__file__), f"{name}.toml"), "rb") as file:
        return toml.load(file)
