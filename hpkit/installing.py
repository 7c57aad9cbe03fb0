"""Writes the sh hooks with the constants of one installation."""

from __future__ import annotations

import os
import shlex
import sys

from hpkit import files
from hpkit.errors import HpkitError

HOOKS = ("prolog/hpkit", "prolog/hpkit-health", "epilog/hpkit")
NODE = "$SLURMD_NODENAME"


def write_hooks(folder: str, python: str, lib: str, root: str = "") -> tuple[str, ...]:
    """Write prolog/hpkit, prolog/hpkit-health and epilog/hpkit below `folder`; returns their paths.

    `python` is the interpreter, `lib` the folder that holds the package, `root` a sandbox's node root in which `%n`
    (or $SLURMD_NODENAME) stands for the node's name. Each file appears whole and executable: Slurm may run it any
    moment. Raises HpkitError when the hooks were not shipped or a path cannot be a constant, OSError when one cannot
    be written.
    """
    constants = {"PYTHON": _word(python), "LIB": _word(lib), "ROOT": _word(root)}
    source = source_folder()
    written = []
    for name in HOOKS:
        with open(os.path.join(source, name), encoding="utf-8") as file:
            text = _with_constants(file.read(), dict(constants))
        target = os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        files.write_atomic(target, text, 0o755)
        written.append(target)
    return tuple(written)


def source_folder() -> str:
    """Where the hooks were shipped: beside the package in a checkout, in PREFIX/share/hpkit when installed."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for folder in (here, os.path.join(sys.prefix, "share", "hpkit")):
        if all(os.path.isfile(os.path.join(folder, name)) for name in HOOKS):
            return folder
    raise HpkitError(
        "the hook scripts are not part of this installation", "install hpkit with pip from its repository"
    )


def _word(path: str) -> str:
    """A path as one shell word; only the node's name is left for the shell to fill in."""
    if any(ord(c) < 32 for c in path):
        raise HpkitError(f"no hook can hold this path: {path!r}", "choose a path without control characters")
    marked = path.replace(f'"{NODE}"', "%n").replace(NODE, "%n")
    return f'"{NODE}"'.join(shlex.quote(part) if part else "" for part in marked.split("%n"))


def _with_constants(text: str, constants: dict[str, str]) -> str:
    lines = text.split("\n")
    for i, line in enumerate(lines):
        name, equals, _ = line.partition("=")
        if equals and name in constants:
            lines[i] = f"{name}={constants.pop(name)}"
    if constants:
        raise HpkitError(f"a hook script lacks the constants {', '.join(sorted(constants))}")
    return "\n".join(lines)
