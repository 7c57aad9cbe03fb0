"""The runner: each source once, one error for each check that needs it, the budget, latches, and the stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest

from hpkit import checks, runner
from hpkit import past as pasts
from hpkit.checks.model import Check, Seen
from hpkit.config import Config
from hpkit.errors import CannotTell, ConfigError, UsageError
from hpkit.host import Host
from hpkit.model import Action, Event, Finding, Load, Status, Verdict
from hpkit.past import Past
from hpkit.want import Want
from tests.support.machine import Machine


class Limits(NamedTuple):
    most: int = 3


def counted(host: Host, _want: Want) -> list[str]:
    """A probe that leaves a trace in the machine's calls."""
    assert not isinstance(host.read("/counted"), bytes)
    return ["a"]


def closed(_host: Host, _want: Want) -> None:
    raise CannotTell("the door is closed")


def broken(_host: Host, _want: Want) -> None:
    raise ZeroDivisionError("by nought")


def slow(host: Host, _want: Want) -> None:
    host.run("sleeper", timeout_s=60.0)


def says(name: str, status: Status, subject: str = "", action: Action = Action.NONE) -> Any:
    def judge(_seen: Seen, _want: Want, _past: Past, options: Any) -> Iterable[Finding]:
        yield Finding(name, subject, status, action, f"options {options}")

    return judge


def raises(_seen: Seen, _want: Want, _past: Past, _options: Any) -> Iterable[Finding]:
    yield Finding("x.raises", "", Status.PASS, Action.NONE, "told before")
    raise KeyError("boom")


def row(name: str, *needs: Any, status: Status = Status.PASS, **more: Any) -> Check:
    return Check(name, needs, more.pop("judge", says(name, status)), "about", **more)


def run(rows: list[Check], host: Machine | None = None, **more: Any) -> runner.Round:
    given: dict[str, Any] = {
        "want": Want(),
        "past": Past(),
        "suite": "s",
        "budget_s": 10.0,
        "options": {},
        **more,
    }
    want, past = given.pop("want"), given.pop("past")
    return runner.collect(runner.run(rows, host or Machine(), want, past, **given))


def told(done: runner.Round) -> list[tuple[str, str, str]]:
    return [(f.check, f.status.value, f.message) for f in done.report.findings]


def test_each_probe_is_asked_once() -> None:
    host = Machine()
    run([row("x.a", counted), row("x.b", counted), row("x.c")], host)
    assert host.calls.count("read /counted") == 1


def test_report_says_what_when_and_where() -> None:
    done = run([row("x.a"), row("x.b", status=Status.WARN)])
    report = done.report
    assert (report.node, report.suite, report.started, report.boot_id) == (
        "n1",
        "s",
        1_772_366_400.0,
        "boot-1",
    )
    assert (report.verdict, len(report.findings)) == (Verdict.DEGRADED, 2)


def test_blind_probe_is_one_error_for_each_check_that_needs_it() -> None:
    done = run([row("x.a", closed), row("x.b"), row("x.c", counted, closed)])
    assert told(done) == [
        ("x.a", "error", "the door is closed"),
        ("x.b", "pass", "options NoOptions()"),
        ("x.c", "error", "the door is closed"),
    ]
    assert done.past.blind == {"x.a": 1, "x.c": 1}


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (row("x.a", broken), "hpkit's own fault: ZeroDivisionError: by nought"),
        (row("x.raises", judge=raises), "hpkit's own fault: KeyError: 'boom'"),
        (row("x.mute", judge=lambda *_: ()), "hpkit's own fault: the check said nothing"),
    ],
)
def test_own_faults_are_told_and_do_not_stop_the_round(check: Check, text: str) -> None:
    done = run([check, row("x.b")])
    assert told(done)[0][1:] == ("error", text)
    assert told(done)[1][1] == "pass"


def test_skips() -> None:
    rows = [
        row("x.off", closed),
        row("x.idle", closed, load=Load.IDLE),
        row("x.quiet"),
        row("x.no", closed, applies=lambda want: "" if want.gpus else "no GPUs wanted"),
    ]
    done = run(rows, options={"x.off": None}, jobs_here=True)
    assert told(done) == [
        ("x.off", "skip", "switched off in the configuration"),
        ("x.idle", "skip", "jobs here"),
        ("x.quiet", "pass", "options NoOptions()"),
        ("x.no", "skip", "no GPUs wanted"),
    ]
    assert told(run([row("x.idle", load=Load.IDLE)]))[0][1] == "pass"


def test_options_reach_their_check() -> None:
    rows = [row("x.a", options=Limits), row("x.b", options=Limits)]
    assert [t[2] for t in told(run(rows, options={"x.a": Limits(9)}))] == [
        "options Limits(most=9)",
        "options Limits(most=3)",
    ]


def test_deadlines_end_with_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    class Sleeper(Machine):
        def run(self, tool: str, *args: str, timeout_s: float) -> Any:
            now[0] += timeout_s + 3.0  # hangs, and is hard to end
            return super().run(tool, *args, timeout_s=timeout_s)

    host = Sleeper()
    done = run([row("x.a", slow), row("x.b", counted), row("x.c")], host, budget_s=10.0)
    assert "run sleeper 7" in host.calls
    assert told(done)[1][1:] == ("error", "out of time: the round's budget was used up before this check")
    assert told(done)[2][1] == "pass"
    assert now[0] <= 10.0


def test_started_events_come_before_findings_and_findings_as_they_are_made() -> None:
    events = runner.run(
        [row("x.a"), row("x.b")], Machine(), Want(), Past(), suite="s", budget_s=10, options={}
    )
    assert [(e.kind, e.check) for e in (next(events), next(events))] == [
        ("started", "x.a"),
        ("finding", "x.a"),
    ]
    events.close()


def test_interrupted_round_is_a_partial_report() -> None:
    host, kept = Machine(), []
    events = runner.run([row("x.a"), row("x.b")], host, Want(), Past(), suite="s", budget_s=10, options={})
    for event in events:
        if event.finding is not None:
            kept.append(event.finding)
            events.close()
    report = runner.partial(host, "s", host.now(), 1.0, kept)
    assert report.verdict is Verdict.UNKNOWN
    assert [(f.check, f.status.value) for f in report.findings] == [("x.a", "pass"), ("hpkit.round", "error")]


def test_collect_hands_each_event_to_its_sink() -> None:
    seen: list[Event] = []
    events = runner.run([row("x.a")], Machine(), Want(), Past(), suite="s", budget_s=10, options={})
    done = runner.collect(events, seen.append)
    assert [e.finding for e in seen if e.finding] == list(done.report.findings)


def latching(*subjects: tuple[str, Action]) -> Check:
    """A latch check that fails for these subjects."""

    def judge(_seen: Seen, _want: Want, _past: Past, _options: Any) -> Iterable[Finding]:
        for subject, action in subjects:
            yield Finding("x.l", subject, Status.FAIL, action, f"{subject} is bad")
        if not subjects:
            yield Finding("x.l", "", Status.PASS, Action.NONE, "good")

    return row("x.l", judge=judge, latch=True)


def actions(done: runner.Round) -> list[tuple[str, str]]:
    return [(f.subject, f.action.value) for f in done.report.findings]


def test_latched_failures_stay_until_acceptance() -> None:
    first = run([latching(("gpu1", Action.RESET), ("gpu2", Action.REBOOT))])
    assert [f.subject for f in first.past.latched] == ["gpu1", "gpu2"]
    second = run([latching(("gpu1", Action.RESET))], past=first.past)
    assert actions(second) == [("gpu1", "reset"), ("gpu2", "reboot")]
    third = run([latching()], past=second.past)
    assert actions(third) == [("gpu1", "reset"), ("gpu2", "reboot")]
    assert third.report.verdict is Verdict.UNHEALTHY
    assert third.report.findings[0].message.startswith("gpu1 is bad [found 2026-03-01 12:00:00Z")
    assert third.report.findings[0].data["latched"] is True
    accepted = pasts.accept(third.past, "deep", Machine().now(), {})
    assert told(run([latching()], past=accepted)) == [("x.l", "pass", "good")]


def test_latched_message_does_not_grow() -> None:
    done = run([latching(("gpu1", Action.RESET))])
    lengths = set()
    for _ in range(4):
        done = run([latching()], past=done.past)
        lengths.add(len(done.report.findings[0].message))
    assert len(lengths) == 1


def test_heavier_cure_of_the_past_stays_beside_a_lighter_one() -> None:
    heavy = run([latching(("gpu1", Action.REBOOT))])
    light = run([latching(("gpu1", Action.RESET))], past=heavy.past)
    assert actions(light) == [("gpu1", "reset"), ("gpu1", "reboot")]
    assert [f.action for f in light.past.latched] == [Action.REBOOT]
    heavier = run([latching(("gpu1", Action.REPLACE))], past=light.past)
    assert [f.action for f in heavier.past.latched] == [Action.REPLACE]
    assert heavier.past.latched[0].data["first_seen"] == 1_772_366_400.0


def test_latches_of_checks_that_did_not_run_are_kept_silently() -> None:
    first = run([latching(("gpu1", Action.RESET))])
    other = run([row("x.b")], past=first.past)
    assert [f.check for f in other.report.findings] == ["x.b"]
    assert other.past.latched == first.past.latched
    off = run([latching()], past=first.past, options={"x.l": None})
    assert told(off)[0][1] == "skip" and off.past.latched == first.past.latched


def test_latched_failure_stands_beside_an_error_of_its_check() -> None:
    first = run([latching(("gpu1", Action.RESET))])
    blind = row("x.l", closed, latch=True)
    assert [f.status.value for f in run([blind], past=first.past).report.findings] == ["error", "fail"]


def test_blind_counts_of_other_suites_are_kept() -> None:
    past = Past("boot-1", blind={"x.other": 2, "x.a": 1})
    assert run([row("x.a")], past=past).past.blind == {"x.other": 2}


def test_new_boot_is_accepted_and_nothing_else_moves_the_baseline() -> None:
    old = Past("boot-0", 1.0, 2.0, "deep", {"c": 5}, blind={"x.a": 2})
    new = run([row("x.a")], past=old).past
    assert (new.boot_id, new.accepted_why, new.accepted_uptime, dict(new.counters)) == (
        "boot-1",
        "boot",
        0.0,
        {},
    )
    again = run([row("x.a", status=Status.FAIL)], past=new._replace(counters={"c": 1})).past
    assert (again.accepted_at, dict(again.counters)) == (new.accepted_at, {"c": 1})


def test_lost_baseline_is_told_once() -> None:
    done = run([row("x.a")], past=Past(note="past.json is not understood"))
    assert told(done)[0][:2] == ("hpkit.past", "warn")
    assert "hpkit.past" not in [t[0] for t in told(run([row("x.a")], past=done.past))]


def test_registry_imports_and_orders_by_topic() -> None:
    names = [c.name for c in checks.all_checks()]
    assert names == ["host.disk", "host.mounts", "host.memory", "gpu.xid", "gpu.count", "gpu.ecc"]
    assert [c.name for c in checks.select(("gpu.*", "host.disk"))] == [
        "host.disk",
        "gpu.xid",
        "gpu.count",
        "gpu.ecc",
    ]
    assert [c.name for c in checks.select(("*",), only=("*.?ount*",), skip=("host.*",))] == ["gpu.count"]
    assert checks.select(("dcgm.diag",)) == ()
    with pytest.raises(UsageError, match=r"gpu\.cuont"):
        checks.select(("*",), only=("gpu.cuont",))


def test_settings_come_from_the_config() -> None:
    rows = checks.select(("gpu.ecc", "gpu.xid", "gpu.count"))
    config = Config(checks={"gpu.ecc": {"corrected_warn": 5}, "gpu.xid": {"enabled": False, "ignore": [13]}})
    made = checks.settings(rows, config)
    assert made["gpu.ecc"].corrected_warn == 5
    assert made["gpu.xid"] is None
    assert made["gpu.count"] == ()
    with pytest.raises(ConfigError, match="corrected_warm"):
        checks.settings(rows, Config(checks={"gpu.ecc": {"corrected_warm": 5}}))
    assert checks.settings(rows, Config(checks={"gpu.xid": {"ignore": [13, 31]}}))["gpu.xid"].ignore == (
        13,
        31,
    )
