"""Slurm's host lists: `n[09-11],login` to names and back. Stricter than Slurm, which takes `x[1-2` and exits 0.

Text after the last bracket (`n[1-2]-ib`) is fine: newer releases of Slurm take it, older ones refuse it.

Rank order is Slurm's business (`scontrol show hostnames`); the order here is the same for all that we accept, but
nothing should depend on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

LIMIT = 65536
"""Slurm's own limit for the numbers in one bracket (MAX_RANGE, 64k)."""

_NAME = re.compile(r"[\w.+:@-]+")
_PIECE = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})")


def expand(expression: str, limit: int = LIMIT) -> tuple[str, ...]:
    """The names of a host list, in order, each once; `` and `(null)` are none.

    Raises ValueError with a clear text for what is no host list or has more than `limit` names. Where Slurm accepts the
    expression the names are Slurm's, except a few that Slurm takes by accident (`a[1-`, `a[+1]`), which are refused.
    """
    if expression.strip() in ("", "(null)"):
        return ()
    names: dict[str, None] = {}
    left = limit
    for word in _words(expression):
        found = _expand_word(word, left)
        left -= len(found)
        names.update(dict.fromkeys(found))
    return tuple(names)


def _words(expression: str) -> list[str]:
    """Split at commas and white space that are outside brackets."""
    words, depth, word = [], 0, ""
    for letter in expression:
        if depth == 0 and (letter == "," or letter.isspace()):
            words.append(word)
            word = ""
            continue
        depth += (letter == "[") - (letter == "]")
        word += letter
    if depth:
        raise ValueError(f"host list {_short(expression)}: brackets do not match")
    return [each for each in [*words, word] if each]


def _expand_word(word: str, limit: int) -> list[str]:
    prefixes: list[str] = []
    ranges: list[list[str]] = []
    end, count = 0, 1
    for piece in _PIECE.finditer(word):
        if piece.start() != end:
            break
        end = piece.end()
        numbers = _numbers(word, piece[2], limit)
        count *= len(numbers)
        if count > limit:
            raise _too_many(word)
        prefixes.append(piece[1])
        ranges.append(numbers)
    if not ranges:
        _check_name(word, word)
        if limit < 1:
            raise _too_many(word)
        return [word]
    suffix = word[end:]
    _check_parts([*prefixes, suffix], word)
    # Slurm's order: the last bracket runs fastest, then the first, the second, and so on.
    *before, last = ranges
    return [
        "".join(a + b for a, b in zip(prefixes, [*reversed(chosen), number], strict=True)) + suffix
        for chosen in product(*reversed(before))
        for number in last
    ]


def _numbers(word: str, inside: str, limit: int) -> list[str]:
    """The numbers of one bracket as text, zeros kept."""
    found: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"host list {_short(word)}: {_short(part)} is no number and no range")
        low, high = match[1], match[2] or match[1]
        count = int(high) - int(low) + 1
        if count < 1:
            raise ValueError(f"host list {_short(word)}: range {part} runs backwards")
        if len(found) + count > limit:
            raise _too_many(word)
        found += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return found


def fold(names: Iterable[str]) -> str:
    """The host list of a set of names: `expand(fold(names))` gives the same set. Raises ValueError for a bad name."""
    plain: list[str] = []
    numbered: dict[str, set[str]] = {}
    for name in sorted(set(names)):
        _check_name(name, name)
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            numbered.setdefault(match[1], set()).add(match[2])
    folded = [_fold_one(prefix, numbers) for prefix, numbers in numbered.items()]
    return ",".join(sorted(plain + folded))


def _fold_one(prefix: str, numbers: set[str]) -> str:
    parts: list[str] = []
    left = set(numbers)
    for low in sorted(numbers, key=lambda text: (int(text), len(text))):
        if low not in left:
            continue
        high = low
        left.discard(low)
        while (after := str(int(high) + 1).zfill(len(low))) in left:
            left.discard(after)
            high = after
        parts.append(low if low == high else f"{low}-{high}")
    if parts == [low] and len(numbers) == 1:
        return prefix + low
    return f"{prefix}[{','.join(parts)}]"


def _check_name(name: str, word: str) -> None:
    """A leading hyphen is refused: such a name would be an option on Slurm's command lines."""
    if not _NAME.fullmatch(name) or name.startswith("-"):
        raise ValueError(f"host list {_short(word)}: {_short(name)} is no host name")


def _check_parts(parts: list[str], word: str) -> None:
    """The texts around the brackets of a word; only the first may not start with a hyphen."""
    for part in filter(None, parts):
        if not _NAME.fullmatch(part):
            raise ValueError(f"host list {_short(word)}: {_short(part)} is no part of a host name")
    if parts[0].startswith("-"):
        _check_name(parts[0], word)


def _too_many(word: str) -> ValueError:
    return ValueError(f"host list {_short(word)}: too many names")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
