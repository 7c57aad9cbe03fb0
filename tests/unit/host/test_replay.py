"""Replay: what a bundle says, and bundles that mean harm."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit import host
from hpkit.errors import UsageError
from hpkit.host import Host
from hpkit.model import Clock, Space, Unread, View

META = {
    "node": "n1",
    "wall": 100.5,
    "uptime": 7.5,
    "boot_id": "b",
    "uid": 5,
    "view": "step",
    "env": {"A": "1"},
}
SECRET = b"of the live machine"


def bundle(folder: Path, files: dict[str, Any] | None = None, meta: Any = META) -> Path:
    """A bundle from a table: text, bytes, or anything else as JSON."""
    for name, content in {"meta.json": meta, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, (str, bytes)) else json.dumps(content)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def number(answer: object) -> int:
    assert isinstance(answer, Unread), answer
    return answer.errno


def test_meta(tmp_path: Path) -> None:
    there = host.replay(str(bundle(tmp_path)))
    assert there.now() == Clock(100.5, 7.5, "b")
    assert (there.node, there.uid, there.view, there.env) == ("n1", 5, View.STEP, {"A": "1"})


def test_meta_may_be_short(tmp_path: Path) -> None:
    files = {"root/proc/sys/kernel/random/boot_id": "from-the-file\n"}
    there = host.replay(str(bundle(tmp_path / "name", files, meta={})))
    assert there.now() == Clock(0.0, 0.0, "from-the-file")
    assert (there.node, there.uid, there.view) == ("name", 0, View.NODE)


def test_a_bundle_written_by_hand(tmp_path: Path) -> None:
    files = {
        "root/sys/devices/a/vendor": "0x10de\n",
        "root/dev/kmsg": "6,1,2,-;old\n6,2,3,-;new\n",
        "answers/space.json": {
            "/": {"total": 1, "avail": 2, "inodes": 3, "inodes_free": 4, "read_only": False},
            "/dead": {"hang": 60},
            "/bad": {"errno": errno.EIO},
        },
    }
    (bundle(tmp_path, files) / "root/sys/link").symlink_to("/sys/devices/a")
    there = host.replay(str(tmp_path))
    assert there.read("/sys/link/vendor", 4) == b"0x10"
    assert there.link("/sys/link") == "/sys/devices/a"
    assert there.list("/sys") == ("devices", "link")
    assert there.read("/dev/kmsg", 15) == b"6,2,3,-;new\n"
    assert there.space("/", 1) == Space(1, 2, 3, 4, False)
    assert [number(there.space(path, 1)) for path in ("/dead", "/bad", "/none")] == [
        errno.ETIMEDOUT,
        errno.EIO,
        errno.ENODATA,
    ]
    assert number(there.read("/proc/meminfo")) == errno.ENOENT
    assert number(there.list("/proc")) == errno.ENOENT


def test_recorded_answers_come_before_the_tree(tmp_path: Path) -> None:
    files = {
        "root/a/file": "x",
        "answers/listings.json": {"/a": ["z", "file"]},
        "answers/unlisted.json": {"/b": {"errno": errno.EACCES, "why": "denied"}},
        "answers/unread.json": {"/a/file": {"errno": errno.EPERM, "why": "no"}},
        "answers/links.json": {"/l": "text"},
        "answers/unlinked.json": {"/m": {"errno": errno.EINVAL}},
    }
    there = host.replay(str(bundle(tmp_path, files, meta={**META, "recorded": True})))
    assert there.list("/a") == ("file", "z")
    assert there.list("/b") == Unread("/b", errno.EACCES, "denied")
    assert there.read("/a/file") == Unread("/a/file", errno.EPERM, "no")
    assert there.link("/l") == "text"
    assert number(there.link("/m")) == errno.EINVAL
    assert number(there.list("/")) == errno.ENODATA, "the round did not ask that"


def test_tools_in_order_of_calls_and_by_arguments(tmp_path: Path) -> None:
    files = {
        "tools/smi/stdout": "first",
        "tools/smi/argv": "-q\n",
        "tools/smi.2/stdout": "second",
        "tools/smi.2/argv": "-q\n",
        "tools/smi.10/stdout": "with words\nin lines",
        "tools/smi.10/argv": "-i\na b\n",
        "tools/smi.10/rc": "6\n",
        "tools/any/stderr": "oops",
        "tools/any/rc": "1",
        "tools/bare/argv": "",
    }
    there = host.replay(str(bundle(tmp_path, files)))
    assert [there.run("smi", "-q", timeout_s=1).text for _ in range(3)] == ["first", "second", "second"]
    ran = there.run("smi", "-i", "a b", timeout_s=1)
    assert (ran.text, ran.rc, ran.argv) == ("with words\nin lines", 6, ("smi", "-i", "a b"))
    assert (there.run("any", "what", "ever", timeout_s=1)[1:4]) == (1, b"", b"oops")
    assert there.run("bare", timeout_s=1).ok
    for call in (
        ("smi",),
        ("smi", "-q", "-x"),
        ("bare", "x"),
        ("none",),
        ("uname",),
        ("..",),
        ("../tools/any",),
    ):
        assert there.run(*call, timeout_s=1).failure == "missing", call
    steps = there.stream("smi", "-i", "a b", timeout_s=1)
    assert [next(steps), next(steps)] == ["with words", "in lines"]


@pytest.mark.parametrize(
    ("hang", "failure"),
    [("60", "timeout"), ("", "timeout"), ("nan", "timeout"), ("0.5", ""), ("x", "denied")],
)
def test_a_tool_that_hangs(tmp_path: Path, hang: str, failure: str) -> None:
    there = host.replay(str(bundle(tmp_path, {"tools/t/hang": hang, "tools/t/stdout": "late"})))
    ran = there.run("t", timeout_s=5)
    assert (ran.failure, ran.stdout) == (failure, b"" if failure else b"late")


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        (None, "no such folder"),
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ("[" * 100_000, "no JSON"),
        (b"\xff", "no JSON"),
        ('{"wall": NaN}', "no JSON"),
        ('{"wall": 1e999}', "no time"),
        ('{"wall": ' + "9" * 100_000 + "}", "no JSON"),
        ({"view": "aside"}, "aside"),
        ({"uid": []}, "meta.json"),
        ({"env": 3}, "meta.json"),
    ],
)
def test_what_is_no_bundle(tmp_path: Path, meta: Any, text: str) -> None:
    folder = tmp_path / "none" if meta is None else bundle(tmp_path / "b", meta=meta)
    with pytest.raises(UsageError, match=text):
        host.replay(str(folder))


def test_a_folder_without_meta(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no meta\.json"):
        host.replay(str(tmp_path))


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the bundle that must never be read."""
    for name in ("secret", "meta.json", "stdout", "etc/secret"):
        (tmp_path / "outside" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "outside" / name).write_bytes(SECRET)
    return tmp_path / "outside"


Attack = Callable[[Path, Path], None]


def _root_is_a_link(b: Path, o: Path) -> None:
    (b / "root").symlink_to(o)


def _root_is_a_relative_link(b: Path, _: Path) -> None:
    (b / "root").symlink_to("../outside")


def _file_is_a_link(b: Path, o: Path) -> None:
    (b / "root").mkdir()
    (b / "root/secret").symlink_to(o / "secret")


def _folder_is_a_link(b: Path, _: Path) -> None:
    (b / "root").mkdir()
    (b / "root/etc").symlink_to("../../outside/etc")


def _link_behind_a_link(b: Path, _: Path) -> None:
    (b / "root/a/b").mkdir(parents=True)
    (b / "root/l").symlink_to("a/b")
    (b / "root/secret").symlink_to("l/../../../../outside/secret")


def _tool_is_a_link(b: Path, o: Path) -> None:
    (b / "tools").mkdir()
    (b / "tools/t").symlink_to(o)


def _output_is_a_link(b: Path, o: Path) -> None:
    (b / "tools/t").mkdir(parents=True)
    (b / "tools/t/stdout").symlink_to(o / "stdout")


@pytest.mark.parametrize(
    "attack",
    [
        _root_is_a_link,
        _root_is_a_relative_link,
        _file_is_a_link,
        _folder_is_a_link,
        _link_behind_a_link,
        _tool_is_a_link,
        _output_is_a_link,
    ],
)
def test_no_link_leads_out(tmp_path: Path, outside: Path, attack: Attack) -> None:
    folder = bundle(tmp_path / "bundle")
    attack(folder, outside)
    try:
        there = host.replay(str(folder))
    except UsageError:
        return
    for path in (
        "/secret",
        "/etc/secret",
        "/../outside/secret",
        "/../../outside/secret",
        str(outside / "secret"),
    ):
        assert there.read(path) != SECRET, path
    assert SECRET not in there.run("t", timeout_s=1).stdout


@pytest.mark.parametrize("name", ["meta.json", "answers/space.json"])
def test_documents_are_no_links_out(tmp_path: Path, outside: Path, name: str) -> None:
    folder = bundle(tmp_path / "bundle")
    (folder / "answers").mkdir()
    (folder / name).unlink(missing_ok=True)
    outside.joinpath("meta.json").write_text(json.dumps({"node": "stolen", "/": {"errno": 5}}))
    (folder / name).symlink_to(outside / "meta.json")
    try:
        there = host.replay(str(folder))
    except UsageError:
        return
    assert (there.node, number(there.space("/", 1))) == ("n1", errno.ENODATA)


@pytest.mark.parametrize("name", ["meta.json", "answers/space.json"])
@pytest.mark.parametrize("kind", ["fifo", "folder", "huge"])
def test_documents_that_are_no_documents(tmp_path: Path, name: str, kind: str) -> None:
    folder = bundle(tmp_path / "bundle")
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with open(path, "wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(UsageError, match=name):
        host.replay(str(folder))


def test_files_that_are_no_files(tmp_path: Path) -> None:
    folder = bundle(
        tmp_path, {"tools/t/stdout": "x", "tools/r/rc": "9" * 5000, "tools/f/ran.json": {"failure": "?"}}
    )
    (folder / "root").mkdir()
    os.mkfifo(folder / "root/fifo")
    os.mkfifo(folder / "tools/t/stderr")
    (folder / "tools/u").mkdir()
    os.mkfifo(folder / "tools/u/argv")
    with open(folder / "root/huge", "wb") as file:
        file.truncate(1 << 40)
    there = host.replay(str(folder))
    assert number(there.read("/fifo")) == errno.EINVAL
    assert there.read("/huge", 100) == bytes(100)
    for tool, failure in (("t", "denied"), ("r", "denied"), ("f", "denied"), ("u", "missing")):
        ran = there.run(tool, timeout_s=1)
        assert (ran.failure, ran.rc) == (failure, -1000), tool


def test_answers_that_make_no_sense(tmp_path: Path) -> None:
    files = {
        "answers/listings.json": {"/a": "names", "/b": [1], "/c": {}},
        "answers/links.json": {"/a": 1},
        "answers/space.json": {"/a": 1, "/b": {}, "/c": {"errno": 10**30}, "/d": {"total": [], "avail": 1}},
        "answers/unread.json": {"/a": 1, "/b": {"total": 1}},
    }
    there = host.replay(str(bundle(tmp_path, files)))
    answers: list[object] = [there.list("/a"), there.list("/b"), there.list("/c"), there.link("/a")]
    answers += [there.space(p, 1) for p in ("/a", "/b", "/c", "/d")] + [there.read(p) for p in ("/a", "/b")]
    assert {number(answer) for answer in answers} <= {errno.EINVAL}


FOLDERS = ["root", "tools", "answers", "t", "t.2", "a", "dev"]
FILES = ["meta.json", "space.json", "listings.json", "links.json", "unread.json", "ran.json", "kmsg"]
NAMES = st.sampled_from([*FOLDERS, *FILES, "argv", "stdout", "rc", "hang"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["/a", "/", "errno", "hang", "total", "view", "env"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
CONTENT = st.one_of(
    st.tuples(st.just("file"), st.binary(max_size=20)),
    st.tuples(st.just("file"), JSON.map(lambda document: json.dumps(document).encode())),
    st.tuples(
        st.just("link"),
        st.sampled_from(["/", "..", "../..", "/secret", "../../outside", "a", "root", "/proc"]),
    ),
    st.tuples(st.just("fifo"), st.none()),
    st.tuples(st.just("dir"), st.none()),
)
TREES = st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), CONTENT), max_size=12)
PATHS = (
    "/a",
    "/",
    "/a/a",
    "/dev/kmsg",
    "/proc/version",
    "/secret",
    "/root/a",
    "a",
    "/../secret",
    "/proc/meminfo",
)


def grow(folder: Path, tree: list[tuple[list[str], tuple[str, Any]]]) -> None:
    """Put a random tree below a folder; what does not fit is left out. No link is followed while it is made."""
    for parts, (kind, content) in tree:
        path = folder.joinpath(*parts)
        if os.path.realpath(path.parent).startswith(os.path.realpath(folder)):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if kind == "link":
                    path.symlink_to(content)
                elif kind == "fifo":
                    os.mkfifo(path)
                elif kind == "dir":
                    path.mkdir()
                elif not path.is_symlink() and not path.exists():
                    path.write_bytes(content)
            except OSError:
                continue


def ask(there: Host) -> list[object]:
    """Every kind of question; the answers must be answers."""
    answers: list[object] = [there.now(), there.node, there.uid, there.view, there.env]
    for path in PATHS:
        answers += [there.read(path, 1000), there.list(path), there.link(path), there.space(path, 1)]
    answers += [there.run("t", *args, timeout_s=1) for args in ((), ("a",), ("a",))]
    return answers


@settings(deadline=None, max_examples=200)
@given(TREES, st.booleans())
def test_any_tree_is_a_bundle_or_a_clear_error(
    tree: list[tuple[list[str], tuple[str, Any]]], with_meta: bool
) -> None:
    with tempfile.TemporaryDirectory() as top:
        secret = Path(top, "outside/secret")
        secret.parent.mkdir()
        secret.write_bytes(SECRET)
        folder = Path(top, "bundle")
        folder.mkdir()
        if with_meta:
            bundle(folder)
        grow(folder, tree)
        try:
            answers = ask(host.replay(str(folder)))
        except UsageError as error:
            assert error.message
        else:
            text = repr(answers)
            assert SECRET.decode() not in text
            assert "MemTotal" not in text and "Linux version" not in text
