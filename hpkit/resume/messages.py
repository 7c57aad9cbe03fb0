"""What hp-srun says to the user: one clear line per step, on standard error, marked as ours."""

from __future__ import annotations

import os
import sys

MARK = "hp-srun: "


def say(text: str) -> None:
    """Print one line; a standard error that is closed or full must not end a training.

    Past the interpreter's buffer: what cannot be written would stay in it, and make the interpreter exit with 120.
    """
    line = MARK + " ".join(text.split()) + "\n"
    try:
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), line.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError, AttributeError):  # closed, full, or no standard error at all
        return


def seconds(number: float) -> str:
    """A duration for people: `0.8 s`, `12 s`."""
    return f"{number:.1f} s" if number < 10 else f"{number:.0f} s"
