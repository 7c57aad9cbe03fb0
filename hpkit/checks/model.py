"""What a check is: one row of data and one pure judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from hpkit.host import Host
from hpkit.model import Finding, Load
from hpkit.past import Past
from hpkit.want import Want

F = TypeVar("F")
Probe = Callable[[Host, Want], Any]


class Seen:
    """The facts of one round, by the probe that read them."""

    def __init__(self, facts: Mapping[Probe, Any]) -> None:
        self._facts = facts

    def __call__(self, probe: Callable[[Host, Want], F]) -> F:
        """The facts that `probe` returned in this round."""
        facts: F = self._facts[probe]
        return facts


class NoOptions(NamedTuple):
    """A check without thresholds."""


Judge = Callable[[Seen, Want, Past, Any], Iterable[Finding]]


def always(_want: Want) -> str:
    """Applies to every node."""
    return ""


class Check(NamedTuple):
    """A row of the registry.

    `judge(seen, want, past, options)` is pure. `applies(want)` is "" or why the check is skipped. `options` is a
    NamedTuple class whose fields are the check's keys in the config. A `latch` check's failures stay until the node's
    baseline is accepted anew. `expect_s` is the usual duration in seconds.
    """

    name: str
    needs: tuple[Probe, ...]
    judge: Judge
    about: str
    applies: Callable[[Want], str] = always
    options: type = NoOptions
    load: Load = Load.QUIET
    latch: bool = False
    expect_s: float = 0.1
