"""The verdict file: one line that the sh hooks can trust without starting Python.

    hpkit/1 BOOT_ID VALID_UNTIL VERDICT WRITTEN SUITE HOOKS

VALID_UNTIL and WRITTEN are whole seconds of uptime; WRITTEN is the start of the round. HOOKS are the hooks, joined by
commas, whose own suites this round covered: only they may trust it. The file exists only for a good verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from hpkit import files
from hpkit.model import Clock, Report, Verdict
from hpkit.paths import Paths

FORMAT = "hpkit/1"
GOOD = (Verdict.HEALTHY.value, Verdict.DEGRADED.value)
EXTRA_S = 60  # slack over two background rounds, so that a late round does not cost every prolog its own


class Held(NamedTuple):
    """What the verdict file says; times in seconds of uptime."""

    boot_id: str
    until: int
    verdict: str
    written: int
    suite: str
    hooks: tuple[str, ...]


def path(paths: Paths) -> str:
    """Where the verdict file is."""
    return f"{paths.run}/verdict"


def write(paths: Paths, report: Report, begun: Clock, interval_s: float, hooks: Iterable[str]) -> None:
    """Leave the verdict of a round that began at `begun`, or remove the file when the verdict is not good.

    Raises OSError; the old verdict is gone then, so that nobody trusts what is not true any more.
    """
    if report.verdict.value not in GOOD:
        remove(paths)
        return
    until = int(begun.uptime + 2 * interval_s + EXTRA_S)
    words = (
        FORMAT,
        begun.boot_id,
        until,
        report.verdict.value,
        int(begun.uptime),
        report.suite,
        ",".join(hooks),
    )
    try:
        files.write_atomic(path(paths), " ".join(str(w) for w in words) + "\n", durable=False)
    except OSError:
        remove(paths)
        raise


def remove(paths: Paths) -> bool:
    """Make every hook run its suite again; False when there was no verdict."""
    return files.remove(path(paths))


def read(paths: Paths) -> Held | None:
    """The verdict file as it is, whether or not it is still valid; None when there is none or it is garbage."""
    words = (files.read_small(path(paths), 4096) or b"").decode("utf-8", "replace").split()
    if len(words) != 7 or words[0] != FORMAT or not (words[2].isdecimal() and words[4].isdecimal()):
        return None
    return Held(words[1], int(words[2]), words[3], int(words[4]), words[5], tuple(words[6].split(",")))


def trusted(paths: Paths, clock: Clock, hook: str, *, since: float = 0.0) -> Held | None:
    """The verdict when `hook` may trust it: this boot, still valid, good, begun at `since` (uptime) or later."""
    held = read(paths)
    if held is None or held.boot_id != clock.boot_id or held.verdict not in GOOD or hook not in held.hooks:
        return None
    valid = since <= held.written <= clock.uptime < held.until
    return held if valid else None


def covers(wide: Sequence[str], narrow: Sequence[str]) -> bool:
    """Whether every pattern of `narrow` is matched by one of `wide`: then the wide suite asked all that is needed.

    `[!x]` and `?` may match the `*` of a pattern and not all that it stands for: such a pattern only covers itself.
    """
    from fnmatch import fnmatchcase

    return all(n in wide or any(not {"[", "?"} & set(w) and fnmatchcase(n, w) for w in wide) for n in narrow)


def hooks_of(suite: str, own: Mapping[str, str], suites: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The hooks (name → their suite in `own`) that may trust a round of `suite`."""
    ran = suites.get(suite, ())
    return tuple(h for h, s in own.items() if s == suite or (s in suites and covers(ran, suites[s])))
