"""What root may run and obey: real files with real owners and modes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpkit.errors import HpkitError
from hpkit.trust import find_tool, untrusted

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make files of two owners")
USER = 65534


def plain(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def owned(path: Path, uid: int = USER) -> Path:
    os.lchown(path, uid, uid)
    return path


def mode(path: Path, bits: int) -> Path:
    path.chmod(bits)
    return path


def link(path: Path, target: str) -> Path:
    path.symlink_to(target)
    return path


def good(d: Path) -> Path:
    return plain(d / "a/tool")


def in_sticky_folder(d: Path) -> Path:
    tool = plain(d / "open/tool")
    mode(tool.parent, 0o1777)
    return tool


def through_a_link(d: Path) -> Path:
    return link(d / "here", str(good(d)))


def users_file(d: Path) -> Path:
    return owned(good(d))


def group_writable(d: Path) -> Path:
    return mode(good(d), 0o775)


def others_writable(d: Path) -> Path:
    return mode(good(d), 0o757)


def in_users_folder(d: Path) -> Path:
    tool = good(d)
    owned(tool.parent)
    return tool


def in_open_folder(d: Path) -> Path:
    tool = good(d)
    mode(tool.parent, 0o777)
    return tool


def below_open_folder(d: Path) -> Path:
    tool = plain(d / "a/b/c/tool")
    mode(d / "a", 0o777)
    return tool


def link_into_open_folder(d: Path) -> Path:
    tool = in_open_folder(d)
    return link(d / "here", str(tool))


def link_through_open_folder(d: Path) -> Path:
    tool = good(d)
    (d / "open").mkdir()
    mode(d / "open", 0o777)
    link(d / "open/middle", str(tool))
    return link(d / "here", "open/middle")


def users_link_in_sticky_folder(d: Path) -> Path:
    tool = good(d)
    (d / "open").mkdir()
    mode(d / "open", 0o1777)
    return owned(link(d / "open/here", str(tool)))


def link_with_dots(d: Path) -> Path:
    tool = plain(d / "a/tool")
    (d / "b/c").mkdir(parents=True)
    link(d / "c", "b/c")
    return link(d / "here", f"c/../../{tool.relative_to(d)}")


def missing(d: Path) -> Path:
    return d / "nothing"


def loop(d: Path) -> Path:
    return link(d / "here", "here")


Make = Callable[[Path], Path]


@pytest.mark.parametrize("make", [good, in_sticky_folder, through_a_link, link_with_dots])
def test_trusted(tmp_path: Path, make: Make) -> None:
    assert untrusted(str(make(tmp_path))) == ""


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (users_file, "a/tool belongs to uid 65534"),
        (group_writable, "a/tool is writable by group or others (mode 0775)"),
        (others_writable, "a/tool is writable by group or others (mode 0757)"),
        (in_users_folder, "/a belongs to uid 65534"),
        (in_open_folder, "/a is writable by group or others (mode 0777)"),
        (below_open_folder, "/a is writable"),
        (link_into_open_folder, "/a is writable"),
        (link_through_open_folder, "/open is writable"),
        (users_link_in_sticky_folder, "/open/here belongs to uid 65534"),
        (missing, "/nothing: No such file or directory"),
        (loop, "too many links"),
    ],
)
def test_untrusted(tmp_path: Path, make: Make, why: str) -> None:
    assert why in untrusted(str(make(tmp_path)))


def test_folders_down_to_the_top_are_taken_as_given(tmp_path: Path) -> None:
    tool = in_users_folder(tmp_path)
    assert untrusted(str(tool), str(tool.parent)) == ""
    assert untrusted(str(tool), str(tmp_path)) != ""
    assert untrusted(str(tool), str(tmp_path / "aa")) != "", "no name is the beginning of another"
    (tmp_path / "elsewhere").mkdir()
    assert untrusted(str(link(tmp_path / "elsewhere/here", str(tool))), str(tmp_path / "elsewhere")) != ""


def test_find_tool(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    good_tool = plain(second / "tool")
    folders = (str(tmp_path / "none"), str(first), str(second))
    assert find_tool("tool", folders, True) == str(good_tool)
    mode(plain(first / "tool"), 0o644)
    assert find_tool("tool", folders, True) == str(good_tool), "not executable"
    mode(first / "tool", 0o777)
    with pytest.raises(HpkitError, match="1/tool is not run as root"):
        find_tool("tool", folders, True)
    assert find_tool("tool", folders, False) == str(first / "tool")


@pytest.mark.parametrize("name", ["", ".", "..", "nothing", "2/tool", "/bin/sh", "2"])
def test_what_is_no_tool(tmp_path: Path, name: str) -> None:
    plain(tmp_path / "2/tool")
    assert find_tool(name, (str(tmp_path),), False) == ""
