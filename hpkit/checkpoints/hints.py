"""Trackers and links that name a checkpoint: `latest -> step_100`, `latest_checkpointed_iteration.txt`.

Writers update them without care for completeness, so they are only hints. What they name is a candidate of the same
folder or nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from hpkit.checkpoints.tree import Entry, Place, Tree, Unusable, shown

FILES = (
    "latest",
    "latest_checkpointed_iteration.txt",
    "latest_checkpoint.txt",
    "latest_checkpoint",
    "last_checkpoint",
)
"""Text files that hold a step (Megatron-LM) or a name (DeepSpeed)."""
LINK_STARTS = ("latest", "last")
MAX_TEXT = 4096


class Hint(NamedTuple):
    """`name` is the tracker or link; `target` the candidate it names, None when it names none (`problem` says why)."""

    name: str
    target: Place | None
    problem: str = ""


def find(tree: Tree, entries: dict[str, Entry], places: Sequence[Place]) -> list[Hint]:
    """The hints in the root folder, links first. Raises OutOfTime."""
    links = [name for name in sorted(entries) if entries[name].kind == "link" and _is_link_name(name)]
    texts = [name for name in FILES if name in entries and entries[name].kind == "file"]
    return [_from_link(tree, name, places) for name in links] + [
        _from_text(tree, name, places) for name in texts
    ]


def _is_link_name(name: str) -> bool:
    return name.lower().startswith(LINK_STARTS)


def _from_link(tree: Tree, name: str, places: Sequence[Place]) -> Hint:
    try:
        real = tree.resolve(os.path.join(tree.root, name))
    except Unusable as error:
        return Hint(name, None, error.reason)
    target = next((place for place in places if place.path == real), None)
    return Hint(
        name, target, "" if target else f"link {shown(name)} does not lead to a checkpoint of this folder"
    )


def _from_text(tree: Tree, name: str, places: Sequence[Place]) -> Hint:
    try:
        text = tree.read(os.path.join(tree.root, name), 0, MAX_TEXT).decode("utf-8", "replace").strip()
    except (OSError, Unusable):
        return Hint(name, None, f"{shown(name)} cannot be read")
    if not text:
        return Hint(name, None, f"{shown(name)} is empty")
    if text.isascii() and text.isdigit() and len(text) <= 20:
        target = next((place for place in places if place.step == int(text)), None)
    else:
        wanted = os.path.basename(text.rstrip("/"))
        target = next((place for place in places if place.name == wanted), None)
    return Hint(name, target, "" if target else f"{shown(name)} names {shown(text)}, which is not here")
