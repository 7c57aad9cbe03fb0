"""One root round on this node: run a suite, and leave what it found for hooks, users and the next round.

Findings are kept as they come: an interrupted round leaves a partial report with verdict `unknown`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hpkit import config, files, log, runner
from hpkit import past as baseline
from hpkit.checks import select, settings
from hpkit.checks.model import Check
from hpkit.errors import ConfigError
from hpkit.host import Host
from hpkit.model import (
    Clock,
    Event,
    Finding,
    Report,
    Status,
    Verdict,
    finding_document,
    report_document,
    report_from,
)
from hpkit.node import verdict
from hpkit.past import Past
from hpkit.paths import Paths
from hpkit.want import resolve

HOOKS = ("prolog", "epilog", "health")
ANSWER = "hpkit.answer/1"
RUNNING = "hpkit.running/1"
REPORT_LIMIT = 4 << 20
TELL_S = 0.2  # running.json is for people: it need not be newer than that
BAD = (Status.FAIL, Status.ERROR, Status.WARN)


class Plan(NamedTuple):
    """What a round is to do: the suite's name, its checks with their options, and which hooks may trust its verdict.

    `answers`: it asks all that the background round asks, so it answers suspect notes.
    """

    suite: str
    checks: tuple[Check, ...]
    options: Mapping[str, Any]
    trusting: tuple[str, ...]
    answers: bool


class Done(NamedTuple):
    """A finished round: its report, the clock at its start, and the past it left."""

    report: Report
    began: Clock
    past: Past


def plan(site: config.Config, suites: Mapping[str, Sequence[str]], suite: str) -> Plan:
    """Select a suite's checks; raises ConfigError when the suite is unknown or an option of its checks is wrong."""
    own = {name: getattr(site.hooks, name).suite for name in HOOKS}
    unknown = tuple(f"hooks.{h}.suite: there is no suite {s!r}" for h, s in own.items() if s not in suites)
    if unknown:
        raise ConfigError(unknown)
    checks = select(suites[suite])
    if suites[suite] and not checks:
        raise ConfigError((f"suites.{suite}: no check matches any of {', '.join(suites[suite])}",))
    trusting = verdict.hooks_of(suite, own, suites)
    return Plan(suite, checks, settings(checks, site), trusting, "health" in trusting)


def run(
    paths: Paths, site: config.Config, host: Host, planned: Plan, *, budget_s: float, jobs_here: bool
) -> Done:
    """Run the planned round within `budget_s` and leave its results; a full disk costs those, never the verdict."""
    began = host.now()
    before = baseline.load(paths)
    want = resolve(site.want, site.slurm, host)
    events = runner.run(
        planned.checks,
        host,
        want,
        before,
        suite=planned.suite,
        budget_s=budget_s,
        options=planned.options,
        jobs_here=jobs_here,
    )
    ended = runner.collect(events, _Keeper(paths, host, planned.suite, began).saw)
    done = Done(ended.report, began, ended.past)
    if ended.past != before:
        keep("past", lambda: baseline.save(paths, ended.past))
    _leave(paths, site, planned, done)
    return done


class _Keeper:
    """Writes what is known so far before each check: a check is what may hang or be killed."""

    def __init__(self, paths: Paths, host: Host, suite: str, began: Clock) -> None:
        self.paths, self.host, self.suite, self.began = paths, host, suite, began
        self.findings: list[Finding] = []
        self.told_at = float("-inf")

    def saw(self, event: Event) -> None:
        """Keep one event of the runner."""
        if event.finding is not None:
            self.findings.append(event.finding)
        if event.kind != "started":
            return
        spent = self.host.now().uptime - self.began.uptime
        if spent - self.told_at >= TELL_S:
            self.told_at = spent
            keep("running", lambda: _put(f"{self.paths.run}/running.json", self._progress(event.check)))
        if self.findings:
            report = runner.partial(self.host, self.suite, self.began, spent, self.findings)
            keep("report", lambda: write_report(self.paths, report))

    def _progress(self, check: str) -> dict[str, Any]:
        return {
            "schema": RUNNING,
            "node": self.host.node,
            "suite": self.suite,
            "pid": os.getpid(),
            "started": self.began.wall,
            "check": check,
            "findings": len(self.findings),
        }


def tell(before: Report | None, report: Report, hook: str) -> None:
    """Log a round that found a failure, or that differs from the suite's round before; silence while all is well."""
    same = _marks(report) == (_marks(before) if before else ["healthy"])
    if same and report.verdict is not Verdict.UNHEALTHY:
        return
    write = log.info if report.verdict.value in verdict.GOOD else log.warning
    found = "; ".join(f"{f.check} {f.subject}: {f.message}" for f in report.findings if f.status in BAD)
    write("round", hook=hook, node=report.node, suite=report.suite, verdict=report.verdict.value, found=found)


def _marks(report: Report) -> list[str]:
    """What makes two reports tell the same."""
    bad = {f"{f.status.value} {f.check} {f.subject}" for f in report.findings if f.status in BAD}
    return [report.verdict.value, *sorted(bad)]


def write_report(paths: Paths, report: Report) -> None:
    """Leave a report as the last one of its suite; raises OSError."""
    _put(f"{paths.run}/report-{report.suite}.json", report_document(report))


def last_report(paths: Paths, suite: str) -> Report | None:
    """The suite's last report; None when there is none that can be read."""
    document = files.read_json(f"{paths.run}/report-{suite}.json", REPORT_LIMIT)
    try:
        return None if document is None else report_from(document)
    except files.BROKEN:
        return None


def keep(what: str, write: Callable[[], object]) -> None:
    """Do one write of hpkit's own state; a failure is logged and costs only that state."""
    try:
        write()
    except OSError as error:
        log.error("not-kept", what=what, why=error)


def _leave(paths: Paths, site: config.Config, planned: Plan, done: Done) -> None:
    """Everything that a finished round leaves behind."""
    report, began = done.report, done.began
    keep("report", lambda: write_report(paths, report))
    if planned.answers or report.verdict is Verdict.UNHEALTHY:
        keep("answer", lambda: _put(f"{paths.run}/answer.json", answer_document(report, began)))
    keep("verdict", lambda: verdict.write(paths, report, began, site.hooks.interval_s, planned.trusting))
    files.remove(f"{paths.run}/running.json")


def answer_document(report: Report, began: Clock) -> dict[str, Any]:
    """The document that users wait for after a suspect note; `written` is the uptime at which the round began."""
    return {
        "schema": ANSWER,
        "node": report.node,
        "boot_id": began.boot_id,
        "written": began.uptime,
        "suite": report.suite,
        "verdict": report.verdict.value,
        "action": report.action.value,
        "failures": [finding_document(f) for f in report.findings if f.status is Status.FAIL],
    }


def _put(path: str, document: Mapping[str, Any]) -> None:
    files.write_atomic(path, json.dumps(document) + "\n", durable=False)
