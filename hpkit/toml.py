"""TOML on every Python that we run on: the standard library's parser, or tomli, which is the same, on Python 3.10."""

from __future__ import annotations

import os
import sys
from typing import Any, BinaryIO


def load(file: BinaryIO) -> dict[str, Any]:
    """The document in an open file; raises ValueError when it is not valid TOML, ImportError without any parser."""
    if sys.version_info >= (3, 11):
        import tomllib

        return tomllib.load(file)
    found: dict[str, Any] = _tomli().load(file)
    return found


def _tomli() -> Any:
    """tomli, also under `-S`, where the interpreter's own site-packages are not on the path."""
    try:
        import tomli
    except ImportError:
        prefix = os.path.dirname(os.path.dirname(sys.executable))
        folder = f"{prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        sys.path.append(folder)
        try:
            import tomli
        finally:
            sys.path.remove(folder)
    return tomli
