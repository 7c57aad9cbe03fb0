"""hpkit's own state files broken in every way: each costs itself, and never the round or its verdict."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.node_root import NodeRoot

RUN = (
    "config.json", "verdict", "answer.json", "report-health.json", "report-prolog.json", "running.json", "watcher.json",
    "stuck.json", "note-round", "drain-asked", "suspects-plain", "answered",
)  # fmt: skip
LIB = ("config.json", "past.json", "record.json", "released.json")
RECORD = {
    "schema": "hpkit.record/1", "node": "n1", "boot_id": "b", "instance_id": "", "reason": "hpkit: host.disk: x",
    "at": 1.0, "check": "host.disk", "subject": "/", "message": "m", "state": "drained", "action": "retest",
    "checks": ["host.disk"], "devices": [], "passes": 0, "reset_at": 0.0,
}  # fmt: skip


def every_value(value: Any) -> Callable[[bytes], bytes]:
    """The document with each of its values replaced; its schema and stamp stay, so that the rest is looked at."""

    def put(old: Any) -> Any:
        if isinstance(old, dict):
            return {k: v if k in ("schema", "stamp") else put(v) for k, v in old.items()}
        return [put(v) for v in old] if isinstance(old, list) else value

    def broken(data: bytes) -> bytes:
        try:
            return json.dumps(put(json.loads(data))).encode()
        except ValueError:
            return json.dumps(value).encode()

    return broken


CONTENTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "no text": lambda _: b"\x00\xff\xfe" * 50,
    "a list": lambda _: b"[]",
    "nothing": lambda _: b"null",
    "only its stamp": lambda data: every_key_dropped(data),
    "deep lists": lambda _: b"[" * 50_000,
    "deep tables": lambda _: b'{"a":' * 50_000,
    "huge": lambda _: b"x" * (5 << 20),
    "whole numbers beyond any float": every_value(10**400),
    "infinities": every_value(float("inf")),
    "tables": every_value({"a": 1}),
    "numbers": every_value(5.5),
}


def every_key_dropped(data: bytes) -> bytes:
    """The document without all but its schema and stamp."""
    try:
        found = json.loads(data)
    except ValueError:
        return b"{}"
    return json.dumps({k: v for k, v in found.items() if k in ("schema", "stamp")} if found else {}).encode()


def folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


PLACES: dict[str, Callable[[Path], None]] = {
    "a folder": folder,
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("/etc/passwd"),
    "a link to nothing": lambda path: path.symlink_to("/nonexistent/x"),
}


def settled(tmp_path: Path) -> NodeRoot:
    """A node whose hooks have left all their files."""
    node = NodeRoot(tmp_path)
    node.configure(more='[hooks]\nwatcher = "none"\nrelease_held = false\nstart_requeued = false\n')
    node.hook("health")
    (node.run_dir / "report-prolog.json").write_bytes((node.run_dir / "report-health.json").read_bytes())
    (node.lib_dir / "record.json").write_text(json.dumps(RECORD))
    return node


def clear(path: Path) -> bytes:
    """What was there, which is gone then."""
    data = path.read_bytes() if path.is_file() else b""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return data


def works(node: NodeRoot) -> None:
    """The background round and the prolog judge the node as it is."""
    for kind, rc, state in (("health", 0, "IDLE"), ("prolog", 101, "IDLE+DRAIN")):
        node.disk(used=100 if rc else 10)
        ran = node.hook(kind, SLURM_JOB_ID="12", SLURM_JOB_UID="1000")
        assert (ran.rc, ran.failure, ran.stderr) == (rc, "", b"")
        assert node.node()["state"] == state
        assert "hook-crashed" not in node.log()


@pytest.mark.parametrize("how", CONTENTS)
def test_state_files_with_other_content(how: str, tmp_path: Path) -> None:
    node = settled(tmp_path)
    for path in (*(node.run_dir / n for n in RUN), *(node.lib_dir / n for n in LIB)):
        path.write_bytes(CONTENTS[how](clear(path)))
    works(node)


@pytest.mark.parametrize("what", PLACES)
def test_something_else_in_the_place_of_state_files(what: str, tmp_path: Path) -> None:
    node = settled(tmp_path)
    for path in (*(node.run_dir / n for n in (*RUN, "lock")), *(node.lib_dir / n for n in LIB)):
        clear(path)
        PLACES[what](path)
    works(node)


@pytest.mark.parametrize("what", ["a pipe", "a link"])
def test_no_folder_for_notes(what: str, tmp_path: Path) -> None:
    node = settled(tmp_path)
    clear(node.run_dir / "suspects")
    PLACES[what](node.run_dir / "suspects")
    works(node)
