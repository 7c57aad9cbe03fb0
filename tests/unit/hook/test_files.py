"""hpkit's own files: whole or not at all, and nothing hostile is opened or followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hpkit import files


def test_written_whole_with_the_mode_asked_for(tmp_path: Path) -> None:
    target = tmp_path / "state"
    files.write_atomic(str(target), "one\n")
    files.write_atomic(str(target), b"two\n", 0o600, durable=False)
    assert target.read_bytes() == b"two\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["state"]


def test_a_link_in_the_way_is_replaced_and_its_target_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "state").symlink_to(tmp_path / "other")
    files.write_atomic(str(tmp_path / "state"), "new")
    assert (tmp_path / "other").read_text() == "precious"
    assert (tmp_path / "state").read_text() == "new" and not (tmp_path / "state").is_symlink()


def test_a_failed_write_leaves_the_old_content_and_no_trace(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(OSError):
        files.write_atomic(str(tmp_path / "state"), "x")
    assert os.listdir(tmp_path) == ["state"]


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 20)


def _second_name(path: Path) -> None:
    (path.parent / "secret").write_text("secret")
    os.link(path.parent / "secret", path)


HOSTILE: dict[str, Callable[[Path], None]] = {
    "absent": lambda path: None,
    "fifo": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "device": lambda path: os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5)),
    "hard link": _second_name,
    "100 MB": _huge,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_small_file_of_one_name_is_not_read(tmp_path: Path, kind: str) -> None:
    try:
        HOSTILE[kind](tmp_path / "x")
    except PermissionError:
        pytest.skip("device nodes cannot be made here")
    assert files.read_small(str(tmp_path / "x")) is None
    assert files.read_owned(str(tmp_path / "x")) is None


@pytest.mark.parametrize(("size", "limit", "found"), [(0, 10, True), (10, 10, True), (11, 10, False)])
def test_the_limit_is_the_largest_size_that_is_read(
    tmp_path: Path, size: int, limit: int, found: bool
) -> None:
    (tmp_path / "x").write_bytes(b"a" * size)
    assert (files.read_small(str(tmp_path / "x"), limit) is not None) is found


def test_a_file_replaced_while_it_is_open_is_still_read(tmp_path: Path) -> None:
    """Its writer renames a new one over it: the open one then has no name at all."""
    target = tmp_path / "x"
    target.write_text("old")
    before = os.fstat

    def replaced(fd: int) -> os.stat_result:
        files.write_atomic(str(target), "new")
        os.fstat = before
        return before(fd)

    os.fstat = replaced
    try:
        assert files.read_small(str(target)) == b"old"
    finally:
        os.fstat = before


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o1733])
def test_a_folder_gets_its_mode_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        files.ensure_dir(str(tmp_path / "a" / "b"), mode)
        files.ensure_dir(str(tmp_path / "a" / "b"), mode)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == mode
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o755


def test_a_link_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(NotADirectoryError):
        files.ensure_dir(str(tmp_path / "link"), 0o1733)
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) & 0o022 == 0
