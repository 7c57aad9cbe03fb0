"""JSON from a stranger: size bounded by the caller, depth by the parser, numbers kept short."""

from __future__ import annotations

import json
from typing import Any

_DIGITS = 32


def parse(data: bytes) -> Any:
    """The value of a JSON text. Raises ValueError for anything that is not JSON or is nested too deep."""
    try:
        return json.loads(data.decode("utf-8"), parse_int=_number)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _number(digits: str) -> int | None:
    """An integer; None when it has more digits than any size or step (converting those costs the square of them)."""
    return int(digits) if len(digits) <= _DIGITS else None
