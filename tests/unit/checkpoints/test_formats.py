"""Each layout's proof: whole ones pass, every way to tear one is told with its reason."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from hpkit.checkpoints import Candidate, listing
from tests.support import make_checkpoints as make

TEARS = [(kind, tear) for kind, (_, _, tears) in make.KINDS.items() for tear in tears]


def only(folder: Path, format: str = "auto") -> Candidate:
    """The one candidate in a folder."""
    (found,) = listing(str(folder), format).candidates
    return found


def build(kind: str, folder: Path, step: int = 7) -> Path:
    """A complete checkpoint of a kind."""
    builder, pattern, _ = make.KINDS[kind]
    return builder(folder / pattern.format(step))


@pytest.mark.parametrize("kind", make.KINDS)
def test_whole_ones_are_complete(tmp_path: Path, kind: str) -> None:
    path = build(kind, tmp_path)
    found = only(tmp_path)
    assert (found.path, found.step, found.complete, found.reason) == (str(path), 7, True, "")
    assert found.format == ("torch" if kind == "ranks" else kind)
    files = [path] if path.is_file() else [p for p in path.iterdir() if p.suffix != ".json"]
    assert found.size == sum(p.stat().st_size for p in files)


@pytest.mark.parametrize(("kind", "tear"), TEARS)
def test_torn_ones_are_not(tmp_path: Path, kind: str, tear: str) -> None:
    path = build(kind, tmp_path)
    make.KINDS[kind][2][tear](path)
    found = only(tmp_path)
    assert not found.complete
    assert found.examined
    assert found.reason and "\n" not in found.reason


REASONS = {
    ("dcp", "no .metadata"): "no .metadata: the save did not end",
    ("dcp", "shard missing"): "shard __1_0.distcp is missing",
    (
        "dcp",
        "shard newer",
    ): "shard __0_0.distcp is 30 s newer than .metadata: a later save into this folder did not end",
    ("dcp", "shard hollow"): "__0_0.distcp has a size but no data on disk",
    ("hf", "no trainer_state.json"): "no trainer_state.json: the save did not end",
    ("hf", "other step"): "trainer_state.json is of step 1, not of 7",
    ("hf", "empty optimizer"): "optimizer.pt is empty",
    ("hf", "no model"): "no model in it",
    ("hf", "only the model"): "no trainer_state.json: the save did not end",
    ("hf", "empty folder"): "it is empty",
    ("torch", "one byte short"): "ckpt_7.pt is cut: no zip end record",
    ("ranks", "rank 0 missing"): "rank*.pt: number 0 is missing (1 of 2 are there)",
    ("ranks", "rank 1 temporary"): "rank1.pt.tmp is a temporary file: the save did not end",
}


@pytest.mark.parametrize(("kind", "tear"), REASONS)
def test_reasons_say_what_is_wrong(tmp_path: Path, kind: str, tear: str) -> None:
    make.KINDS[kind][2][tear](build(kind, tmp_path))
    assert only(tmp_path).reason == REASONS[kind, tear]


FILES: dict[str, Callable[[], bytes]] = {
    "ckpt_1.pt": make.torch_zip,
    "ckpt_2.pth": lambda: make.torch_zip(zip64=False),
    "ckpt_3.bin": make.torch_old,
    "ckpt_4.ckpt": lambda: b"\x80\x04]q\x00(K\x01K\x02e.",
    "ckpt_5.safetensors": make.safetensors,
    "ckpt_6.safetensors": lambda: make.safetensors(()),
}


@pytest.mark.parametrize("name", FILES)
def test_every_truncation_of_a_file_is_told(tmp_path: Path, name: str) -> None:
    data = FILES[name]()
    path = tmp_path / name
    path.write_bytes(data)
    assert only(tmp_path).complete
    for length in range(len(data)):
        os.truncate(path, 0)
        path.write_bytes(data[:length])
        assert not only(tmp_path).complete, length


def test_a_zip_comment_is_allowed_and_the_end_mark_inside_a_tensor_is_not_taken_for_the_end(
    tmp_path: Path,
) -> None:
    whole = make.torch_zip(zip64=False)
    (tmp_path / "ckpt_1.pt").write_bytes(whole[:-2] + struct.pack("<H", 5) + b"hello")
    assert only(tmp_path).complete
    (tmp_path / "ckpt_1.pt").write_bytes(make.torch_zip(b"PK\x05\x06" + b"\0" * 60)[:-30])
    assert not only(tmp_path).complete


LYING_ZIPS = {
    "directory beyond the file": lambda d: d[:-6] + struct.pack("<L", 1 << 30) + d[-2:],
    "directory of another size": lambda d: d[:-10] + struct.pack("<L", 1 << 20) + d[-6:],
    "more entries than told": lambda d: d[:-12] + struct.pack("<H", 2) + d[-10:],
    "zip64 without its record": lambda d: d[:-12] + b"\xff\xff" + d[-10:],
    "entry beyond the data": lambda d: (
        d.replace(b"PK\x01\x02", b"PK\x01\x02", 1)[: d.index(b"PK\x01\x02") + 20]
        + struct.pack("<L", 1 << 28)
        + d[d.index(b"PK\x01\x02") + 24 :]
    ),
}


@pytest.mark.parametrize("lie", LYING_ZIPS)
def test_zip_directories_that_lie_are_told(tmp_path: Path, lie: str) -> None:
    whole = make.torch_zip(zip64=False)
    changed = LYING_ZIPS[lie](whole)
    assert len(changed) == len(whole) and changed != whole
    (tmp_path / "ckpt_1.pt").write_bytes(changed)
    assert not only(tmp_path).complete


def header(value: object, payload: bytes = b"") -> bytes:
    """A safetensors file with any header."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("<Q", len(text)) + text + payload


LYING_HEADERS = {
    "length beyond the file": struct.pack("<Q", 1 << 40) + b"{}",
    "length beyond 64 bits of sense": b"\xff" * 8 + b"{}",
    "not JSON": header(b"{nope"),
    "a list": header([1, 2]),
    "no offsets": header({"a": {"dtype": "U8"}}),
    "offsets of text": header({"a": {"data_offsets": ["0", "1"]}}, b"x"),
    "offsets backwards": header({"a": {"data_offsets": [5, 1]}}, b"x"),
    "negative offsets": header({"a": {"data_offsets": [-1, 1]}}, b"x"),
    "true as an offset": header({"a": {"data_offsets": [0, True]}}, b"x"),
    "a number of many digits": header(b'{"a": {"data_offsets": [0, ' + b"9" * 100_000 + b"]}}", b"x"),
    "nested deep": header(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "not UTF-8": header(b'{"\xff": 1}'),
}


@pytest.mark.parametrize("lie", LYING_HEADERS)
def test_safetensors_headers_that_lie_are_told(tmp_path: Path, lie: str) -> None:
    (tmp_path / "model_step1.safetensors").write_bytes(LYING_HEADERS[lie])
    found = only(tmp_path)
    assert not found.complete and found.examined


HOSTILE_PATHS = ("../outside", "/etc/passwd", "a/../../outside", "..", "", "a//b", "./x")


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_dcp_metadata_cannot_name_files_outside(tmp_path: Path, path: str) -> None:
    (tmp_path / "outside").write_bytes(b"x" * 10)
    make.dcp(tmp_path / "ckpts" / "step_1")
    (tmp_path / "ckpts" / "step_1" / ".metadata").write_bytes(make.dcp_metadata({path: [5]}))
    found = only(tmp_path / "ckpts")
    assert not found.complete
    assert "outside of the checkpoint" in found.reason


@pytest.mark.parametrize("length", (1 << 100_000, -1), ids=("huge", "negative"))
def test_dcp_lengths_without_sense_are_told(tmp_path: Path, length: int) -> None:
    (make.dcp(tmp_path / "step_1") / ".metadata").write_bytes(make.dcp_metadata({"__0_0.distcp": [length]}))
    assert only(tmp_path).reason.startswith(".metadata has an item with")


def test_dcp_shards_may_lie_in_folders_below(tmp_path: Path) -> None:
    folder = tmp_path / "step_1"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "sub" / "deep" / "a.distcp").write_bytes(b"x" * 9)
    (folder / ".metadata").write_bytes(make.dcp_metadata({"sub/deep/a.distcp": [4, 5]}))
    assert only(tmp_path).complete
    (folder / ".metadata").write_bytes(make.dcp_metadata({"sub/deep/a.distcp": [4, 6]}))
    assert only(tmp_path).reason == "shard sub/deep/a.distcp has 9 bytes, the metadata needs 10"


def test_dcp_without_collectives_needs_the_metadata_of_each_rank(tmp_path: Path) -> None:
    folder = make.dcp(tmp_path / "step_1")
    (folder / ".metadata").unlink()
    for rank in (0, 1):
        size = (folder / f"__{rank}_0.distcp").stat().st_size
        (folder / f"__{rank}.metadata").write_bytes(make.dcp_metadata({f"__{rank}_0.distcp": [size]}))
    assert only(tmp_path).complete
    (folder / "__1.metadata").rename(folder / "__1.metadata.tmp")
    assert only(tmp_path).reason == "__1.metadata.tmp is there: the save did not end"
    (folder / "__1.metadata.tmp").unlink()
    assert only(tmp_path).reason == "no __1.metadata: the save of rank 1 did not end"


def test_dcp_clocks_of_nodes_may_differ_a_little_and_leftover_shards_count(tmp_path: Path) -> None:
    folder = make.dcp(tmp_path / "step_1")
    make.later(folder / "__1_0.distcp", 0.5)
    assert only(tmp_path).complete
    (folder / "__7_0.distcp").write_bytes(b"of a larger, later save")
    make.later(folder / "__7_0.distcp", 60)
    assert only(tmp_path).reason.startswith("shard __7_0.distcp is 60 s newer")


def test_dcp_metadata_of_something_else_is_no_proof(tmp_path: Path) -> None:
    folder = make.dcp(tmp_path / "step_1")
    (folder / ".metadata").write_bytes(b"\x80\x04}.")
    assert only(tmp_path).reason == ".metadata is not the metadata of torch.distributed.checkpoint"
    (folder / ".metadata").write_bytes(make.dcp_metadata({}))
    assert only(tmp_path).reason == ".metadata names no data"


def test_hf_sharded_model_and_ranks(tmp_path: Path) -> None:
    folder = make.hf(tmp_path / "checkpoint-20", ranks=4, shards=3)
    assert only(tmp_path).complete
    (folder / "rng_state_2.pth").unlink()
    assert only(tmp_path).reason == "rng_state_*.pth: number 2 is missing (3 of 4 are there)"
    (folder / "rng_state_2.pth").write_bytes(make.torch_zip())
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert only(tmp_path).reason.startswith("model-00002-of-00003.safetensors is missing")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": 3}}')
    assert only(tmp_path).reason == "model.safetensors.index.json has no weight_map"


def test_hf_with_fsdp_inside(tmp_path: Path) -> None:
    folder = make.hf(tmp_path / "checkpoint-20")
    (folder / "model.safetensors").unlink()
    make.dcp(folder / "pytorch_model_fsdp_0")
    make.dcp(folder / "optimizer_0")
    assert only(tmp_path).complete
    make.DCP_TEARS["no .metadata"](folder / "optimizer_0")
    assert only(tmp_path).reason == "no .metadata: the save did not end"
    make.DCP_TEARS["empty folder"](folder / "optimizer_0")
    assert not only(tmp_path).complete


def test_accelerates_own_folders_are_not_the_trainers(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-20"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(make.safetensors())
    for name in ("optimizer.bin", "scheduler.bin"):
        (folder / name).write_bytes(make.torch_zip())
    found = only(tmp_path)
    assert (found.format, found.complete) == ("safetensors", True)


def test_files_of_ranks_that_the_step_before_has_must_be_there(tmp_path: Path) -> None:
    for step in (10, 20):
        make.torch_ranks(tmp_path / f"step_{step}", 3)
        (tmp_path / f"step_{step}" / f"opt_{step}.pt").write_bytes(make.torch_zip())
    assert [c.complete for c in listing(str(tmp_path)).candidates] == [True, True]
    (tmp_path / "step_20" / "rank2.pt").unlink()
    newest, older = listing(str(tmp_path)).candidates
    assert older.complete
    assert newest.reason == "it lacks rank2.pt, which step_10 has"


def test_ranks_are_not_taken_for_steps(tmp_path: Path) -> None:
    for step in range(6):
        make.torch_ranks(tmp_path / f"step_{step}", 6)
        for name in (f"opt_{step}_rank0.pt", *(f"layer_{n}.pt" for n in range(6))):
            (tmp_path / f"step_{step}" / name).write_bytes(make.torch_zip())
    assert all(c.complete for c in listing(str(tmp_path)).candidates)


def test_a_folder_with_an_index_has_every_file_that_it_names(tmp_path: Path) -> None:
    folder = tmp_path / "step_1"
    folder.mkdir()
    (folder / "a.safetensors").write_bytes(make.safetensors())
    (folder / "b.safetensors").write_bytes(make.safetensors())
    (folder / "all.safetensors.index.json").write_text(
        '{"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}'
    )
    assert only(tmp_path).complete
    (folder / "b.safetensors").unlink()
    assert only(tmp_path).reason == "b.safetensors is missing (all.safetensors.index.json names it)"


def test_the_mark_of_an_unfinished_save_beside_it(tmp_path: Path) -> None:
    make.single_torch(tmp_path / "model-step=10.ckpt")
    make.single_torch(tmp_path / "model-step=20.ckpt")
    (tmp_path / "model-step=20-unfinished").touch()
    newest, older = listing(str(tmp_path)).candidates
    assert older.complete
    assert newest.reason == "model-step=20-unfinished is there: the save did not end"


def test_an_explicit_format_sees_only_its_own(tmp_path: Path) -> None:
    make.dcp(tmp_path / "step_1")
    make.single_torch(tmp_path / "ckpt_2.pt")
    assert [c.step for c in listing(str(tmp_path), "torch").candidates if c.complete] == [2]
    assert [c.step for c in listing(str(tmp_path), "dcp").candidates if c.complete] == [1]
    assert only(tmp_path / "step_1", "dcp").complete
    (found,) = listing(str(tmp_path), "hf").candidates
    assert found.reason == "no hf checkpoint in it"
