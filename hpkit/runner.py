"""One round: probe each source once, judge, stream events, return the report and the new past.

Findings come as events while the round goes on. Who may be interrupted keeps them as they come, closes the generator
(`close()`), and makes the unfinished report with `partial`; the past of an interrupted round is not kept.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial as bound
from typing import Any, NamedTuple

from hpkit import __version__
from hpkit import past as pasts
from hpkit.checks.model import Check, Probe, Seen
from hpkit.checks.stamp import utc
from hpkit.errors import CannotTell
from hpkit.host import Host
from hpkit.model import (
    Action,
    Clock,
    Event,
    Finding,
    Load,
    Report,
    Space,
    Status,
    Unread,
    Verdict,
    action_of,
    verdict_of,
)
from hpkit.past import Past
from hpkit.proc import Ran
from hpkit.want import Want

RESERVE_S = 3.0
"""Kept back from a tool's deadline: proc.run needs up to this long to end a program that ignores SIGTERM."""
BLIND_ROUNDS = 3
"""From so many rounds in a row in which a check could not tell, that is a warning of its own."""


class Round(NamedTuple):
    """What a round leaves: its report, and the past that the next round starts from."""

    report: Report
    past: Past


def run(
    checks: Sequence[Check],
    host: Host,
    want: Want,
    past: Past,
    *,
    suite: str,
    budget_s: float,
    options: Mapping[str, Any],
    jobs_here: bool = False,
) -> Generator[Event, None, Round]:
    """Run the checks within `budget_s` seconds; what the budget cut off is one `error` per check, never a pass.

    `options` has each check's option tuple (absent: its defaults; None: switched off). `jobs_here` tells that a job of
    somebody else runs here: checks that are not quiet are skipped then.
    """
    began = time.monotonic()
    clock = host.now()
    past = pasts.begin(past, clock)
    sources = _Sources(_InTime(host, began + budget_s), want)
    kept: list[Finding] = []
    latched = {(f.check, f.subject): f for f in past.latched}
    for finding in _noted(past):
        kept.append(finding)
        yield Event("finding", finding.check, finding=finding)
    for check in checks:
        yield Event("started", check.name, check.about)
        started = time.monotonic()
        given = options.get(check.name, check.options())
        found = _check(check, sources, want, past, given, jobs_here)
        if check.latch and given is not None:
            found = _latch(check, found, latched, clock)
        spent = time.monotonic() - started
        for finding in (f._replace(seconds=spent) for f in (*found, *_blind(check, found, past))):
            kept.append(finding)
            yield Event("finding", check.name, finding=finding)
    report = _report(host, suite, clock, time.monotonic() - began, kept)
    new = past._replace(latched=tuple(latched.values()), blind=_blind_counts(checks, kept, past), note="")
    return Round(report, new)


def collect(events: Generator[Event, None, Round], sink: Callable[[Event], None] | None = None) -> Round:
    """Run a round to its end, handing each event to `sink`."""
    while True:
        try:
            event = next(events)
        except StopIteration as stop:
            done: Round = stop.value
            return done
        if sink is not None:
            sink(event)


def partial(host: Host, suite: str, clock: Clock, seconds: float, findings: Iterable[Finding]) -> Report:
    """The report of a round that was interrupted: what was found until then, verdict `unknown`."""
    kept = (*findings, Finding("hpkit.round", "", Status.ERROR, Action.NONE, "the round was interrupted"))
    return _report(host, suite, clock, seconds, kept)._replace(verdict=Verdict.UNKNOWN)


def _report(host: Host, suite: str, clock: Clock, seconds: float, findings: Iterable[Finding]) -> Report:
    kept = tuple(findings)
    return Report(
        host.node,
        suite,
        host.view,
        clock.wall,
        seconds,
        verdict_of(kept),
        action_of(kept),
        kept,
        __version__,
        clock.boot_id,
    )


def _check(
    check: Check, sources: _Sources, want: Want, past: Past, options: Any, jobs_here: bool
) -> tuple[Finding, ...]:
    """The findings of one check, whatever happens."""

    def say(status: Status, text: str, hint: str = "") -> tuple[Finding, ...]:
        return (Finding(check.name, "", status, Action.NONE, text, hint),)

    if options is None:
        return say(Status.SKIP, "switched off in the configuration")
    if check.load is not Load.QUIET and jobs_here:
        return say(Status.SKIP, "jobs here", "run it on an idle node, or force it as root")
    skipped = check.applies(want)
    if skipped:
        return say(Status.SKIP, skipped)
    why = sources.fetch(check.needs)
    if why:
        return say(Status.ERROR, why)
    found, fault = _guarded(lambda: tuple(check.judge(Seen(sources.facts), want, past, options)))
    if found is None:
        return say(Status.ERROR, fault, "please report this with a bundle (hpkit bundle)")
    return found or say(Status.ERROR, "hpkit's own fault: the check said nothing")


def _guarded(work: Callable[[], Any]) -> tuple[Any, str]:
    """The result of a probe or a judge, or None and what went wrong. The only place where any exception is caught:
    one broken check must not take the round, and with it the node's other findings, away."""
    try:
        return work(), ""
    except CannotTell as error:
        return None, error.message
    except Exception as error:  # noqa: BLE001  # told in the finding, with its type and text
        return None, f"hpkit's own fault: {type(error).__name__}: {error}"[:300]


class _Sources:
    """The facts of one round: each probe is asked once, when the first check needs it."""

    def __init__(self, host: _InTime, want: Want) -> None:
        self.facts: dict[Probe, Any] = {}
        self._host, self._want = host, want
        self._failed: dict[Probe, str] = {}

    def fetch(self, probes: Sequence[Probe]) -> str:
        """Ask what is still unasked; "" or why one of them could not tell."""
        for probe in probes:
            if probe in self._failed:
                return self._failed[probe]
            if probe in self.facts:
                continue
            if self._host.left() <= 0:
                return "out of time: the round's budget was used up before this check"
            facts, fault = _guarded(bound(probe, self._host, self._want))
            if fault:
                self._failed[probe] = fault
                return fault
            self.facts[probe] = facts
        return ""


class _InTime:
    """A host whose deadlines end with the round's budget."""

    def __init__(self, host: Host, end: float) -> None:
        self._host, self._end = host, end
        self.view, self.uid, self.node, self.env = host.view, host.uid, host.node, host.env
        self.now, self.read, self.list, self.link = host.now, host.read, host.list, host.link

    def left(self) -> float:
        """Seconds until the end of the budget."""
        return self._end - time.monotonic()

    def space(self, path: str, timeout_s: float) -> Space | Unread:
        """As host.space. A mount that had less time than it was meant to have is not said to be dead."""
        left = self.left()
        if left <= 0:
            return Unread(path, errno.ECANCELED, "the round is out of time")
        found = self._host.space(path, min(timeout_s, left))
        if left < timeout_s and isinstance(found, Unread) and found.errno == errno.ETIMEDOUT:
            return Unread(path, errno.ECANCELED, "the round is out of time")
        return found

    def run(self, tool: str, *args: str, timeout_s: float) -> Ran:
        """As host.run; without time left the tool is not started."""
        given = self._given(timeout_s)
        if given <= 0:
            return _late(tool, args)
        return self._host.run(tool, *args, timeout_s=given)

    def stream(self, tool: str, *args: str, timeout_s: float) -> Generator[str, None, Ran]:
        """As host.stream; without time left the tool is not started."""
        given = self._given(timeout_s)
        if given <= 0:
            return _late(tool, args)
        return (yield from self._host.stream(tool, *args, timeout_s=given))

    def _given(self, timeout_s: float) -> float:
        """What a tool gets: at least half of what is left, for a small budget must not mean that nothing is asked."""
        left = self.left()
        return min(timeout_s, max(left - RESERVE_S, left / 2))


def _late(tool: str, args: tuple[str, ...]) -> Ran:
    return Ran((tool, *args), -1000, b"", b"the round is out of time", 0.0, "timeout")


def _noted(past: Past) -> Iterable[Finding]:
    """What the stored past has to tell of itself."""
    if past.note:
        hint = "it is written anew; if this comes again, look at the disk below /var/lib/hpkit"
        yield Finding(
            "hpkit.past", "", Status.WARN, Action.OPERATOR, f"the stored baseline was lost: {past.note}", hint
        )


def _latch(
    check: Check, found: tuple[Finding, ...], latched: dict[tuple[str, str], Finding], clock: Clock
) -> tuple[Finding, ...]:
    """The findings with the failures of this boot that the source no longer shows; `latched` is brought up to date.

    A failure that is still shown replaces the one kept, unless the kept one asks for a heavier cure: then both stand.
    """
    shown = {f.subject: f for f in found if f.status is Status.FAIL}
    old = [
        f for (name, subject), f in latched.items() if name == check.name and _heavier(f, shown.get(subject))
    ]
    for subject, finding in shown.items():
        before = latched.get((check.name, subject))
        if before is None or not _heavier(before, finding):
            first = before.data.get("first_seen", clock.wall) if before else clock.wall
            latched[check.name, subject] = finding._replace(data={**finding.data, "first_seen": first})
    if not old:
        return found
    kept = tuple(f for f in found if f.status is not Status.PASS)
    return (*kept, *(_again(f) for f in old))


def _heavier(kept: Finding, shown: Finding | None) -> bool:
    """Whether a kept failure must still be told beside, or instead of, what is shown now."""
    return shown is None or kept.action.weight > shown.action.weight


def _again(finding: Finding) -> Finding:
    """A kept failure, marked as seen earlier."""
    seen = finding.data.get("first_seen", 0.0)
    stamp = utc(seen if isinstance(seen, (int, float)) else -1.0)
    text = f"{finding.message} [found {stamp}; stays until reboot, reset or a good deep check]"
    return finding._replace(message=text, data={**finding.data, "latched": True})


def _blind(check: Check, found: tuple[Finding, ...], past: Past) -> Iterable[Finding]:
    """A warning of its own when a check could not tell for several rounds."""
    rounds = past.blind.get(check.name, 0) + 1
    if rounds >= BLIND_ROUNDS and any(f.status is Status.ERROR for f in found):
        text = f"{check.name} could not tell for {rounds} rounds in a row"
        hint = "see the error beside it: a fault that stays is nobody's passing hiccup"
        yield Finding(check.name, "blind", Status.WARN, Action.OPERATOR, text, hint, data={"rounds": rounds})


def _blind_counts(checks: Sequence[Check], findings: Iterable[Finding], past: Past) -> dict[str, int]:
    """Rounds in a row without an answer, for the checks of this round; those of other suites keep their count."""
    failed = {f.check for f in findings if f.status is Status.ERROR}
    kept = {name: n for name, n in past.blind.items() if name not in {c.name for c in checks}}
    return {**kept, **{c.name: past.blind.get(c.name, 0) + 1 for c in checks if c.name in failed}}
