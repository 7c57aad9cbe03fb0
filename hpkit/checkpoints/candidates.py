"""From the names in the root folder to the candidates, highest step first; reads no candidate's content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hpkit.checkpoints import names
from hpkit.checkpoints.model import Format
from hpkit.checkpoints.tree import Entry, Place, Tree, Unusable

_UNFINISHED = "-unfinished"
"""NeMo makes `NAME-unfinished` beside a checkpoint before it writes one and removes it when all ranks are done."""


class Names(NamedTuple):
    """The candidates in order, and the numbered names that were passed over because they are temporary."""

    places: list[Place]
    temporary: tuple[str, ...]


def find(tree: Tree, entries: dict[str, Entry], formats: Sequence[Format], *, explicit: bool) -> Names:
    """The numbered entries that may be checkpoints; without any, the folder itself if it holds one.

    `explicit` means that the user named the layout: else the folder itself counts only for layouts with an end marker,
    since a folder with some weights in it is no checkpoint of a run. Raises OutOfTime.
    """
    places: list[Place] = []
    passed: list[str] = []
    for name, entry in entries.items():
        step = names.step_of(_stem(name) if entry.kind != "folder" else name)
        if step is None:
            continue
        if entry.kind == "folder" and names.piece(name):
            continue
        if names.temporary(name):
            passed.append(name)
        elif place := _place(tree, entry, step, formats):
            _refuse_marked(place, entries)
            places.append(place)
    ordered = _ordered(_distinct(places))
    if not ordered and not passed:
        ordered = _own(tree, entries, formats, explicit=explicit)
    _chain(ordered)
    return Names(ordered, tuple(sorted(passed)))


def _stem(name: str) -> str:
    """The name of a file without the ending that tells its kind, so that no digit of the ending counts."""
    return os.path.splitext(name)[0]


def _place(tree: Tree, entry: Entry, step: int, formats: Sequence[Format]) -> Place | None:
    """A numbered entry as a candidate; None when it is none of ours."""
    path = os.path.join(tree.root, entry.name)
    place = Place(tree, path, entry.name, folder=entry.kind == "folder", step=step)
    if entry.kind == "link":
        try:
            place.path = tree.resolve(path)
            place.folder = os.path.isdir(place.path)
        except Unusable as error:
            place.refused = error.reason
        if place.path == tree.root:
            return None
    if place.folder or any(f.recognise(place) for f in formats):
        return place
    return place if place.refused and names.telling(entry.name) else None


def _refuse_marked(place: Place, entries: dict[str, Entry]) -> None:
    for base in (place.name, _stem(place.name)):
        if base + _UNFINISHED in entries:
            place.refused = f"{base}{_UNFINISHED} is there: the save did not end"


def _distinct(places: Iterable[Place]) -> list[Place]:
    """Without links to what is listed under its own name."""
    own: dict[str, Place] = {}
    for place in sorted(places, key=lambda p: (os.path.basename(p.path) != p.name, p.name)):
        own.setdefault(place.path, place)
    return list(own.values())


def _ordered(places: list[Place]) -> list[Place]:
    """By step downwards; those of the same step by their time of change, the latest first, then by name."""
    seen: set[int | None] = set()
    tied: set[int | None] = set()
    for place in places:
        (tied if place.step in seen else seen).add(place.step)
    keys = {id(p): (-(p.step or 0), -_changed(p) if p.step in tied else 0, p.name) for p in places}
    return sorted(places, key=lambda place: keys[id(place)])


def _changed(place: Place) -> int:
    try:
        return os.lstat(place.path).st_mtime_ns
    except OSError:
        return 0


def _own(tree: Tree, entries: dict[str, Entry], formats: Sequence[Format], *, explicit: bool) -> list[Place]:
    name = os.path.basename(tree.root)
    step = names.step_of(name) if names.telling(name) else None
    place = Place(tree, tree.root, name, folder=True, step=step, entries=entries)
    return [place] if any((explicit or f.MARKED) and f.recognise(place) for f in formats) else []


def _chain(places: list[Place]) -> None:
    """Tell each folder which one of the same series (the same name but for the step) comes before it."""
    series: dict[str, Place] = {}
    for place in places:
        if place.folder and not place.refused:
            name = names.without_step(place.name, place.step)
            if name in series:
                series[name].before = place
            series[name] = place
