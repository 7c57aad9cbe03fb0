"""The watcher: one for each node, a round for a note, an end when it is not wanted any more."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpkit import hook, proc
from hpkit.node import watcher
from hpkit.paths import Paths, paths
from tests.support.node_root import NodeRoot

SOON_S = 30.0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeRoot]:
    found = NodeRoot(tmp_path)
    yield found
    if stamp := named(found):
        proc.end(stamp)


def named(node: NodeRoot) -> proc.Stamp | None:
    try:
        document = node.state("watcher.json")
        return proc.Stamp(document["pid"], document["started"])
    except (ValueError, TypeError, KeyError):
        return None


def becomes(condition: Callable[[], object]) -> bool:
    """Whether it comes true soon; how soon is not what is tested."""
    until = time.monotonic() + SOON_S
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def leave_note(node: NodeRoot, name: str) -> Path:
    note = node.run_dir / "suspects" / name
    note.write_text(json.dumps({"job": "12", "uptime": time.clock_gettime(time.CLOCK_BOOTTIME)}))
    os.chown(note, 1000, 1000)
    return note


def test_the_background_round_starts_one_and_it_answers_notes(node: NodeRoot) -> None:
    node.hook("health")
    assert becomes(lambda: named(node))
    first = named(node)
    assert first is not None and proc.alive(first)
    node.hook("health")
    assert named(node) == first

    before = node.state("answer.json")["written"]
    note = leave_note(node, "a")
    assert becomes(lambda: not note.exists())
    answer = node.state("answer.json")
    assert answer["written"] > before and answer["suite"] == "health"
    assert (node.run_dir / "answered" / "12").read_text() == "1000"

    # A second note within the interval waits: the watcher looks at it and leaves it.
    again = leave_note(node, "b")
    time.sleep(4 * watcher.TICK_S)
    assert again.exists()
    trusted = node.run_dir / "verdict"
    assert becomes(lambda: not trusted.exists()), "until then the cached verdict is not trusted"
    (node.run_dir / "note-round").write_text("0.0")
    (node.run_dir / "watcher.json").unlink()
    assert becomes(lambda: not proc.alive(first)), "without its pidfile it ends"
    node.hook("health")
    assert not again.exists(), "the background round consumes notes, too"
    assert becomes(lambda: named(node)), "and starts another watcher"


def test_it_ends_when_the_run_folder_vanishes(node: NodeRoot) -> None:
    node.hook("health")
    assert becomes(lambda: named(node))
    stamp = named(node)
    assert stamp is not None
    node.run_dir.rename(node.folder / "gone")
    assert becomes(lambda: not proc.alive(stamp))


def test_none_is_started_when_the_site_has_another_way(node: NodeRoot) -> None:
    node.configure(more='[hooks]\nwatcher = "none"\n')
    node.hook("health")
    assert node.state("watcher.json") is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}', '{"pid": 1, "started": 1}'])
def test_a_garbled_pidfile_names_nobody(node: NodeRoot, content: str) -> None:
    node.run_dir.mkdir(parents=True)
    (node.run_dir / "watcher.json").write_text(content)
    where: Paths = paths(str(node.folder))
    assert watcher.ensure(where, str(node.folder), hook.SCRIPT, {"SLURMD_NODENAME": "n1"})
    assert becomes(lambda: (stamp := named(node)) and stamp.pid > 1 and proc.alive(stamp))


def test_a_second_one_leaves_at_once(node: NodeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpkit.node import lock

    monkeypatch.setattr(watcher, "START_S", 0.0)
    where = paths(str(node.folder))
    with lock.acquire(where, 0.0, "watcher.lock"):  # type: ignore[union-attr]  # it is free
        watcher.watch(where, str(node.folder), hook.SCRIPT)
    assert node.state("watcher.json") is None


def test_the_note_round_is_limited_by_itself(node: NodeRoot) -> None:
    """A systemd path unit starts it as often as it likes."""
    node.configure(more='[hooks]\nwatcher = "none"\nnote_interval_s = 2.0\n')
    node.hook("health")
    leave_note(node, "a")
    node.hook("note")
    first = node.state("answer.json")["written"]
    leave_note(node, "b")
    node.hook("note")
    second = node.state("answer.json")["written"]
    assert second - first >= 2.0
    node.hook("note")
    assert node.state("answer.json")["written"] == second, "without a note no round"
