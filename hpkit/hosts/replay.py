"""A host that answers from a bundle, which may come from anybody: nothing in it is trusted or can make us wait."""

from __future__ import annotations

import errno
import json
import math
import os
import re
from collections.abc import Generator, Mapping
from typing import Any

from hpkit.errors import UsageError
from hpkit.hosts.space import space_from
from hpkit.hosts.tree import BOOT_ID, Tree
from hpkit.model import Clock, Space, Unread, View
from hpkit.proc import NO_STATUS, Ran

ANSWERS = ("unread", "unlisted", "unlinked", "listings", "links", "space")
"""The files answers/NAME.json, each an object by path. Only `space` matters in a bundle written by hand."""

_DOCUMENT_LIMIT = 16 << 20
_OUTPUT_LIMIT = 8 << 20
_NUMBER_LIMIT = 40
_NUMBERED = re.compile(r"(.+)\.([0-9]{1,9})")
_FAILURES = ("", "denied", "timeout", "stuck")


class ReplayHost:
    """The machine that a bundle shows. Raises UsageError when `folder` is no bundle or its JSON cannot be read.

    A file that the bundle lacks is ENOENT. A folder is answered from answers/listings.json; only a bundle that was
    written by hand is listed as it lies. Free space that it lacks is ENODATA; a tool that it lacks is "missing".
    """

    def __init__(self, folder: str) -> None:
        if not os.path.isdir(folder):
            raise UsageError(f"{folder} is no bundle: no such folder", "make one with: hpkit bundle PATH")
        self._folder = folder
        self._files = Tree(os.path.realpath(folder))
        meta = self._document("meta.json")
        if meta is None:
            raise UsageError(
                f"{folder} is no bundle: it has no meta.json", "make one with: hpkit bundle PATH"
            )
        self._tree = self._root()
        self._take_meta(meta)
        self._answers = {name: self._document(f"answers/{name}.json") or {} for name in ANSWERS}
        self._recorded = bool(meta.get("recorded"))
        self._tools = self._tool_folders()
        self._calls: dict[tuple[str, ...], int] = {}

    def now(self) -> Clock:
        """The moment when the bundle was recorded."""
        return self._clock

    def read(self, path: str, limit: int = 1 << 20) -> bytes | Unread:
        """See Host.read."""
        return self._error("unread", path) or self._tree.read(path, limit)

    def list(self, path: str) -> tuple[str, ...] | Unread:
        """See Host.list."""
        if error := self._error("unlisted", path):
            return error
        names = self._answers["listings"].get(path)
        if names is None:
            return self._lacks(path) if self._recorded else self._tree.list(path)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            return _senseless(path)
        return tuple(sorted(names))

    def link(self, path: str) -> str | Unread:
        """See Host.link."""
        if error := self._error("unlinked", path):
            return error
        target = self._answers["links"].get(path)
        if target is None:
            return self._tree.link(path)
        return target if isinstance(target, str) else _senseless(path)

    def space(self, path: str, timeout_s: float) -> Space | Unread:
        """See Host.space."""
        answer = self._answers["space"].get(path)
        if answer is None:
            return self._lacks(path)
        return space_from(path, answer) if isinstance(answer, dict) else _senseless(path)

    def run(self, tool: str, *args: str, timeout_s: float) -> Ran:
        """See Host.run. The n-th such call gets the n-th folder that answers it, later ones the last."""
        argv = (tool, *args)
        fitting = [where for where in self._tools.get(tool, ()) if self._answers_call(where, args)]
        if not fitting:
            return Ran(argv, NO_STATUS, b"", f"no tool {tool} here".encode(), 0.0, "missing")
        number = self._calls.get(argv, 0)
        self._calls[argv] = number + 1
        return self._ran(argv, fitting[min(number, len(fitting) - 1)], timeout_s)

    def stream(self, tool: str, *args: str, timeout_s: float) -> Generator[str, None, Ran]:
        """See Host.stream."""
        ran = self.run(tool, *args, timeout_s=timeout_s)
        lines = ran.text.split("\n")
        yield from lines[:-1]
        if lines[-1]:
            yield lines[-1]
        return ran

    def _document(self, name: str) -> dict[str, Any] | None:
        """A JSON object of the bundle, None when the file does not exist."""
        found = self._files.read(f"/{name}", _DOCUMENT_LIMIT)
        if isinstance(found, Unread):
            if found.errno == errno.ENOENT:
                return None
            raise self._bad(name, found.why)
        if len(found) == _DOCUMENT_LIMIT:
            raise self._bad(name, "is too large")
        try:
            document = json.loads(found, parse_int=_number, parse_constant=_number)
        except (ValueError, RecursionError) as error:
            raise self._bad(name, f"is no JSON ({error})") from error
        if not isinstance(document, dict):
            raise self._bad(name, "is no JSON object")
        return document

    def _root(self) -> Tree:
        """The files of the machine; a root that is a link may lead to nowhere but a place in the bundle."""
        try:
            return Tree(self._files.resolve("/root"))
        except OSError as error:
            lacking = os.path.join(os.path.realpath(self._folder), "root")
            if os.path.lexists(lacking):
                raise self._bad("root", error.strerror or str(error)) from error
            return Tree(lacking)

    def _take_meta(self, meta: Mapping[str, Any]) -> None:
        """Node, clock, uid, view and environment; what is not there has a plain default."""
        try:
            self.view = View(meta.get("view", View.NODE.value))
            self.uid = int(meta.get("uid", 0))
            self.node = str(meta.get("node") or os.path.basename(os.path.realpath(self._folder)))
            self.env: Mapping[str, str] = {str(k): str(v) for k, v in dict(meta.get("env", {})).items()}
            wall, uptime = float(meta.get("wall", 0.0)), float(meta.get("uptime", 0.0))
            if not (math.isfinite(wall) and math.isfinite(uptime)):
                raise ValueError("its clock is no time")
        except (TypeError, ValueError, OverflowError) as error:
            raise self._bad("meta.json", str(error)) from error
        boot_id = meta.get("boot_id")
        if not boot_id:
            found = self._tree.read(BOOT_ID, 256)
            boot_id = "" if isinstance(found, Unread) else found.decode("ascii", "replace").strip()
        self._clock = Clock(wall, uptime, str(boot_id))

    def _tool_folders(self) -> dict[str, tuple[str, ...]]:
        """For each tool its folders NAME, NAME.2, … in order."""
        names = self._files.list("/tools")
        found: dict[str, dict[int, str]] = {}
        for name in () if isinstance(names, Unread) else names:
            found.setdefault(name, {})[0] = name
            if match := _NUMBERED.fullmatch(name):
                found.setdefault(match[1], {})[int(match[2])] = name
        return {tool: tuple(folders[n] for n in sorted(folders)) for tool, folders in found.items()}

    def _answers_call(self, where: str, args: tuple[str, ...]) -> bool:
        text = self._files.read(f"/tools/{where}/argv", _OUTPUT_LIMIT)
        if isinstance(text, Unread):
            return text.errno == errno.ENOENT
        wanted = "\n".join(args).encode("utf-8", "surrogateescape")
        return text.rstrip(b"\n") == wanted.rstrip(b"\n")

    def _ran(self, argv: tuple[str, ...], where: str, timeout_s: float) -> Ran:
        """How a recorded call ended; one that cannot be understood is "denied", and stderr says why."""
        try:
            stdout, stderr, rc, hang = (
                self._part(where, part) for part in ("stdout", "stderr", "rc", "hang")
            )
            more = self._document(f"tools/{where}/ran.json") or {}
            seconds, failure = float(more.get("seconds", 0.0)), more.get("failure", "")
            if failure not in _FAILURES or not math.isfinite(seconds):
                raise ValueError("ran.json makes no sense")
            hang_s = float(hang or (b"inf" if hang is not None else b"0"))
            status = _number((rc or b"0").decode("ascii").strip())
        except (UsageError, TypeError, ValueError, OverflowError) as error:
            text = f"bundle: tools/{where}: {error}".encode("utf-8", "replace")
            return Ran(argv, NO_STATUS, b"", text, 0.0, "denied")
        if not hang_s < timeout_s:  # nan, too
            return Ran(argv, NO_STATUS, b"", b"", timeout_s, "timeout")
        kept, cut = stdout or b"", bool(more.get("truncated"))
        return Ran(argv, status, kept, stderr or b"", seconds + hang_s, failure, truncated=cut)

    def _part(self, where: str, name: str, limit: int = _OUTPUT_LIMIT) -> bytes | None:
        """A file of a tool's folder, None when it does not exist. Raises ValueError for anything but a file."""
        found = self._files.read(f"/tools/{where}/{name}", limit)
        if isinstance(found, Unread):
            if found.errno == errno.ENOENT:
                return None
            raise ValueError(f"{name} {found.why}")
        return found

    def _error(self, kind: str, path: str) -> Unread | None:
        """The recorded reason why a path gave no answer."""
        answer = self._answers[kind].get(path)
        if answer is None:
            return None
        found = space_from(path, answer) if isinstance(answer, dict) else None
        return found if isinstance(found, Unread) else _senseless(path)

    def _lacks(self, path: str) -> Unread:
        return Unread(path, errno.ENODATA, "the bundle has no answer")

    def _bad(self, name: str, why: str) -> UsageError:
        return UsageError(f"{self._folder} is no usable bundle: {name} {why}")


def _senseless(path: str) -> Unread:
    return Unread(path, errno.EINVAL, "this answer of the bundle makes no sense")


def _number(text: str) -> int:
    """A JSON integer of sane length; NaN and Infinity are no numbers."""
    if len(text) > _NUMBER_LIMIT:
        raise ValueError("a number is too long")
    return int(text)
