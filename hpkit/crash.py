"""The report file of an internal error: what was called, with which versions, and where it broke."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence

from hpkit import __version__


def report(args: Sequence[str]) -> str:
    """Write the exception being handled to a new file (0600) and return its path, or why it could not be written.

    The file goes to $XDG_STATE_HOME/hpkit when that is set and usable, else to the system's temporary folder.
    """
    text = "\n".join(
        (
            f"hpkit {__version__}, Python {platform.python_version()}, {platform.platform()}",
            f"command: {shlex.join(['hpkit', *args])}",
            "",
            traceback.format_exc(),
        )
    )
    for folder in _folders():
        try:
            descriptor, path = tempfile.mkstemp(prefix="crash-", suffix=".txt", dir=folder)
        except OSError:
            continue
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        return path
    return f"(no folder to write it to) {sys.exc_info()[1]!r}"


def _folders() -> list[str]:
    folders = []
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        folder = os.path.join(state, "hpkit")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            folders.append(folder)
        except OSError:
            folders = []
    return [*folders, tempfile.gettempdir()]
