"""A host that passes everything through and keeps each answer in a bundle folder."""

from __future__ import annotations

import errno
import json
import os
import platform
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from hpkit import __version__
from hpkit.files import write_atomic
from hpkit.host import Host
from hpkit.hosts.space import space_document
from hpkit.hosts.tree import MAX_LINKS
from hpkit.model import Clock, Space, Unread
from hpkit.proc import Ran

SCHEMA = "hpkit.bundle/1"


class RecordHost:
    """Everything of `inner`, written below `folder` as it comes: an interrupted round leaves what it has seen.

    The first answer to a question is the one that is kept. What could not be written is in `problems`.
    """

    def __init__(self, inner: Host, folder: str) -> None:
        self._inner = inner
        self._folder = os.path.abspath(folder)
        self._answers: dict[str, dict[str, Any]] = {}
        self._limits: dict[str, int] = {}
        self._asked: set[tuple[str, str]] = set()
        self._targets: dict[str, str | None] = {}
        self._calls: dict[str, int] = {}
        self.problems: list[str] = []
        self.view, self.uid, self.node = inner.view, inner.uid, inner.node
        self.env: Mapping[str, str] = inner.env
        for name in ("root", "answers", "tools"):
            os.mkdir(os.path.join(self._folder, name))
        self._write("meta.json", _json(_meta(inner)))

    def now(self) -> Clock:
        """See Host.now. The bundle's clock is that of the moment when the recording began."""
        return self._inner.now()

    def read(self, path: str, limit: int = 1 << 20) -> bytes | Unread:
        """See Host.read. A file read again is written again only when the first read had cut it."""
        found = self._inner.read(path, limit)
        first = self._first("read", path)
        if isinstance(found, Unread):
            if first:
                self._keep("unread", path, _why(found))
        elif first or self._limits.get(path, limit) < min(limit, len(found)):
            self._limits[path] = limit
            self._try(lambda: self._write(f"root{self._place(path)}", found))
        return found

    def list(self, path: str) -> tuple[str, ...] | Unread:
        """See Host.list."""
        found = self._inner.list(path)
        if not self._first("list", path):
            return found
        if isinstance(found, Unread):
            self._keep("unlisted", path, _why(found))
        else:
            self._keep("listings", path, found)
            self._try(lambda: os.makedirs(f"{self._folder}/root{self._place(path)}", exist_ok=True))
        return found

    def link(self, path: str) -> str | Unread:
        """See Host.link."""
        found = self._inner.link(path)
        if not self._first("link", path):
            return found
        if isinstance(found, Unread):
            self._keep("unlinked", path, _why(found))
        else:
            self._keep("links", path, found)
            self._try(lambda: self._place(path, follow_last=False))
        return found

    def space(self, path: str, timeout_s: float) -> Space | Unread:
        """See Host.space."""
        found = self._inner.space(path, timeout_s)
        if self._first("space", path):
            self._keep("space", path, space_document(found))
        return found

    def run(self, tool: str, *args: str, timeout_s: float) -> Ran:
        """See Host.run."""
        ran = self._inner.run(tool, *args, timeout_s=timeout_s)
        self._keep_run(tool, args, ran)
        return ran

    def stream(self, tool: str, *args: str, timeout_s: float) -> Generator[str, None, Ran]:
        """See Host.stream."""
        ran = yield from self._inner.stream(tool, *args, timeout_s=timeout_s)
        self._keep_run(tool, args, ran)
        return ran

    def _first(self, question: str, path: str) -> bool:
        """Whether this was never asked before."""
        asked = (question, path) in self._asked
        self._asked.add((question, path))
        return not asked

    def _keep(self, kind: str, path: str, answer: Any) -> None:
        """Add an answer to answers/KIND.json."""
        answers = self._answers.setdefault(kind, {})
        answers[path] = answer
        self._try(lambda: self._write(f"answers/{kind}.json", _json(answers)))

    def _keep_run(self, tool: str, args: tuple[str, ...], ran: Ran) -> None:
        """Write tools/NAME, tools/NAME.2, …; a tool that the machine lacks is one that the bundle lacks."""
        if ran.failure == "missing":
            return
        number = self._calls[tool] = self._calls.get(tool, 0) + 1
        where = f"tools/{tool}" if number == 1 else f"tools/{tool}.{number}"
        more = {"failure": ran.failure, "seconds": ran.seconds, "truncated": ran.truncated}
        files = {
            "argv": "".join(f"{word}\n" for word in args).encode("utf-8", "surrogateescape"),
            "stdout": ran.stdout,
            "stderr": ran.stderr,
            "rc": b"%d\n" % ran.rc,
            "ran.json": _json(more),
        }
        for name, data in files.items():
            self._try(partial(self._write, f"{where}/{name}", data))

    def _place(self, path: str, *, follow_last: bool = True) -> str:
        """Where a path of the machine lies below root/: its links are followed, and kept on the way."""
        done: list[str] = []
        todo, links = path.split("/")[::-1], 0
        while todo:
            part = todo.pop()
            if part == "..":  # the folder that a path only passes through must be there, too
                os.makedirs("/".join((self._folder, "root", *done)), exist_ok=True)
                del done[-1:]
            if part in ("", ".", ".."):
                continue
            target = self._target(done, part)
            if target is None or not (follow_last or any(todo)):
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if target.startswith("/"):
                done.clear()
            todo += target.split("/")[::-1]
        return "".join(f"/{part}" for part in done)

    def _target(self, above: Sequence[str], name: str) -> str | None:
        """The target of a link of the machine (`above` holds no link), which is then also one below root/."""
        path = "".join(f"/{part}" for part in (*above, name))
        if path not in self._targets:
            found = self._inner.link(path)
            self._targets[path] = None if isinstance(found, Unread) else found
            if not isinstance(found, Unread):
                kept = f"{self._folder}/root{path}"
                os.makedirs(os.path.dirname(kept), exist_ok=True)
                os.symlink(_inside(above, found), kept)
        return self._targets[path]

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_atomic(path, data, durable=False)

    def _try(self, write: Callable[[], object]) -> None:
        """A recording that fails must not change what the round sees."""
        try:
            write()
        except (OSError, ValueError) as error:
            self.problems.append(str(error))


def _inside(above: Sequence[str], target: str) -> str:
    """A link's target as it is kept: one that would lead out of root/ is rewritten to stay in it."""
    done, escapes = list(above), target.startswith("/")
    if escapes:
        done.clear()
    for part in target.split("/"):
        if part == "..":
            escapes = escapes or not done
            del done[-1:]
        elif part not in ("", "."):
            done.append(part)
    return target if not escapes else "/".join([".."] * len(above) + done) or "."


def _why(found: Unread) -> dict[str, Any]:
    return {"errno": found.errno, "why": found.why}


def _meta(inner: Host) -> dict[str, Any]:
    clock = inner.now()
    return {
        "schema": SCHEMA,
        "node": inner.node,
        "wall": clock.wall,
        "uptime": clock.uptime,
        "boot_id": clock.boot_id,
        "uid": inner.uid,
        "view": inner.view.value,
        "env": dict(inner.env),
        "recorded": True,
        "versions": {
            "hpkit": __version__,
            "python": platform.python_version(),
            "kernel": os.uname().release,
        },
    }


def _json(document: Any) -> bytes:
    """ASCII, so that a name that is no UTF-8 survives as an escaped surrogate."""
    return (json.dumps(document, indent=1) + "\n").encode("ascii")
