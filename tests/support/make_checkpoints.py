"""Writes checkpoints in the frameworks' exact formats without the frameworks, whole or torn in every known way."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

META = "torch.distributed.checkpoint.metadata"
FILESYSTEM = "torch.distributed.checkpoint.filesystem"


class _Fields:
    """Base of the stand-ins: keeps what it is given, pickles like a dataclass."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@contextmanager
def torch_names() -> Iterator[dict[str, type]]:
    """Stand-ins for torch's classes, importable under their real names for as long as the block runs."""
    wanted = {
        META: (
            "Metadata",
            "MetadataIndex",
            "BytesStorageMetadata",
            "TensorStorageMetadata",
            "ChunkStorageMetadata",
        ),
        FILESYSTEM: ("_StorageInfo",),
        "torch": ("Size",),
    }
    parents = ("torch", "torch.distributed", "torch.distributed.checkpoint")
    saved = {name: sys.modules.get(name) for name in (*parents, *wanted)}
    made: dict[str, type] = {}
    for name in saved:
        sys.modules[name] = types.ModuleType(name)
    for module, names in wanted.items():
        for name in names:
            base: type = tuple if name == "Size" else _Fields
            made[name] = type(name, (base,), {"__module__": module, "__qualname__": name})
            setattr(sys.modules[module], name, made[name])
    try:
        yield made
    finally:
        for name, module_before in saved.items():
            if module_before is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module_before


@lru_cache(maxsize=64)
def _dcp_metadata(stored: tuple[tuple[str, tuple[int, ...]], ...], protocol: int) -> bytes:
    with torch_names() as names:
        described: dict[str, Any] = {}
        storage: dict[Any, Any] = {}
        for path, lengths in stored:
            offset = 0
            for number, length in enumerate(lengths):
                fqn = f"model.{path}.{number}"
                size = names["Size"]((length,))
                chunk = names["ChunkStorageMetadata"](offsets=names["Size"]((0,)), sizes=size)
                described[fqn] = names["TensorStorageMetadata"](properties=None, size=size, chunks=[chunk])
                index = names["MetadataIndex"](fqn=fqn, offset=names["Size"]((0,)), index=number)
                storage[index] = names["_StorageInfo"](relative_path=path, offset=offset, length=length)
                offset += length
        top = names["Metadata"](
            state_dict_metadata=described,
            planner_data={},
            storage_data=storage,
            storage_meta=None,
            version="1.0.0",
        )
        return pickle.dumps(top, protocol=protocol)


def dcp_metadata(stored: Mapping[str, Sequence[int]], protocol: int = 4) -> bytes:
    """The pickle of a Metadata whose items fill each file (by its path) with the given lengths in a row."""
    return _dcp_metadata(tuple((path, tuple(lengths)) for path, lengths in stored.items()), protocol)


def dcp(folder: Path, ranks: int = 2, items: int = 2) -> Path:
    """A complete DCP checkpoint: each item is a small torch.save file, as DCP writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    stored: dict[str, list[int]] = {}
    for rank in range(ranks):
        blobs = [torch_zip(bytes([rank, n]) * 32) for n in range(items)]
        name = f"__{rank}_0.distcp"
        (folder / name).write_bytes(b"".join(blobs))
        stored[name] = [len(blob) for blob in blobs]
    (folder / ".metadata").write_bytes(dcp_metadata(stored))
    return folder


@lru_cache(maxsize=256)
def torch_zip(payload: bytes = b"\1" * 64, name: str = "archive", *, zip64: bool = True) -> bytes:
    """A file as torch.save writes it: stored entries, data aligned to 64 bytes, zip64 end records."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for entry, data in (
            ("data.pkl", b"\x80\x02}q\x00."), ("byteorder", b"little"), ("data/0", payload), ("version", b"3\n"),
        ):  # fmt: skip
            info = zipfile.ZipInfo(f"{name}/{entry}", (1980, 1, 1, 0, 0, 0))
            at = buffer.tell() + 30 + len(info.filename) + 4
            info.extra = struct.pack("<2s H", b"FB", -at % 64) + b"Z" * (-at % 64)
            archive.writestr(info, data)
    data = buffer.getvalue()
    if not zip64:
        return data
    body, end = data[:-22], data[-22:]
    count, size, offset = struct.unpack("<HLL", end[10:20])
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 0x031E, 45, 0, 0, count, count, size, offset)
    return body + record + struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body), 1) + end


def torch_old(numbers: Sequence[float] = (1.0, 2.0, 3.0)) -> bytes:
    """A file as torch.save writes it with _use_new_zipfile_serialization=False: one float tensor."""
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    protocol = b"\x80\x02M\xe9\x03."
    system = pickle.dumps({"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}, 2)
    key = b"X\x07\0\0\0storage"
    storage = key + b"ctorch\nFloatStorage\nX\x02\0\0\0k0X\x03\0\0\0cpuK" + bytes([len(numbers)]) + b"Nt"
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + storage
        + b"QK\0K"
        + bytes([len(numbers)])
        + b"\x85K\x01\x85\x89Nt"
    )
    saved = b"\x80\x02}X\x01\0\0\0w" + tensor + b"Rs."
    keys = pickle.dumps(["k0"], 2)
    data = struct.pack(f"<q{len(numbers)}f", len(numbers), *numbers)
    return magic + protocol + system + saved + keys + data


def safetensors(sizes: Sequence[int] = (16, 32)) -> bytes:
    """A safetensors file of byte tensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for number, size in enumerate(sizes):
        header[f"w{number}"] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"\2" * at


def hf(folder: Path, ranks: int = 1, shards: int = 1) -> Path:
    """A complete checkpoint of the Trainer; the step is the last number of the folder's name."""
    folder.mkdir(parents=True, exist_ok=True)
    step = int(folder.name.rpartition("-")[2])
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors())
    else:
        names = [f"model-{n:05d}-of-{shards:05d}.safetensors" for n in range(1, shards + 1)]
        for name in names:
            (folder / name).write_bytes(safetensors())
        index = {"metadata": {"total_size": 48}, "weight_map": {f"w{i}": n for i, n in enumerate(names)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt"):
        (folder / name).write_bytes(torch_zip())
    for name in ["rng_state.pth"] if ranks == 1 else [f"rng_state_{r}.pth" for r in range(ranks)]:
        (folder / name).write_bytes(torch_zip())
    state = {
        "epoch": 0.5,
        "global_step": step,
        "log_history": [{"loss": 2.5, "step": step}],
        "max_steps": 1000,
    }
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))
    return folder


def torch_ranks(folder: Path, ranks: int = 2) -> Path:
    """A folder with one torch.save file for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        (folder / f"rank{rank}.pt").write_bytes(torch_zip())
    return folder


def single_torch(path: Path) -> Path:
    """One torch.save file."""
    path.write_bytes(torch_zip())
    return path


def single_safetensors(path: Path) -> Path:
    """One safetensors file."""
    path.write_bytes(safetensors())
    return path


def cut(path: Path, keep: float = 0.5) -> None:
    """Keep only the first part of a file, at least one byte less than all of it."""
    size = path.stat().st_size
    os.truncate(path, min(int(size * keep), size - 1))


def hollow(path: Path) -> None:
    """The file's size without its data: what a crash leaves after the inode was written and the blocks were not."""
    size = path.stat().st_size
    path.write_bytes(b"")
    os.truncate(path, size)


def later(path: Path, seconds: float) -> None:
    """Move a file's time of change."""
    when = path.stat().st_mtime + seconds
    os.utime(path, (when, when))


Tear = Callable[[Path], object]

DCP_TEARS: dict[str, Tear] = {
    "no .metadata": lambda p: (p / ".metadata").unlink(),
    ".metadata still .tmp": lambda p: (p / ".metadata").rename(p / ".metadata.tmp"),
    ".metadata.tmp beside .metadata": lambda p: (p / ".metadata.tmp").write_bytes(b"\x80\x04"),
    "empty .metadata": lambda p: (p / ".metadata").write_bytes(b""),
    "cut .metadata": lambda p: cut(p / ".metadata"),
    "hollow .metadata": lambda p: hollow(p / ".metadata"),
    "shard missing": lambda p: (p / "__1_0.distcp").unlink(),
    "shard empty": lambda p: (p / "__1_0.distcp").write_bytes(b""),
    "shard one byte short": lambda p: cut(p / "__1_0.distcp", 1.0),
    "shard hollow": lambda p: hollow(p / "__0_0.distcp"),
    "shard newer": lambda p: later(p / "__0_0.distcp", 30),
    "empty folder": lambda p: [child.unlink() for child in list(p.iterdir())],
}
HF_TEARS: dict[str, Tear] = {
    "no trainer_state.json": lambda p: (p / "trainer_state.json").unlink(),
    "cut trainer_state.json": lambda p: cut(p / "trainer_state.json"),
    "other step": lambda p: (p / "trainer_state.json").write_text('{"global_step": 1}'),
    "no step": lambda p: (p / "trainer_state.json").write_text("{}"),
    "empty optimizer": lambda p: (p / "optimizer.pt").write_bytes(b""),
    "cut optimizer": lambda p: cut(p / "optimizer.pt", 0.9),
    "cut model": lambda p: cut(p / "model.safetensors", 0.9),
    "hollow model": lambda p: hollow(p / "model.safetensors"),
    "no model": lambda p: [(p / n).unlink() for n in ("model.safetensors", "config.json")],
    "only the model": lambda p: [c.unlink() for c in list(p.iterdir()) if c.name != "model.safetensors"],
    "temporary file": lambda p: (p / "scheduler.pt").rename(p / "scheduler.pt.tmp"),
    "empty folder": lambda p: [child.unlink() for child in list(p.iterdir())],
}
FILE_TEARS: dict[str, Tear] = {
    "empty": lambda p: p.write_bytes(b""),
    "one byte": lambda p: cut(p, 0.0) or p.write_bytes(b"P"),
    "half": cut,
    "one byte short": lambda p: cut(p, 1.0),
    "longer": lambda p: p.write_bytes(p.read_bytes() + b"\0"),
    "hollow": hollow,
    "other content": lambda p: p.write_bytes(b"\xff" * 200),
}
RANKS_TEARS: dict[str, Tear] = {
    "rank 0 missing": lambda p: (p / "rank0.pt").unlink(),
    "rank 1 cut": lambda p: cut(p / "rank1.pt"),
    "rank 1 temporary": lambda p: (p / "rank1.pt").rename(p / "rank1.pt.tmp"),
    "rank 1 empty": lambda p: (p / "rank1.pt").write_bytes(b""),
}

KINDS: dict[str, tuple[Callable[[Path], Path], str, dict[str, Tear]]] = {
    "dcp": (dcp, "step_{}", DCP_TEARS),
    "hf": (hf, "checkpoint-{}", HF_TEARS),
    "torch": (single_torch, "ckpt_{}.pt", FILE_TEARS),
    "safetensors": (single_safetensors, "model_step{}.safetensors", FILE_TEARS),
    "ranks": (torch_ranks, "iter_{:07d}", RANKS_TEARS),
}
"""Builder, pattern of the name, and ways to tear it, for each kind of checkpoint."""
