"""The stored past: kept whole, strict when broken, moved by acceptance only."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpkit.model import Action, Clock, Finding, Status
from hpkit.past import Past, accept, begin, counters_of, load, save
from hpkit.paths import paths

CLOCK = Clock(1000.0, 50.0, "boot-1")
BAD = Finding("gpu.xid", "gpu3", Status.FAIL, Action.REBOOT, "Xid 79", "reboot", 0.1, {"first_seen": 9.0})
FULL = Past("boot-1", 900.0, 40.0, "deep", {"a": 1}, (BAD,), {"gpu.ecc": 2})


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    where = paths(str(tmp_path))
    save(where, FULL._replace(note="old trouble"))
    assert load(where) == FULL
    assert os.listdir(where.lib) == ["past.json"]


def test_none_yet_is_no_trouble(tmp_path: Path) -> None:
    assert load(paths(str(tmp_path))) == Past()


def documents() -> list[str]:
    good = {
        "schema": "hpkit.past/1", "boot_id": "b", "accepted_at": 1.0, "accepted_uptime": 2.0, "accepted_why": "boot",
        "counters": {}, "latched": [], "blind": {},
    }  # fmt: skip
    bad = [{**good, key: value} for key, value in (
        ("schema", "hpkit.past/2"), ("boot_id", 3), ("accepted_at", "now"), ("accepted_uptime", True), ("counters", []),
        ("counters", {"a": 1.5}), ("counters", {"a": -1}), ("latched", [{"check": "x"}]), ("latched", 5), ("blind", {"a": "b"}),
        ("accepted_uptime", float("inf")),
    )]  # fmt: skip
    cut = json.dumps(good)[:-20]
    return ["", "{", "[]", "null", cut, "\x00\xff", "[" * 100_000, *map(json.dumps, bad)]


@pytest.mark.parametrize("text", documents(), ids=lambda t: t[:40])
def test_broken_file_is_a_fresh_past_with_a_note(tmp_path: Path, text: str) -> None:
    where = paths(str(tmp_path))
    os.makedirs(where.lib)
    Path(where.lib, "past.json").write_text(text, encoding="latin-1")
    found = load(where)
    assert "past.json" in found.note
    assert found._replace(note="") == Past()


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_what_is_no_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    where = paths(str(tmp_path))
    os.makedirs(where.lib)
    path = Path(where.lib, "past.json")
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        (tmp_path / "else").write_text("{}")
        path.symlink_to(tmp_path / "else")
    assert "no plain file" in load(where).note


def test_first_round_of_a_boot_accepts_it() -> None:
    new = begin(FULL, CLOCK._replace(boot_id="boot-2"))
    assert new == Past("boot-2", 1000.0, 0.0, "boot")
    assert begin(new, CLOCK._replace(boot_id="boot-2", wall=2000.0)) == new
    assert begin(FULL, CLOCK) == FULL
    assert begin(FULL, CLOCK._replace(boot_id="")) == FULL
    assert begin(Past(note="lost"), CLOCK).note == "lost"


def test_acceptance_clears_what_was_held_against_the_node() -> None:
    assert accept(FULL, "reset", CLOCK, {"a": 7}) == Past("boot-1", 1000.0, 50.0, "reset", {"a": 7})


def test_counters_are_carried_by_findings() -> None:
    good = BAD._replace(data={"counters": {"a": 1, "b": "x", "c": True}})
    assert counters_of([good, BAD, BAD._replace(data={"counters": 5})]) == {"a": 1}
