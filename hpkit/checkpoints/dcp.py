"""torch.distributed.checkpoint (FSDP2, torchtitan, Accelerate, …): shards `__RANK_N.distcp` and `.metadata`.

Each rank writes its shards; then rank 0 writes `.metadata.tmp`, syncs and renames it to `.metadata`. Proof: `.metadata`
is there and no `.metadata.tmp`; it is a whole pickle; each file that its storage_data names has at least the bytes
named. Saving again into the same folder keeps the old `.metadata` while shards are rewritten, so no shard may be newer.
Without collectives each rank writes `__RANK.metadata` instead. Source: torch/distributed/checkpoint/filesystem.py.
"""

from __future__ import annotations

import re
from typing import Any

from hpkit.checkpoints.model import Proof
from hpkit.checkpoints.stub_pickle import Broken, Pairs, Reader, Stub
from hpkit.checkpoints.tree import Facts, Place, Unusable, shown

NAME = "dcp"
MARKED = True
METADATA = ".metadata"
MAX_METADATA = 256 << 20
"""Bytes of metadata that are examined: about 2.7 million items."""
CLOCKS_NS = 1_000_000_000
"""A shard may be this much newer than the metadata: nodes' clocks differ, and Lustre and NFS clients set the times."""
_SHARD = re.compile(r"^__([0-9]+)_[0-9]+\.distcp$")
_OF_RANK = re.compile(r"^__([0-9]+)\.metadata(\.tmp)?$")


def recognise(place: Place) -> bool:
    """A folder with `.metadata`, `.metadata.tmp`, a per-rank metadata or a shard."""
    return place.folder and any(
        name in (METADATA, METADATA + ".tmp") or _SHARD.match(name) or _OF_RANK.match(name)
        for name in place.entries
    )


def prove(place: Place) -> Proof:
    """Marker, then the metadata's own account of every shard."""
    markers = _markers(place)
    needs: dict[str, int] = {}
    written = 0
    size = 0
    for marker in markers:
        facts = place.facts(marker)
        _read(place, marker, facts.size, needs)
        written = max(written, facts.mtime_ns)
        size += facts.size
    if not needs:
        raise Unusable(f"{markers[0]} names no data")
    for path, need in needs.items():
        size += _shard(place, path, need, written).size
    for name in place.files():
        if name.endswith(".distcp") and name not in needs:
            _not_newer(name, place.facts(name), written)
    return Proof(True, size=size)


def _markers(place: Place) -> list[str]:
    """The metadata files of a finished save. Raises Unusable when one is missing or still temporary."""
    entries = place.entries
    for name in sorted(entries):
        match = _OF_RANK.match(name)
        if name == METADATA + ".tmp" or (match and match[2]):
            raise Unusable(f"{name} is there: the save did not end")
    if METADATA in entries:
        return [METADATA]
    own = {int(match[1]) for name in entries if (match := _OF_RANK.match(name))}
    ranks = {int(match[1]) for name in entries if (match := _SHARD.match(name))}
    if not own:
        raise Unusable("no .metadata: the save did not end")
    missing = next(rank for rank in range(len(own) + 1) if rank not in own)
    if missing <= max(own | ranks):
        raise Unusable(f"no __{missing}.metadata: the save of rank {missing} did not end")
    return sorted(f"__{rank}{METADATA}" for rank in own)


def _read(place: Place, name: str, size: int, needs: dict[str, int]) -> None:
    """Add to `needs` how many bytes each file must have, by its path inside the folder."""
    if size > MAX_METADATA:
        raise Unusable(f"{name} is too large to examine ({size} bytes)", unsure=True)

    def built(kind: str, state: Any) -> None:
        if (
            isinstance(state, tuple) and len(state) == 2
        ):  # (None, fields): how a class with __slots__ is pickled
            state = state[1]
        if kind.endswith("._StorageInfo") and isinstance(state, Pairs):
            path, offset, length = (state.get(key) for key in ("relative_path", "offset", "length"))
            if not isinstance(path, str) or type(offset) is not int or type(length) is not int:
                raise Unusable(f"{name} has an item without path, offset or length")
            if offset < 0 or length < 0:
                raise Unusable(f"{name} has an item with a negative offset or length")
            needs[path] = max(needs.get(path, 0), offset + length)

    reader = Reader(place.read(name, 0, size), built=built, tick=place.tree.tick)
    try:
        top = reader.load()
    except Broken as error:
        raise Unusable(f"{name} is not whole: {error}") from error
    if not (isinstance(top, Stub) and top.name.endswith("Metadata")):
        raise Unusable(f"{name} is not the metadata of torch.distributed.checkpoint")


def _shard(place: Place, path: str, need: int, written: int) -> Facts:
    """One file that the metadata names: there, large enough, not newer. Items may lie in folders below."""
    *folders, name = path.split("/")
    if (
        path.startswith("/")
        or not name
        or any(part in ("", ".", "..") for part in folders)
        or name in (".", "..")
    ):
        raise Unusable(f"the metadata names {shown(path)}, which lies outside of the checkpoint")
    for part in folders:
        if part not in place.entries:
            raise Unusable(f"shard {shown(path)} is missing")
        place = place.inner(part)
    if name not in place.entries:
        raise Unusable(f"shard {shown(path)} is missing")
    if need == 0:
        return Facts(0, 0, 0)
    facts = place.facts(name)
    if facts.size < need:
        raise Unusable(f"shard {shown(path)} has {facts.size} bytes, the metadata needs {need}")
    _not_newer(path, facts, written)
    return facts


def _not_newer(path: str, facts: Facts, written: int) -> None:
    if facts.mtime_ns > written + CLOCKS_NS:
        late = (facts.mtime_ns - written) / 1e9
        raise Unusable(
            f"shard {shown(path)} is {late:.0f} s newer than .metadata: a later save into this folder did not end"
        )
