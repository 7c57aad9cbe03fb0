"""Careful reading of a folder that a stranger may have filled: bounded in time, count and depth, and inside its root.

One directory read per folder, no file opened that is not a regular one, no link followed out of the root.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

MAX_ENTRIES = 500_000
"""Names read from one folder: a checkpoint of 100,000 ranks with five files each still fits."""
MAX_DEPTH = 4
"""Folders below a candidate; the deepest layout known (Lightning over FSDP over DCP) needs three."""
_TICK = 1024


class Unusable(Exception):
    """The place cannot be complete, or cannot be read (`unsure`): the text is the reason for people."""

    def __init__(self, reason: str, *, unsure: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unsure = unsure


class OutOfTime(Exception):
    """The search's budget is spent."""


class Entry(NamedTuple):
    """A name in a folder. `kind` is "file", "folder", "link" or "other" (FIFO, socket, device): never opened."""

    name: str
    kind: str


class Facts(NamedTuple):
    """A regular file as stat tells it: bytes, nanoseconds since 1970, 512-byte blocks on disk."""

    size: int
    mtime_ns: int
    blocks: int


class Tree:
    """The root folder of one search and its deadline. `root` is resolved once; nothing outside of it is opened."""

    def __init__(self, root: str, budget_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = clock() + budget_s
        self.root = os.path.realpath(root)

    def tick(self) -> None:
        """Raises OutOfTime when the budget is spent; called in every loop."""
        if self._clock() >= self._end:
            raise OutOfTime

    def scan(self, path: str) -> dict[str, Entry]:
        """The names in a folder, by one directory read. Raises OSError, OutOfTime, Unusable (too many)."""
        found: dict[str, Entry] = {}
        self.tick()
        with os.scandir(path) as entries:
            for number, entry in enumerate(entries):
                if number % _TICK == 0:
                    self.tick()
                if number >= MAX_ENTRIES:
                    raise Unusable(f"more than {MAX_ENTRIES} names in one folder", unsure=True)
                found[entry.name] = Entry(entry.name, _kind(entry))
        return found

    def resolve(self, path: str) -> str:
        """Where a link leads, when that is inside the root. Raises Unusable when it leads out, nowhere or in a ring."""
        self.tick()
        real = os.path.realpath(path)
        if not inside(self.root, real):
            raise Unusable(f"{shown(os.path.basename(path))} is a link that leads out of the folder")
        if not os.path.lexists(real) or os.path.islink(real):  # dangling, or a ring that realpath gave up on
            raise Unusable(f"{shown(os.path.basename(path))} is a link that leads nowhere")
        return real

    def facts(self, path: str) -> Facts:
        """Size and times of a regular file (no link). Raises Unusable for anything else, OSError when it is gone."""
        self.tick()
        return _facts(os.lstat(path), path)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` of a regular file. Raises OSError, Unusable, OutOfTime."""
        self.facts(path)
        descriptor = self._open(path)
        try:
            parts = bytearray()
            while len(parts) < length:
                part = os.pread(descriptor, min(length - len(parts), 1 << 22), offset + len(parts))
                if not part:
                    break
                parts += part
                self.tick()
            return bytes(parts)
        finally:
            os.close(descriptor)

    def hollow(self, path: str, facts: Facts) -> bool:
        """A file that has a size and no data at all: its blocks were never written.

        Some file systems report no blocks for files that do have data, so SEEK_DATA has the last word.
        """
        if facts.size == 0 or facts.blocks:
            return False
        descriptor = self._open(path)
        try:
            os.lseek(descriptor, 0, os.SEEK_DATA)
        except OSError as error:
            return error.errno == errno.ENXIO
        finally:
            os.close(descriptor)
        return False

    def _open(self, path: str) -> int:
        """O_NONBLOCK so that a FIFO put there since the lstat cannot hold us; fstat decides."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(path, flags)
        try:
            _facts(os.fstat(descriptor), path)
        except Unusable:
            os.close(descriptor)
            raise
        return descriptor


class Place:
    """A candidate: one file, or one folder with its listing (read once, when first asked for).

    `step` is the number in its name; `before` is the folder of the next lower step, if there is one; `refused` says why
    it cannot be complete whatever it holds, "" otherwise.
    """

    def __init__(
        self,
        tree: Tree,
        path: str,
        name: str,
        *,
        folder: bool,
        step: int | None = None,
        depth: int = 0,
        entries: dict[str, Entry] | None = None,
    ) -> None:
        self.tree = tree
        self.path = path
        self.name = name
        self.folder = folder
        self.step = step
        self.before: Place | None = None
        self.refused = ""
        self._depth = depth
        self._entries = entries

    @property
    def entries(self) -> dict[str, Entry]:
        """The folder's names; empty for a file. Raises OSError, OutOfTime, Unusable."""
        if self._entries is None:
            self._entries = self.tree.scan(self.path) if self.folder else {}
        return self._entries

    def inner(self, name: str) -> Place:
        """A folder inside this one. Raises Unusable when it lies too deep or leads out."""
        if self._depth >= MAX_DEPTH:
            raise Unusable(f"folders nested more than {MAX_DEPTH} deep", unsure=True)
        return Place(self.tree, self.where(name), name, folder=True, step=self.step, depth=self._depth + 1)

    def where(self, name: str = "") -> str:
        """The path to open for a name in here ("" = the place itself, a file), links inside the root resolved."""
        if not name:
            return self.path
        path = os.path.join(self.path, name)
        entry = self.entries.get(name)
        return self.tree.resolve(path) if entry is not None and entry.kind == "link" else path

    def facts(self, name: str = "") -> Facts:
        """Size and times of a file in here; raises Unusable when it is no regular file, is empty or has no data."""
        path = self.where(name)
        label = shown(name or self.name)
        facts = self.tree.facts(path)
        if facts.size == 0:
            raise Unusable(f"{label} is empty")
        if self.tree.hollow(path, facts):
            raise Unusable(f"{label} has a size but no data on disk")
        return facts

    def read(self, name: str = "", offset: int = 0, length: int = 1 << 20) -> bytes:
        """At most `length` bytes of a file in here."""
        return self.tree.read(self.where(name), offset, length)

    def files(self) -> Iterator[str]:
        """The names that are files or links, sorted."""
        return (name for name in sorted(self.entries) if self.entries[name].kind in ("file", "link"))

    def folders(self) -> Iterator[str]:
        """The names that are folders, sorted."""
        return (name for name in sorted(self.entries) if self.entries[name].kind == "folder")


def inside(root: str, path: str) -> bool:
    """Whether `path` is `root` or lies below it; both must be resolved."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def shown(name: str) -> str:
    """A name on one printable line, at most 80 characters: what is not printable is escaped."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= 80 else text[:77] + "..."


def _kind(entry: os.DirEntry[str]) -> str:
    """From the directory read itself where the file system tells types; else one lstat, made by scandir."""
    try:
        if entry.is_symlink():
            return "link"
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else "other"
    except OSError:
        return "other"


def _facts(found: os.stat_result, path: str) -> Facts:
    if not stat.S_ISREG(found.st_mode):
        raise Unusable(f"{shown(os.path.basename(path))} is not a regular file")
    return Facts(found.st_size, found.st_mtime_ns, found.st_blocks)
