"""`hpkit checkpoint latest DIR` and `hpkit checkpoint list DIR`.

`latest` replaces `ls -ltr | grep ^d | tail -1` in scripts: standard output holds the path and nothing else.
"""

from __future__ import annotations

import os
import sys
import time

import click

from hpkit import checkpoints, render
from hpkit.checkpoints import model, registry
from hpkit.checkpoints.tree import shown
from hpkit.commands.options import output
from hpkit.errors import EXIT_DONE, EXIT_FAILED
from hpkit.result import Output, Result

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def latest(folder: str, format: str = registry.AUTO, budget_s: float = checkpoints.BUDGET_S) -> Result:
    """The path of the newest complete checkpoint as the only line; why others were passed over in the notes.

    Code 0 found, 1 nothing usable: `answer` in the document and the first note tell which of the three it is.
    """
    choice = checkpoints.choose(folder, format, budget_s)
    lines = [choice.path] if choice.answer == model.FOUND else []
    return Result(model.document(choice, folder, wanted=format), lines, _code(choice), _notes(choice, folder))


def list_all(folder: str, format: str = registry.AUTO, budget_s: float = checkpoints.BUDGET_S) -> Result:
    """A line for each candidate: step, layout, size, age, verdict and reason; `*` marks what `latest` would take."""
    choice = checkpoints.listing(folder, format, budget_s)
    warnings = [f"warning: {text}" for text in choice.warnings]
    notes = warnings if choice.candidates else [_answer(choice, folder), *warnings]
    return Result(
        model.document(choice, folder, wanted=format), _table(choice, time.time()), _code(choice), notes
    )


def _code(choice: model.Choice) -> int:
    return EXIT_DONE if choice.answer == model.FOUND else EXIT_FAILED


def _answer(choice: model.Choice, folder: str) -> str:
    return f"{choice.answer}: {shown(folder)}: {choice.why}"


def _notes(choice: model.Choice, folder: str) -> list[str]:
    """Warnings, and each candidate that was examined and is not complete, with its reason."""
    notes = [f"warning: {text}" for text in choice.warnings]
    if choice.answer != model.FOUND:
        notes.insert(0, _answer(choice, folder))
    passed = (c for c in choice.candidates if not c.complete and c.reason != model.NOT_NEEDED)
    return notes + [f"passed over: {shown(os.path.basename(c.path))}: {c.reason}" for c in passed]


def _table(choice: model.Choice, now: float) -> list[str]:
    rows = [("", "STEP", "FORMAT", "SIZE", "AGE", "VERDICT", "NAME AND REASON")]
    for c in choice.candidates:
        verdict = "complete" if c.complete else "incomplete" if c.examined else "unknown"
        name = shown(os.path.basename(c.path))
        told = f"{name}: {c.reason}" if c.reason else name
        mark = "*" if c.path == choice.path else ""
        step = "-" if c.step is None else str(c.step)
        rows.append((mark, step, c.format or "-", _size(c.size), _age(c.mtime, now), verdict, told))
    widths = [max(len(row[i]) for row in rows) for i in range(6)]
    right = (1, 3, 4)
    lines = []
    for row in rows:
        cells = [row[i].rjust(widths[i]) if i in right else row[i].ljust(widths[i]) for i in range(6)]
        lines.append("  ".join([*cells, row[6]]).rstrip())
    return lines if choice.candidates else []


def _size(size: int) -> str:
    """Bytes in the largest unit that leaves a whole number of at least one; "-" when unknown."""
    if not size:
        return "-"
    power = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{size} B" if not power else f"{size / 1024**power:.1f} {_UNITS[power]}"


def _age(mtime: float, now: float) -> str:
    """Time since the last change, in one unit; "-" when unknown."""
    if not mtime:
        return "-"
    seconds = max(now - mtime, 0.0)
    for length, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


@click.group()
def command() -> None:
    """Find the newest complete checkpoint in a folder, and see why others were passed over."""


_FOLDER = click.argument("folder", metavar="DIR")
_FORMAT = click.option(
    "--format",
    type=click.Choice([registry.AUTO, *registry.FORMATS]),
    default=registry.AUTO,
    show_default=True,
    help="The framework's layout.",
)
_BUDGET = click.option(
    "--budget",
    type=click.FloatRange(min=0.1),
    default=checkpoints.BUDGET_S,
    show_default=True,
    metavar="SECONDS",
    help="Give up after this long.",
)


@command.command("latest")
@_FOLDER
@_FORMAT
@_BUDGET
@click.option("--null", "-0", is_flag=True, help="End the path with a NUL byte instead of a line end.")
@output()
@click.pass_obj
def latest_command(wanted: Output, folder: str, format: str, budget: float, null: bool) -> Result | int:
    """Print the path of the newest complete checkpoint in DIR.

    All else goes to standard error.

    Exit codes: 0 found; 1 none complete, nothing there, or unreadable (standard error and --json tell which).
    """
    result = latest(folder, format, budget)
    if wanted.format == "json" or not result.lines:
        return result
    render.lines([render.plain(note) for note in result.notes], sys.stderr)
    render.raw(os.fsencode(result.lines[0]) + (b"\0" if null else b"\n"))
    return result.code


@command.command("list")
@_FOLDER
@_FORMAT
@_BUDGET
@output()
def list_command(folder: str, format: str, budget: float) -> Result:
    """List every checkpoint in DIR, the highest step first.

    Each is proven complete or stands there with the reason why not; * marks what `latest` would take.

    Exit codes: 0 one is complete; 1 none complete, nothing there, or unreadable.
    """
    return list_all(folder, format, budget)
