"""The end of a torch.save file: a zip archive whose central directory must be whole and fit what lies before it.

Only the first bytes and the end are read, never a tensor. Format: PKWARE APPNOTE 6.3.9, sections 4.3.7 to 4.3.16;
torch always writes the zip64 records (caffe2/serialize/inline_container.cc).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from hpkit.checkpoints.tree import Place, Unusable, shown

MAGIC = b"PK\x03\x04"
MAX_DIRECTORY = 256 << 20
_END = struct.Struct("<4s4H2LH")
_END64_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = 30
_MAX_COMMENT = 0xFFFF
_FULL_16, _FULL_32 = 0xFFFF, 0xFFFFFFFF


class _Directory(NamedTuple):
    """Where the central directory lies: offset and size in bytes, number of entries, first byte behind it."""

    offset: int
    size: int
    items: int
    end: int


def check(place: Place, name: str, size: int) -> None:
    """Raises Unusable when the archive is cut or its directory points beyond it."""
    label = shown(name or place.name)
    directory = _directory(place, name, size, label)
    if directory.offset + directory.size > directory.end:
        raise Unusable(f"{label} is cut: its zip directory does not fit")
    if directory.size > MAX_DIRECTORY:
        raise Unusable(f"{label} has a zip directory too large to examine", unsure=True)
    data = place.read(name, directory.offset, directory.size)
    pickled, count = False, 0
    for entry, last in _entries(data, label):
        count += 1
        pickled = pickled or entry.endswith(b"/data.pkl") or entry == b"data.pkl"
        if last > directory.offset:
            raise Unusable(f"{label} is cut: a zip entry points beyond its data")
    if count != directory.items:
        raise Unusable(f"{label} is cut: its zip directory has {count} of {directory.items} entries")
    if not pickled:
        raise Unusable(f"{label} is a zip file without data.pkl: not written by torch.save")


def _directory(place: Place, name: str, size: int, label: str) -> _Directory:
    """The end record: 22 bytes at the very end, or before a comment whose length it tells."""
    length = min(size, _END.size + _MAX_COMMENT)
    tail = place.read(name, size - length, length)
    at = len(tail) - _END.size
    while at >= 0:
        at = tail.rfind(b"PK\x05\x06", 0, at + 4)
        if at < 0:
            break
        _, _, _, _, count, length, offset, comment = _END.unpack_from(tail, at)
        position = size - len(tail) + at
        if position + _END.size + comment == size:
            if count == _FULL_16 or _FULL_32 in (length, offset):
                return _directory64(place, name, position, label)
            return _Directory(offset, length, count, position)
        at -= 1
    raise Unusable(f"{label} is cut: no zip end record")


def _directory64(place: Place, name: str, position: int, label: str) -> _Directory:
    """The zip64 end record, found through its locator right before the plain end record."""
    cut = Unusable(f"{label} is cut: its zip64 end record is not whole")
    if position < _END64_LOCATOR.size:
        raise cut
    found = place.read(name, position - _END64_LOCATOR.size, _END64_LOCATOR.size)
    if len(found) < _END64_LOCATOR.size:
        raise cut
    signature, _, offset, _ = _END64_LOCATOR.unpack(found)
    if signature != b"PK\x06\x07" or offset + _END64.size > position:
        raise cut
    record = place.read(name, offset, _END64.size)
    if len(record) < _END64.size or not record.startswith(b"PK\x06\x06"):
        raise cut
    count, length, start = _END64.unpack(record)[7:]
    return _Directory(start, length, count, offset)


def _entries(data: bytes, label: str) -> Iterator[tuple[bytes, int]]:
    """Name and end (first byte behind its data) of each entry of a central directory."""
    at = 0
    while at < len(data):
        if at + _ENTRY.size > len(data) or data[at : at + 4] != b"PK\x01\x02":
            raise Unusable(f"{label} is cut: its zip directory is not whole")
        fields = _ENTRY.unpack_from(data, at)
        packed, plain, named, extra, comment, start = (fields[i] for i in (8, 9, 10, 11, 12, 16))
        names = at + _ENTRY.size
        more = data[names + named : names + named + extra]
        if _FULL_32 in (packed, plain, start):
            packed, start = _wide(more, packed, plain, start, label)
        yield data[names : names + named], start + _LOCAL + named + packed
        at = names + named + extra + comment


def _wide(more: bytes, packed: int, plain: int, start: int, label: str) -> tuple[int, int]:
    """Packed size and start from the zip64 extra field, which holds only those values that were too large."""
    at = 0
    while at + 4 <= len(more):
        kind, length = struct.unpack_from("<2H", more, at)
        values = (
            [v for (v,) in struct.iter_unpack("<Q", more[at + 4 : at + 4 + length // 8 * 8])]
            if kind == 1
            else []
        )
        if kind == 1 and len(values) >= (plain, packed, start).count(_FULL_32):
            order = iter(values)
            _ = next(order) if plain == _FULL_32 else plain
            packed = next(order) if packed == _FULL_32 else packed
            start = next(order) if start == _FULL_32 else start
            return packed, start
        at += 4 + length
    raise Unusable(f"{label} is cut: a zip entry has no size")
