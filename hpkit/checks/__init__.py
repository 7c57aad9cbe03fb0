"""The registry: which module holds the rows of a topic. A module is imported when one of its checks is selected."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hpkit.errors import UsageError

if TYPE_CHECKING:
    from hpkit.checks.model import Check
    from hpkit.config import Config

TOPICS: dict[str, str] = {"host": "hpkit.checks.host", "gpu": "hpkit.checks.gpu"}


def select(patterns: Sequence[str], only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Check, ...]:
    """The checks that match one of `patterns`, in the registry's order; of them `only` those, and none of `skip`.

    A pattern is a check's name with `*`, `?` and `[…]`. Raises UsageError when a pattern of `only` or `skip` names no
    check at all; a suite's pattern may name checks that this version does not have.
    """
    found: list[Check] = []
    for topic in TOPICS:
        if any(_may_match(topic, p) for p in patterns):
            found += [c for c in _rows(topic) if _matches(c.name, patterns)]
    for pattern in (*only, *skip):
        if not _known(pattern):
            raise UsageError(f"no check matches {pattern!r}", "hpkit check --list shows all checks")
    return tuple(c for c in found if (not only or _matches(c.name, only)) and not _matches(c.name, skip))


def all_checks() -> tuple[Check, ...]:
    """Every check that there is."""
    return select(("*",))


def settings(checks: Sequence[Check], config: Config) -> dict[str, Any]:
    """The runner's options: each check's thresholds from the config, None for a check that the site switched off.

    Raises ConfigError with every problem.
    """
    from hpkit.config import enabled, options_for

    made = options_for(config, {check.name: check.options for check in checks})
    return {name: options if enabled(config, name) else None for name, options in made.items()}


def _rows(topic: str) -> tuple[Check, ...]:
    rows: tuple[Check, ...] = import_module(TOPICS[topic]).CHECKS
    return rows


def _may_match(topic: str, pattern: str) -> bool:
    """Whether a check of this topic could match; a pattern without a dot may match anything."""
    head, dot, _ = pattern.partition(".")
    return _fits(topic, head) if dot else True


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(_fits(name, pattern) for pattern in patterns)


def _known(pattern: str) -> bool:
    """Whether any check matches."""
    return any(_may_match(t, pattern) and any(_fits(c.name, pattern) for c in _rows(t)) for t in TOPICS)


def _fits(name: str, pattern: str) -> bool:
    """fnmatch, without making a regular expression of a plain name: a hook would do that anew for each check."""
    return fnmatchcase(name, pattern) if any(sign in pattern for sign in "*?[") else name == pattern
