"""`hpkit hook`: asking for help, or a slip of the pen, must never run the hook."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from hpkit import hook
from hpkit.commands.hook import command
from hpkit.errors import UsageError


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    seen: list[list[str]] = []

    def main(argv: list[str]) -> int:
        seen.append(list(argv))
        return 0

    monkeypatch.setattr(hook, "main", main)
    return seen


@pytest.mark.parametrize("words", [["--help"], ["prolog", "--help"], ["--root", "/x", "prolog", "--help"]])
def test_help_is_help(ran: list[list[str]], words: list[str]) -> None:
    told = CliRunner().invoke(command, words)
    assert told.exit_code == 0
    assert "may drain the node" in told.output.replace("\n  ", " ")
    assert ran == []


@pytest.mark.parametrize("words", [["prolog", "now"], ["prolog", "--dry-run"], ["prologue"], []])
def test_unknown_words_are_refused(ran: list[list[str]], words: list[str]) -> None:
    assert CliRunner().invoke(command, words).exit_code == 2, "the command line makes it 3"
    assert ran == []


def test_the_hook_runs(ran: list[list[str]]) -> None:
    assert CliRunner().invoke(command, ["health", "--root", "/x"]).exit_code == 0
    assert ran == [["health", "--root", "/x"]]


def test_the_hooks_own_main_refuses_them_too() -> None:
    with pytest.raises(UsageError, match="takes no"):
        hook.run(["prolog", "--help"])
