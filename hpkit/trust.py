"""Whether only root can change a file: root hooks run no tool and obey no configuration that a user could write."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from hpkit.errors import HpkitError

_MAX_LINKS = 40  # the kernel's own limit


def untrusted(path: str, top: str = "/") -> str:
    """Why a non-root user could change this file, "" when none could.

    The file, every folder above it, and every link on the way must be root's and not writable by group or others (a
    sticky folder is fine: nobody replaces root's entries in it). Folders down to `top` itself are taken as given.
    A file that does not exist is not trusted.
    """
    top = os.path.abspath(top)
    here, todo, links = "/", _parts(os.path.abspath(path)), 0
    while True:
        given = top != "/" and (top + "/").startswith(here.rstrip("/") + "/")
        try:
            found = os.lstat(here)
        except OSError as error:
            return f"{here}: {error.strerror}"
        if why := "" if given else _why(here, found):
            return why
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _MAX_LINKS:
                return f"{here}: too many links"
            target = os.readlink(here)
            todo += _parts(target)
            here = "/" if target.startswith("/") else os.path.dirname(here)
        if not todo:
            return ""
        part = todo.pop()
        here = os.path.dirname(here) if part == ".." else os.path.join(here, part)


def _parts(path: str) -> list[str]:
    """The components of a path, last first."""
    return [part for part in path.split("/") if part not in ("", ".")][::-1]


def _why(path: str, found: os.stat_result) -> str:
    """Why this one entry could be changed by a non-root user."""
    if found.st_uid != 0:
        return f"{path} belongs to uid {found.st_uid}, not to root"
    if stat.S_ISLNK(found.st_mode):
        return ""
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & 0o022 and not sticky:
        return f"{path} is writable by group or others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def find_tool(name: str, folders: Sequence[str], trusted_only: bool, top: str = "/") -> str:
    """The path of an executable by its bare name, "" when no folder has it.

    With `trusted_only`, raises HpkitError when the one found could be changed by a non-root user. The next folder is
    not tried then: a tool that changes its meaning is worse than none.
    """
    if "/" in name or name in ("", ".", ".."):
        return ""
    for folder in folders:
        path = os.path.join(folder, name)
        if not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        if trusted_only and (why := untrusted(path, top)):
            raise HpkitError(f"{path} is not run as root: {why}", "make it root's and writable by root alone")
        return path
    return ""
