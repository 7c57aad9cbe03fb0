"""A small writer of checkpoints in the layout of torch.distributed.checkpoint, for programs without torch.

It keeps DCP's order of writing: every rank writes its shard `__RANK_0.distcp`; when all are there, one rank writes
`.metadata.tmp`, syncs it and renames it to `.metadata`. So a folder without `.metadata` is a save that never finished.
The metadata is a pickle with the class names and fields of torch's own; what a shard holds is the caller's business.
Standard library only, and no other file of hpkit is needed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

METADATA = ".metadata"
_META = "torch.distributed.checkpoint.metadata"
_FILESYSTEM = "torch.distributed.checkpoint.filesystem"


def shard_name(rank: int) -> str:
    """The file that `rank` writes (DCP's name for the first file of a rank)."""
    return f"__{rank}_0.distcp"


def save_shard(folder: str, rank: int, payload: bytes) -> str:
    """Write the shard of `rank` into `folder` (made when absent) and sync it; returns its name. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    name = shard_name(rank)
    _write(os.path.join(folder, name), payload)
    return name


def load_shard(folder: str, rank: int) -> bytes:
    """The payload that `rank` saved. Raises OSError when the shard is not there."""
    with open(os.path.join(folder, shard_name(rank)), "rb") as file:
        return file.read()


def finish(folder: str, sizes: Mapping[str, int]) -> None:
    """Mark the checkpoint complete: call it once, after every shard is written. `sizes` is bytes by shard name."""
    target = os.path.join(folder, METADATA)
    _write(target + ".tmp", metadata_bytes(sizes))
    os.replace(target + ".tmp", target)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def metadata_bytes(sizes: Mapping[str, int]) -> bytes:
    """The pickle of a torch Metadata that names each shard as one item from offset 0 to its size in bytes."""
    items = {name: f"payload.{number}" for number, name in enumerate(sizes)}
    described = [(_text(fqn), _object(_META, "BytesStorageMetadata", {})) for fqn in items.values()]
    stored = [(_index(items[name]), _info(name, size)) for name, size in sizes.items()]
    fields = {"state_dict_metadata": _dict(described), "planner_data": b"N", "storage_data": _dict(stored)}
    return b"\x80\x02" + _object(_META, "Metadata", fields) + b"."


def _index(fqn: str) -> bytes:
    return _object(_META, "MetadataIndex", {"fqn": _text(fqn), "offset": b"N", "index": b"N"})


def _info(name: str, size: int) -> bytes:
    fields = {"relative_path": _text(name), "offset": _number(0), "length": _number(size)}
    return _object(_FILESYSTEM, "_StorageInfo", fields)


def _object(module: str, name: str, fields: Mapping[str, bytes]) -> bytes:
    """Pickle opcodes: class, empty arguments, NEWOBJ, then its fields with BUILD."""
    made = f"c{module}\n{name}\n".encode() + b")\x81"
    return made + _dict([(_text(key), value) for key, value in fields.items()]) + b"b"


def _dict(pairs: list[tuple[bytes, bytes]]) -> bytes:
    return b"}(" + b"".join(key + value for key, value in pairs) + b"u"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
