"""How a witness's document crosses srun's standard output.

srun passes output on in blocks of at most 1024 bytes (measured: 8 KiB lines of four tasks arrive interleaved), so a
document is sent as numbered lines shorter than that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MARK = "hpkit-witness"
PIECE = 700  # bytes of document in one line; with mark, node name and numbers it stays well below 1024
PIECES_MAX = 4096


def lines(node: str, document: dict[str, Any]) -> Iterator[str]:
    """The lines (without newline) that carry the document."""
    text = json.dumps(document, separators=(",", ":"))  # ASCII: a piece may be cut anywhere
    count = max(1, -(-len(text) // PIECE))
    for i in range(count):
        yield f"{MARK} {node} {i} {count} {text[i * PIECE : (i + 1) * PIECE]}"


class Joiner:
    """Puts documents together from lines in any order; lines that are none of ours are passed over."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[int, str]] = {}

    def feed(self, line: str) -> tuple[str, dict[str, Any]] | None:
        """A node's name and its document when this line completes it; None otherwise, also when it is no JSON."""
        words = line.split(" ", 4)
        if len(words) != 5 or words[0] != MARK or not (words[2].isdecimal() and words[3].isdecimal()):
            return None
        node, index, count = words[1], int(words[2]), int(words[3])
        if not 0 <= index < count <= PIECES_MAX:
            return None
        parts = self._parts.setdefault(node, {})
        parts[index] = words[4]
        if len(parts) < count:
            return None
        text = "".join(parts.get(i, "") for i in range(count))
        del self._parts[node]
        try:
            document = json.loads(text)
        except ValueError:
            return None
        return (node, document) if isinstance(document, dict) else None
