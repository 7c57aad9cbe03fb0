"""What a command gives back; it prints nothing itself, `hpkit.render` does."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from hpkit.model import Event


class Result(NamedTuple):
    """The outcome of a command.

    `document` is what `--json` prints: one object with a "schema". `lines` is the text for people; a report document
    needs none, the renderer draws its table. `code` is the exit code. `notes` go to standard error in every format.
    """

    document: dict[str, Any]
    lines: Sequence[str] = ()
    code: int = 0
    notes: Sequence[str] = ()


Told = Event | str
"""What a running command tells: an event of a round, or one line of narration."""

Running = Generator[Told, None, Result]
"""A command that tells what it does while it works, and returns its result."""


class Output:
    """How the user wants to see it; filled by the shared options of `hpkit.commands.options`."""

    def __init__(self) -> None:
        self.format = "table"
        self.color = "auto"
        self.verb = ""
