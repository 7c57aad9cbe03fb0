"""What the search for a checkpoint speaks about: candidates, proofs, the choice, and the protocol of a layout."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from hpkit.checkpoints.tree import Place

FOUND = "found"
NONE_COMPLETE = "none complete"
NOTHING_THERE = "nothing there"
UNREADABLE = "unreadable"

OUT_OF_TIME = "not examined: out of time"
NOT_NEEDED = "not examined: a higher step is complete"


class Candidate(NamedTuple):
    """A file or folder that may be a checkpoint.

    `path` is absolute; `step` is None when nothing tells it; `format` is a layout's name, "" when none was recognised.
    `reason` says why it is not complete (or was not examined), "" when complete. `size` is the bytes that were looked
    at, `mtime` seconds since 1970; both are 0 when it was not examined.
    """

    path: str
    step: int | None
    format: str
    complete: bool
    reason: str
    size: int = 0
    mtime: float = 0.0
    examined: bool = True


class Choice(NamedTuple):
    """The answer of a search.

    `answer` is "found" (then `path` and `step` tell which), "none complete" (there are candidates, each with its
    reason), "nothing there" (no candidate, or no such folder: a first start) or "unreadable" (could not tell).
    `candidates` are ordered from the highest step down. `warnings` are sentences for people. `why` explains an answer
    other than "found".
    """

    answer: str
    path: str
    step: int | None
    candidates: tuple[Candidate, ...]
    warnings: tuple[str, ...] = ()
    why: str = ""


class Proof(NamedTuple):
    """Whether a place holds a complete checkpoint; `reason` says why not. `step` only when the content tells one.

    `unsure` means that it could not be read, so that nothing is known either way.
    """

    complete: bool
    reason: str = ""
    size: int = 0
    step: int | None = None
    unsure: bool = False


class Format(Protocol):
    """One framework's layout: a module of this package with these names, listed in registry.py."""

    NAME: str
    MARKED: bool
    """Whether its writer leaves an end marker, so that a folder of this layout cannot be taken for something else."""

    def recognise(self, place: Place) -> bool:
        """Whether the names in the folder (or the file's own name) are those of this layout; reads no content."""

    def prove(self, place: Place) -> Proof:
        """Whether what lies there is complete. May raise Unusable, OutOfTime, or OSError when it cannot be read."""


def document(choice: Choice, folder: str, *, wanted: str) -> dict[str, Any]:
    """The JSON document `hpkit.checkpoints/1`; names that are no UTF-8 keep their bytes as surrogate escapes."""
    return {
        "schema": "hpkit.checkpoints/1",
        "folder": folder,
        "format": wanted,
        "answer": choice.answer,
        "why": choice.why,
        "path": choice.path,
        "step": choice.step,
        "warnings": list(choice.warnings),
        "candidates": [dict(c._asdict()) for c in choice.candidates],
    }
