"""What people, scripts and Nagios see of a report, and what a working command tells meanwhile."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import pytest

from hpkit import render
from hpkit.errors import ConfigError, HpkitError
from hpkit.model import Action, Event, Finding, Report, Status, View, action_of, report_document, verdict_of
from hpkit.result import Result, Running

PLAIN = render.Style()


def found(
    check: str, status: str, message: str, subject: str = "", hint: str = "", action: str = "none"
) -> Finding:
    return Finding(check, subject, Status(status), Action(action), message, hint, 0.01, {"n": 1})


def document(*findings: Finding) -> dict[str, Any]:
    report = Report(
        "n1",
        "health",
        View.NODE,
        1.0,
        0.42,
        verdict_of(findings),
        action_of(findings),
        findings,
        "0.1.0",
        "b",
    )
    return report_document(report)


MIXED = (
    found("host.disk", "pass", "12 % used", "/"),
    found("gpu.count", "fail", "7 of 8 GPUs", "", "look for the lost one: lspci -d 10de:", "replace"),
    found("gpu.ecc", "warn", "3 corrected errors", "gpu2", "watch it"),
    found("gpu.xid", "skip", "no GPU wanted and none found"),
)


def test_the_table_is_aligned_worst_first_with_hints_for_what_is_bad() -> None:
    assert render.table(document(*MIXED), PLAIN) == [
        "n1: unhealthy, needs: replace (suite health, 0.4 s)",
        "fail  gpu.count        7 of 8 GPUs",
        "                       -> look for the lost one: lspci -d 10de:",
        "warn  gpu.ecc    gpu2  3 corrected errors",
        "                       -> watch it",
        "pass  host.disk  /     12 % used",
        "skip  gpu.xid          no GPU wanted and none found",
    ]


def test_colours_change_no_column() -> None:
    painted = render.table(document(*MIXED), render.Style(color=True))
    bare = [line.replace("\x1b[0m", "") for line in painted]
    for code in set(render._PAINT.values()):
        bare = [line.replace(code, "") for line in bare]
    assert bare == render.table(document(*MIXED), PLAIN)
    assert "\x1b[1;31mfail" in painted[1]


def test_long_messages_wrap_only_at_a_terminal() -> None:
    long = document(found("a.b", "fail", "word " * 30, hint="do " * 40))
    assert all(
        len(line) <= 60 for text in render.table(long, render.Style(width=60)) for line in text.split("\n")
    )
    assert "word word" in render.table(long, PLAIN)[1]
    assert "\n" not in "".join(render.table(long, PLAIN))


def test_control_characters_reach_no_terminal() -> None:
    lines = render.table(document(found("a.b", "fail", "evil \x1b[2Jtext\nmore\x07")), PLAIN)
    assert lines[1] == "fail  a.b    evil \\x1b[2Jtext more\\x07"


@pytest.mark.parametrize(
    ("findings", "first"),
    [
        ((MIXED[0],), "HPKIT OK - 1 pass, 0 skipped | fail=0 error=0 warn=0 time=0.420s"),
        ((MIXED[2],), "HPKIT WARNING - gpu.ecc gpu2: 3 corrected errors | fail=0 error=0 warn=1 time=0.420s"),
        (MIXED, "HPKIT CRITICAL - gpu.count: 7 of 8 GPUs (+1 more) | fail=1 error=0 warn=1 time=0.420s"),
        (
            (found("a.b", "error", "no|bars"),),
            "HPKIT UNKNOWN - a.b: no/bars | fail=0 error=1 warn=0 time=0.420s",
        ),
    ],
)
def test_the_nagios_line(findings: Iterable[Finding], first: str) -> None:
    assert render.nagios(document(*findings))[0] == first


def test_the_nagios_text_keeps_to_its_width_and_the_rest_follows() -> None:
    lines = render.nagios(document(found("a.b", "fail", "x" * 300), found("c.d", "fail", "second")))
    assert len(lines[0].split(" | ")[0]) <= 80
    assert lines[1:] == [f"fail a.b: {'x' * 300}", "fail c.d: second"]


def test_json_is_the_document_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    code = render.show(Result(document(*MIXED), ["not shown"], 2, ["a note"]), "json", "auto")
    out, err = capsys.readouterr()
    assert (json.loads(out), err, code) == (document(*MIXED), "a note\n", 2)


def test_lines_of_other_documents_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    render.show(Result({"schema": "hpkit.other/1"}, ["one", "two"]), "table", "auto")
    assert capsys.readouterr().out == "one\ntwo\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "color", "env", "wanted"),
    [
        (Terminal(), "auto", {}, True),
        (Terminal(), "auto", {"NO_COLOR": "1"}, False),
        (Terminal(), "auto", {"NO_COLOR": ""}, True),
        (Terminal(), "auto", {"TERM": "dumb"}, False),
        (Terminal(), "never", {}, False),
        (io.StringIO(), "auto", {}, False),
        (io.StringIO(), "always", {"NO_COLOR": "1", "TERM": "dumb"}, True),
    ],
)
def test_when_there_are_colours(stream: io.StringIO, color: str, env: dict[str, str], wanted: bool) -> None:
    assert render.style(stream, color, env).color is wanted


EVENTS = (
    Event("started", "gpu.count"),
    Event("finding", "gpu.count", finding=MIXED[1]),
    Event("progress", "dcgm.diag", "level 2"),
)


def test_progress_at_a_terminal_is_one_line_that_is_wiped() -> None:
    stream = Terminal()
    progress = render.Progress(stream, iter((0.0, 1.0, 2.0, 3.0)).__next__)
    for event in EVENTS:
        progress.tell(event)
    progress.clear()
    shown = stream.getvalue()
    assert "\n" not in shown
    assert shown.split("\r\x1b[2K")[1:] == [
        "1 s gpu.count",
        "2 s gpu.count [1 fail]",
        "3 s dcgm.diag: level 2 [1 fail]",
        "",
    ]


def test_progress_in_a_log_is_a_line_a_minute() -> None:
    stream = io.StringIO()
    progress = render.Progress(stream, iter((0.0, 30.0, 61.0, 62.0)).__next__)
    for event in EVENTS:
        progress.tell(event)
    progress.clear()
    assert stream.getvalue() == "hpkit: 61 s gpu.count [1 fail]\n"


def told() -> Running:
    yield "first"
    yield EVENTS[0]
    yield "second"
    return Result({"schema": "x"}, ["last"], 4)


@pytest.mark.parametrize(
    ("form", "out", "err"),
    [("table", "first\nsecond\nlast\n", ""), ("json", '{\n  "schema": "x"\n}\n', "first\nsecond\n")],
)
def test_narration_goes_where_it_disturbs_no_reader(
    form: str, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert render.show(told(), form, "auto") == 4
    assert capsys.readouterr() == (out, err)


class Gone(io.StringIO):
    """Standard output whose reader went away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_command_is_closed_when_nobody_reads_it_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    def working() -> Running:
        try:
            yield "working"
            return Result({})
        finally:
            closed.append(True)

    running = working()
    monkeypatch.setattr("sys.stdout", Gone())
    with pytest.raises(BrokenPipeError):
        render.show(running, "table", "auto")
    assert closed == [True]


def test_an_expected_error_is_a_line_a_hint_and_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    render.failure(HpkitError("it broke", "mend it"), "json")
    out, err = capsys.readouterr()
    assert err == "hpkit: it broke\n  mend it\n"
    assert json.loads(out) == {
        "schema": "hpkit.error/1",
        "error": {"message": "it broke", "hint": "mend it", "code": 1},
    }


def test_every_problem_of_a_configuration_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    render.failure(ConfigError(("a: bad", "b: worse")), "table")
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[1:3]) == ("", ["  a: bad", "  b: worse"])
