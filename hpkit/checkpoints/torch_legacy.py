"""torch.save's old form (`_use_new_zipfile_serialization=False`) and plain pickles: their length can be computed.

Five pickles (magic, protocol, system, object, storage keys), then for each storage 8 bytes of count and its elements.
Source: torch/serialization.py, `_legacy_save`.
"""

from __future__ import annotations

from typing import Any

from hpkit.checkpoints.stub_pickle import Broken, Reader, Stub
from hpkit.checkpoints.tree import Place, Unusable, shown

MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle: the number 0x1950a86a20f9469cfc6c, written with torch's default protocol 2."""
MAX_PICKLES = 256 << 20
_FIRST = 1 << 20
_COUNT = 8
_BYTES = {
    "DoubleStorage": 8, "FloatStorage": 4, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4,
    "ShortStorage": 2, "CharStorage": 1, "ByteStorage": 1, "BoolStorage": 1, "ComplexDoubleStorage": 16,
    "ComplexFloatStorage": 8, "UntypedStorage": 1, "QUInt8Storage": 1, "QInt8Storage": 1, "QInt32Storage": 4,
    "QUInt4x2Storage": 1, "QUInt2x4Storage": 1,
}  # fmt: skip
"""Bytes of one element, by the class name in torch.storage."""


def check(place: Place, name: str, size: int) -> None:
    """Raises Unusable when the file does not have exactly the length that its pickles tell."""
    label = shown(name or place.name)
    length = min(_FIRST, size)
    while True:
        data = place.read(name, 0, length)
        try:
            wanted = _length(place, data, label)
        except Broken as error:
            if length >= size:
                raise Unusable(f"{label} is cut: {error}") from error
            if length >= MAX_PICKLES:
                raise Unusable(f"{label} has a pickle too large to examine", unsure=True) from error
            length = min(length * 4, size, MAX_PICKLES)
            continue
        if wanted != size:
            raise Unusable(f"{label} has {size} bytes, its content needs {wanted}")
        return


def _length(place: Place, data: bytes, label: str) -> int:
    """The file's length as the pickles at its start tell it. Raises Broken when `data` ends within them."""
    storages: dict[str, int] = {}

    def persistent(value: Any) -> None:
        if not (isinstance(value, tuple) and len(value) >= 5 and value[0] == "storage"):
            return
        kind, key, count = value[1], value[2], value[4]
        each = _BYTES.get(kind.name.rpartition(".")[2]) if isinstance(kind, Stub) else None
        if each is None or not isinstance(key, str) or not isinstance(count, int):
            raise Unusable(f"{label} holds a storage of an unknown kind", unsure=True)
        storages[key] = each * count

    if not data.startswith(MAGIC):
        plain = Reader(data, tick=place.tree.tick)
        plain.load()
        return plain.position
    position = 0
    for _ in range(5):
        reader = Reader(data, position, persistent=persistent, tick=place.tree.tick)
        reader.load()
        position = reader.position
    return position + sum(_COUNT + size for size in storages.values())
