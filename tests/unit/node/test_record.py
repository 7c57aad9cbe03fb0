"""The drain record on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpkit import host as hosts
from hpkit.model import Action
from hpkit.node import record
from hpkit.paths import Paths
from hpkit.policy.returning import Record

RECORD = Record(
    node="n1",
    boot_id="boot-a",
    instance_id="i-1",
    reason="hpkit: gpu.xid: gpu3: Xid 79",
    at=1_780_000_000.25,
    check="gpu.xid",
    subject="gpu3",
    action=Action.REBOOT,
    message="Xid 79",
    checks=("gpu.xid", "gpu.count"),
    passes=1,
    devices=("s1",),
    state="drained",
)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(str(tmp_path))


def test_what_was_saved_is_loaded(paths: Paths) -> None:
    assert record.load(paths) is None
    record.save(paths, RECORD)
    assert record.load(paths) == RECORD
    assert record.clear(paths)
    assert record.load(paths) is None
    assert not record.clear(paths)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "hpkit.record/2"},
        {"action": "wish"},
        {"at": "yesterday"},
        {"passes": True},
        {"checks": [1]},
        {"node": None},
        {"devices": None},
    ],
)
def test_a_record_that_is_not_understood_is_none(paths: Paths, change: dict[str, object]) -> None:
    record.save(paths, RECORD)
    path = Path(record.path(paths))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert record.load(paths) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 50_000])
def test_garbage_is_no_record(paths: Paths, text: str) -> None:
    record.save(paths, RECORD)
    Path(record.path(paths)).write_text(text)
    assert record.load(paths) is None


def test_a_missing_key_is_no_record(paths: Paths) -> None:
    record.save(paths, RECORD)
    path = Path(record.path(paths))
    document = json.loads(path.read_text())
    for key in document:
        path.write_text(json.dumps({k: v for k, v in document.items() if k != key}))
        assert record.load(paths) is None, key


@pytest.mark.parametrize(
    ("tag", "uuid", "expected"),
    [
        ("i-0abc", "ec2-uuid", "i-0abc"),
        ("Not Specified", "4c4c-uuid", "uuid-f2c695a8b66a1050"),  # a digest: the UUID is for root alone
        (None, "4c4c-uuid", "uuid-f2c695a8b66a1050"),
        (None, None, ""),
    ],
)
def test_instance_id(tmp_path: Path, tag: str | None, uuid: str | None, expected: str) -> None:
    dmi = tmp_path / "root/sys/devices/virtual/dmi/id"
    dmi.mkdir(parents=True)
    for name, text in (("board_asset_tag", tag), ("product_uuid", uuid)):
        if text is not None:
            (dmi / name).write_text(f"{text}\n")
    assert record.instance_id(hosts.live(str(tmp_path))) == expected
