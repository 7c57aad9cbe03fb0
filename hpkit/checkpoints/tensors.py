"""What the layouts share: whether one tensor file is whole, and whether a folder of them lacks any."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hpkit.checkpoints import bounded_json, names, torch_legacy, torch_zip
from hpkit.checkpoints.model import Proof
from hpkit.checkpoints.tree import Place, Unusable, shown

SAFETENSORS = (".safetensors",)
TORCH = (".pt", ".pth", ".bin", ".ckpt")
BOTH = SAFETENSORS + TORCH
MAX_INDEX = 256 << 20
MAX_HEADER = 100_000_000
"""The safetensors library itself refuses a longer header (safetensors/src/tensor.rs, MAX_HEADER_SIZE)."""
_OF = re.compile(r"^(.*?)([0-9]+)-of-([0-9]+)(.*)$", re.DOTALL)
_MEMBER = re.compile(r"^(.*(?:rank|shard|part|rng_state)[_-]?)([0-9]+)([^0-9]*)$", re.DOTALL | re.IGNORECASE)


def whole(place: Place, name: str = "") -> int:
    """The size of a tensor file that is complete by its structure. Raises Unusable with the reason, or OSError."""
    size = place.facts(name).size
    if (name or place.name).endswith(SAFETENSORS):
        _safetensors(place, name, size)
        return size
    start = place.read(name, 0, 4)
    if start == torch_zip.MAGIC:
        torch_zip.check(place, name, size)
    elif start[:1] == b"\x80":
        torch_legacy.check(place, name, size)
    else:
        raise Unusable(f"{shown(name or place.name)} is neither a torch.save file nor a pickle")
    return size


def prove_folder(place: Place) -> Proof:
    """Every tensor file whole, every file that an index or a `-of-` name promises there, no member missing."""
    no_temporary(place)
    members = [name for name in place.files() if name.endswith(BOTH)]
    indexed(place)
    numbered(place)
    _as_before(place, members)
    size = sum(whole(place, name) for name in members)
    if not members:
        raise Unusable("no tensor files in it")
    return Proof(True, size=size)


def no_temporary(place: Place) -> None:
    """Raises Unusable when a file is still under the name that it has while it is written."""
    for name in sorted(place.entries):
        if names.unfinished(name):
            raise Unusable(f"{shown(name)} is a temporary file: the save did not end")


def indexed(place: Place) -> None:
    """Raises Unusable when a `*.index.json` is broken or names a file that is not there."""
    for name in place.files():
        if name.endswith(".index.json"):
            for wanted in _weight_map(place, name):
                if wanted not in place.entries:
                    raise Unusable(f"{shown(wanted)} is missing ({shown(name)} names it)")


def numbered(place: Place) -> None:
    """Raises Unusable when a `-00001-of-00004` set lacks a member, or rank, shard and part numbers have a gap."""
    sets: dict[tuple[str, str, str], set[int]] = {}
    runs: dict[tuple[str, str], set[int]] = {}
    for name in place.files():
        if not name.endswith(BOTH):
            continue
        if match := _OF.match(name):
            sets.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
        elif match := _MEMBER.match(name):
            runs.setdefault((match[1], match[3]), set()).add(int(match[2]))
    for (start, count, _), found in sets.items():
        base = 0 if 0 in found else 1
        _no_gap(f"{start}*-of-{count}", found, base, int(count))
    for (start, end), found in runs.items():
        base = 1 if 0 not in found and "rank" not in start.lower() and "rng" not in start.lower() else 0
        _no_gap(f"{start}*{end}", found, base, max(found) - base + 1)


def _no_gap(label: str, found: set[int], base: int, count: int) -> None:
    if len(found) == count and min(found) == base:
        return
    missing = next(n for n in range(base, base + len(found) + 1) if n not in found)
    raise Unusable(f"{shown(label)}: number {missing} is missing ({len(found)} of {count} are there)")


def read_json(place: Place, name: str, limit: int) -> Any:
    """A small JSON file of a checkpoint; raises Unusable when it has over `limit` bytes or is not whole."""
    size = place.facts(name).size
    if size > limit:
        raise Unusable(f"{shown(name)} is too large to examine", unsure=True)
    try:
        return bounded_json.parse(place.read(name, 0, size))
    except ValueError as error:
        raise Unusable(f"{shown(name)} is not whole: no valid JSON") from error


def _weight_map(place: Place, name: str) -> Iterable[str]:
    found = read_json(place, name, MAX_INDEX)
    weights = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(v, str) for v in weights.values()):
        raise Unusable(f"{shown(name)} has no weight_map")
    return sorted(set(weights.values()))


def _as_before(place: Place, members: list[str]) -> None:
    """These layouts have no end marker: a file that the step before has and this one lacks was not written yet."""
    before = place.before
    if before is None:
        return
    try:
        former = [n for n in before.files() if n.endswith(BOTH)]
    except (OSError, Unusable):
        return
    here = {names.without_step(name, place.step) for name in members}
    for name in former:
        if name not in members and names.without_step(name, before.step) not in here:
            raise Unusable(f"it lacks {shown(name)}, which {shown(before.name)} has")


def _safetensors(place: Place, name: str, size: int) -> None:
    """8 bytes of header length, the header, then exactly as many bytes as the last tensor's end."""
    label = shown(name or place.name)
    length = int.from_bytes(place.read(name, 0, 8), "little")
    if size < 8 or length > MAX_HEADER or 8 + length > size:
        raise Unusable(f"{label} is cut: its header does not fit")
    try:
        header = bounded_json.parse(place.read(name, 8, length))
    except ValueError as error:
        raise Unusable(f"{label} is not whole: its header is no valid JSON") from error
    if not isinstance(header, dict):
        raise Unusable(f"{label} has a header that is not of safetensors")
    ends = [_end(value) for key, value in header.items() if key != "__metadata__"]
    known = [end for end in ends if end is not None]
    if len(known) != len(ends):
        raise Unusable(f"{label} has a header that is not of safetensors")
    if 8 + length + max(known, default=0) != size:
        raise Unusable(f"{label} has {size} bytes, its header needs {8 + length + max(known, default=0)}")


def _end(tensor: object) -> int | None:
    offsets = tensor.get("data_offsets") if isinstance(tensor, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)):
        return None
    begin, end = offsets
    return int(end) if 0 <= begin <= end else None
