"""Every way a command can end has its exit code and its words."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from hpkit import cli
from hpkit.commands.options import output
from hpkit.errors import DeadlineError, HpkitError
from hpkit.result import Result, Running

ENDINGS: dict[str, object] = {
    "known": HpkitError("no such thing", "try another"),
    "late": DeadlineError("too slow"),
    "stopped": KeyboardInterrupt(),
    "broken": ZeroDivisionError("oops"),
    "exit": SystemExit(0),
    "pipe": BrokenPipeError(),
}


@click.command()
@click.argument("ending")
@output("nagios")
def command(ending: str) -> Result:
    """A command that ends in the way it is told to."""
    if ending in ENDINGS:
        raise ENDINGS[ending]  # type: ignore[misc]  # all of them are exceptions
    return Result({"schema": "test/1", "said": ending}, [ending], int(ending) if ending.isdigit() else 0)


@click.command()
@output()
def streaming() -> Running:
    """A command that works and is interrupted."""
    yield "one line"
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def verbs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three verbs of our own, found by module and attribute like the real ones."""
    module = ModuleType("hpkit_test_verbs")
    module.command, module.streaming = command, streaming  # type: ignore[attr-defined]  # that is what we add
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for name, attribute in (("end", "command"), ("check", "command"), ("work", "streaming")):
        monkeypatch.setitem(cli.VERBS, name, cli.Verb(f"hpkit_test_verbs:{attribute}", "For tests."))
    yield


@pytest.mark.parametrize(
    ("args", "code", "err"),
    [
        (["end", "fine"], 0, ""),
        (["end", "4"], 4, ""),
        (["end", "known"], 1, "hpkit: no such thing\n  try another\n"),
        (["end", "late"], 124, "hpkit: too slow\n"),
        (["end", "stopped"], 130, "hpkit: interrupted\n"),
        (["work"], 130, "hpkit: interrupted\n"),
        (["end"], 3, "hpkit: Missing argument 'ENDING'.\n  see: hpkit end --help\n"),
        (["end", "fine", "--color", "pink"], 3, None),
        (["nonsense"], 3, None),
        (["--version"], 0, ""),
        (["--help"], 0, ""),
        (["end", "--help"], 0, ""),
    ],
)
def test_endings(args: list[str], code: int, err: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == code
    told = capsys.readouterr().err
    if err is not None:
        assert told.replace("\n\n", "\n").lstrip("\n") == err
    else:
        assert told.startswith("hpkit: ")
        assert "--help" in told


def test_without_a_verb_the_help_is_shown_as_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 3
    out, err = capsys.readouterr()
    assert (out, err.startswith("Usage: hpkit")) == ("", True)


@pytest.mark.parametrize(("verb", "code"), [("end", 1), ("check", 3)])
def test_an_internal_error_leaves_a_private_report(
    verb: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.main([verb, "broken"]) == code
    told = capsys.readouterr().err
    (report,) = (tmp_path / "hpkit").iterdir()
    assert told == f"hpkit: internal error\n  please report it with this file: {report}\n"
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    text = report.read_text()
    assert f"command: hpkit {verb} broken" in text
    assert "ZeroDivisionError: oops" in text


def test_a_report_goes_to_the_temporary_folder_when_the_state_folder_is_unusable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    cli.main(["end", "broken"])
    (report,) = (tmp_path / "tmp").iterdir()
    assert str(report) in capsys.readouterr().err


@pytest.mark.parametrize("args", [["--json", "end", "x"], ["end", "x", "--json"], ["end", "-o", "json", "x"]])
def test_json_may_be_asked_for_anywhere(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 0
    assert capsys.readouterr().out == '{\n  "schema": "test/1",\n  "said": "x"\n}\n'


def test_a_reader_that_went_away_is_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    kept = os.dup(1)
    try:
        assert cli.main(["end", "pipe"]) == cli.EXIT_PIPE
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert capfd.readouterr().err == ""
