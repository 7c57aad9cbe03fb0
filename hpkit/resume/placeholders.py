"""{checkpoint} and {step} in the program's arguments, and what the program's environment tells about the attempt.

With nothing to resume from, an argument that holds a placeholder is dropped, and so is a flag directly before it that
the argument was the value of: `--ckpt {checkpoint}` and `--ckpt={checkpoint}` both vanish. Inside an argument with
blanks (`bash -c "python train.py --ckpt {checkpoint}"`) the same holds word by word. A {step} beside other names in
braces (`--filename {epoch}-{step}`) is a pattern of the program's own, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hpkit.resume.options import Command, Component

CHECKPOINT, STEP = "{checkpoint}", "{step}"
VARIABLES = ("HPKIT_CHECKPOINT", "HPKIT_CHECKPOINT_STEP", "HPKIT_ATTEMPT")
_BLANKS = re.compile(r"(\s+)")
_FOREIGN = re.compile(r"(?<!\$)\{(?!(?:checkpoint|step)\})[A-Za-z_][^{}\s]*\}")


class Source(NamedTuple):
    """What to resume from: a path ("" for nothing) and its step (None when nothing tells it)."""

    path: str = ""
    step: int | None = None


def wanted(command: Command) -> bool:
    """Whether a program's arguments say where the checkpoint goes; {step} alone may be the program's own."""
    return any(
        CHECKPOINT in word for c in command.components for word in command.words[c.program + 1 : c.end]
    )


def fill(command: Command, source: Source) -> Command:
    """The command with its placeholders filled in or dropped; only arguments of programs are touched."""
    words: list[str] = []
    components: list[Component] = []
    behind = 0
    for part in command.components:
        words += command.words[behind : part.start]
        start = len(words)
        words += command.words[part.start : part.program + 1][: part.end - part.start]
        words += _filled(command.words[part.program + 1 : part.end], source)
        components.append(Component(start, start + part.program - part.start, len(words), part.given))
        behind = part.end
    return Command(tuple(words), command.ours, tuple(components))


def variables(source: Source, attempt: int) -> dict[str, str]:
    """The variables that the program gets; empty where there is nothing to resume from."""
    step = "" if source.step is None else str(source.step)
    return dict(zip(VARIABLES, (source.path, step, str(attempt)), strict=True))


def _filled(words: Sequence[str], source: Source) -> list[str]:
    kept: list[str] = []
    for word in words:
        if len(word.split()) > 1:
            kept.append(_within(word, source))
        elif not _ours(word):
            kept.append(word)
        elif _known(word, source):
            kept.append(_replaced(word, source))
        elif kept and _takes(kept[-1]) and not word.startswith("-"):
            kept.pop()
    return kept


def _within(text: str, source: Source) -> str:
    """The rule applied to the blank-separated words of one argument; the blanks that stay are kept as they are."""
    pieces = _BLANKS.split(text)
    kept: list[str] = []
    for i in range(0, len(pieces), 2):
        word = pieces[i]
        if not _ours(word):
            kept.append(word)
        elif _known(word, source):
            kept.append(_replaced(word, source))
        else:
            del kept[-1:]
            if len(kept) > 1 and _takes(kept[-1]) and not word.startswith("-"):
                del kept[-2:]
        kept += pieces[i + 1 : i + 2]
    return "".join(kept)


def _ours(word: str) -> bool:
    return CHECKPOINT in word or (STEP in word and not _FOREIGN.search(word))


def _known(word: str, source: Source) -> bool:
    """Whether every placeholder of the word has a value."""
    return (CHECKPOINT not in word or bool(source.path)) and (
        STEP not in word or bool(source.path and source.step is not None)
    )


def _replaced(word: str, source: Source) -> str:
    return word.replace(CHECKPOINT, source.path).replace(
        STEP, "" if source.step is None else str(source.step)
    )


def _takes(word: str) -> bool:
    """Whether the word is a flag whose value may be the next word."""
    return word.startswith("-") and len(word) > 1 and word != "--" and "=" not in word
