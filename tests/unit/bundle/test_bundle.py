"""Recording, and the round trip: a replay gives the answers that the recording gave."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit import bundle, host, proc
from hpkit.errors import HpkitError, UsageError
from hpkit.host import Host
from hpkit.model import Unread, View

LONG = 60.0


def finish(steps: Generator[str, None, proc.Ran]) -> tuple[list[str], proc.Ran]:
    found = []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as stop:
            return found, stop.value


QUESTIONS: list[tuple[Any, ...]] = [
    ("read", "/proc/mounts"),
    ("read", "/proc/self/status", 100),
    ("read", "/sys/class/net/lo/address"),
    ("read", "/dev/null"),
    ("read", "/no/such/file"),
    ("list", "/proc/sys/kernel/random"),
    ("list", "/sys/class/net"),
    ("list", "/no/such/folder"),
    ("list", "/etc/hostname"),
    ("link", "/sys/class/net/lo"),
    ("link", "/proc/self"),
    ("link", "/etc"),
    ("space", "/no/such/mount", LONG),
    ("space", "/proc", LONG),
]
CALLS = [
    ("sh", "-c", "echo out; echo err >&2; exit 3"),
    ("sh", "-c", "echo 2"),
    ("true",),
    ("no-such-tool", "x"),
]


def ask(there: Host) -> list[object]:
    answers: list[object] = [getattr(there, name)(*args) for name, *args in QUESTIONS]
    answers += [there.run(*call, timeout_s=LONG) for call in CALLS]
    answers.append(there.run("sleep", "1000", timeout_s=0.1))
    answers.append(finish(there.stream("sh", "-c", "echo a; echo b; exit 4", timeout_s=LONG)))
    return answers


def test_a_replay_answers_as_the_machine_did(tmp_path: Path) -> None:
    folder = str(tmp_path / "made" / "bundle")
    recording = bundle.start(folder)
    before = ask(recording)
    bundle.finish(recording)
    there = host.replay(folder)
    assert ask(there) == before
    assert (there.node, there.uid, there.view, there.env) == (
        recording.node,
        recording.uid,
        recording.view,
        recording.env,
    )
    assert there.now().boot_id == recording.now().boot_id
    assert os.stat(folder).st_mode & 0o777 == 0o700, "a kernel log is not for everybody"


def test_the_bundle_is_a_folder_of_plain_files(tmp_path: Path) -> None:
    recording = bundle.start(str(tmp_path / "b"))
    ask(recording)
    root = tmp_path / "b/root"
    assert (root / "sys/class/net/lo").is_symlink(), "links are kept"
    assert (root / "sys/class/net/lo/address").read_bytes() == recording.read("/sys/class/net/lo/address")
    for where, folders, files in os.walk(root):
        for name in folders + files:
            path = Path(where, name)
            assert not path.is_symlink() or path.resolve().is_relative_to(root.resolve())
    assert (tmp_path / "b/tools/sh/argv").read_text() == "-c\necho out; echo err >&2; exit 3\n"
    assert (tmp_path / "b/tools/sh/rc").read_text() == "3\n"
    assert (tmp_path / "b/tools/sh.2/stdout").read_text() == "2\n"
    assert json.loads((tmp_path / "b/meta.json").read_text())["schema"] == "hpkit.bundle/1"


@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("file", "file"),
        ("../a/file", "../a/file"),
        ("./../b/../a/file", "./../b/../a/file"),
        ("/a/file", "../a/file"),
        ("/", ".."),
        ("../../../a/file", "../a/file"),
        ("../../x", "../x"),
        ("//a/../../b", "../b"),
    ],
)
def test_a_link_that_would_lead_out_is_kept_inside(tmp_path: Path, target: str, kept: str) -> None:
    (tmp_path / "node/root/a").mkdir(parents=True)
    (tmp_path / "node/root/b").mkdir()
    (tmp_path / "node/root/a/file").write_text("text")
    (tmp_path / "node/root/a/link").symlink_to(target)
    recording = bundle.start(str(tmp_path / "b"), host.live(str(tmp_path / "node")))
    before = [recording.link("/a/link"), recording.read("/a/link")]
    bundle.finish(recording)
    assert os.readlink(tmp_path / "b/root/a/link") == kept
    there = host.replay(str(tmp_path / "b"))
    assert [there.link("/a/link"), there.read("/a/link")] == before
    assert before[0] == target


def test_the_same_question_twice_is_one_answer(tmp_path: Path) -> None:
    node = tmp_path / "node"
    (node / "root").mkdir(parents=True)
    file = node / "root/file"
    file.write_text("first")
    recording = bundle.start(str(tmp_path / "b"), host.live(str(node)))
    assert recording.read("/file", 2) == b"fi"
    assert recording.read("/file") == b"first", "a read that was not cut replaces one that was"
    file.write_text("a later text")
    assert recording.read("/file") == b"a later text"
    assert recording.list("/") == ("file",)
    file.rename(node / "root/other")
    assert isinstance(recording.read("/file"), Unread)
    assert recording.list("/") == ("other",)
    assert isinstance(recording.read("/late"), Unread)
    (node / "root/late").write_text("x")
    assert recording.read("/late") == b"x"
    there = host.replay(str(tmp_path / "b"))
    assert there.read("/file") == b"first"
    assert there.list("/") == ("file",)
    assert isinstance(there.read("/late"), Unread)


def test_hpkits_own_state_is_in_the_bundle(tmp_path: Path) -> None:
    own = {"var/lib/hpkit/past.json": "{}", "etc/hpkit/conf.d/a.toml": "mode = 1", "run/hpkit/verdict": "x"}
    for name, text in own.items():
        path = tmp_path / "node/root" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    (tmp_path / "node/root/var/lib/hpkit/link").symlink_to("/etc/other")
    (tmp_path / "node/root/etc/other").write_text("not ours")
    bundle.start(str(tmp_path / "b"), host.live(str(tmp_path / "node")))
    assert {name: (tmp_path / "b/root" / name).read_text() for name in own} == own
    assert not (tmp_path / "b/root/etc/other").exists()


@pytest.mark.parametrize("kind", ["file", "full", "link"])
def test_what_exists_is_never_mixed_with(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "b"
    if kind == "file":
        path.write_text("x")
    elif kind == "link":
        path.symlink_to("nowhere")
    else:
        path.mkdir()
        (path / "x").write_text("x")
    with pytest.raises(UsageError, match="exists and is not an empty folder"):
        bundle.start(str(path))


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    bundle.finish(bundle.start(str(tmp_path)))
    assert host.replay(str(tmp_path)).view is View.NODE


def test_a_place_that_cannot_be_written() -> None:
    with pytest.raises(HpkitError, match="cannot make the bundle"):
        bundle.start("/proc/no/bundle")


def test_answers_that_were_lost_are_told(tmp_path: Path) -> None:
    recording = bundle.start(str(tmp_path / "b"))
    (tmp_path / "b/root/proc").parent.mkdir(exist_ok=True)
    (tmp_path / "b/root/proc").write_text("in the way")
    assert isinstance(recording.read("/proc/version"), bytes), "the round does not see it"
    with pytest.raises(HpkitError, match="lacks 1 answer"):
        bundle.finish(recording)


NAME = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0") | st.sampled_from("\udc80\udcff"),
    min_size=1,
    max_size=12,
).filter(lambda name: name not in (".", "..") and len(os.fsencode(name)) < 200)
FILES = st.dictionaries(
    st.lists(NAME, min_size=1, max_size=3).map(tuple), st.binary(max_size=300), max_size=6
)
LINKS = st.lists(
    st.tuples(NAME, st.sampled_from(["/", "..", "../../x", "/etc/passwd", "a/../..", "."]) | NAME), max_size=4
)


def plant(folder: Path, files: dict[tuple[str, ...], bytes], links: list[tuple[str, str]]) -> None:
    for parts, data in files.items():
        path = folder.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError:
            continue  # one name is a file here and a folder there
    for name, target in links:
        if not os.path.lexists(folder / name):
            os.symlink(target, folder / name)


@settings(deadline=None, max_examples=60)
@given(FILES, LINKS)
def test_any_names_and_contents_survive(
    files: dict[tuple[str, ...], bytes], links: list[tuple[str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as top:
        node = Path(top, "node")
        (node / "root").mkdir(parents=True)
        plant(node / "root", files, links)
        recording = bundle.start(f"{top}/b", host.live(str(node)))
        paths = ["/" + "/".join(parts) for parts in files]
        paths += [
            f"/{name}{more}" for name, _ in links for more in ("", "/" + "/".join(next(iter(files), ("x",))))
        ]
        questions = [
            (kind, path)
            for path in ["/", *paths, *map(os.path.dirname, paths)]
            for kind in ("read", "link", "list")
        ]
        before = [getattr(recording, kind)(path) for kind, path in questions]
        bundle.finish(recording)
        there = host.replay(f"{top}/b")
        assert [getattr(there, kind)(path) for kind, path in questions] == before


@settings(deadline=None, max_examples=30)
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), max_size=3))
def test_any_arguments_survive(args: list[str]) -> None:
    with tempfile.TemporaryDirectory() as top:
        recording = bundle.start(f"{top}/b")
        before = [recording.run("printf", "%s|", *args, timeout_s=LONG) for _ in range(2)]
        there = host.replay(f"{top}/b")
        assert [there.run("printf", "%s|", *args, timeout_s=LONG) for _ in range(2)] == before
