"""The one door to the machine: files, folders, links, space, time and tools, live, recorded or replayed.

Nothing else in hpkit opens machine files below /sys, /proc or /dev (a lint test enforces it); the three kinds of
host are in `hosts/`.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Protocol

from hpkit.model import Clock, Space, Unread, View
from hpkit.proc import Ran


class Host(Protocol):
    """A machine, as probes see it. Paths are absolute paths of that machine."""

    view: View
    uid: int
    node: str
    env: Mapping[str, str]
    """Only the few SLURM_* and CUDA_VISIBLE_DEVICES variables that say what a step was given."""

    def now(self) -> Clock:
        """Wall time, uptime (CLOCK_BOOTTIME) and boot id."""

    def read(self, path: str, limit: int = 1 << 20) -> bytes | Unread:
        """A file's bytes, at most `limit`; never blocks on a FIFO or device; /dev/kmsg is read to its present end."""

    def list(self, path: str) -> tuple[str, ...] | Unread:
        """The sorted names in a folder."""

    def link(self, path: str) -> str | Unread:
        """The target of a symbolic link."""

    def space(self, path: str, timeout_s: float) -> Space | Unread:
        """statvfs in a child, so that a dead mount cannot hang us (errno ETIMEDOUT then)."""

    def run(self, tool: str, *args: str, timeout_s: float) -> Ran:
        """Run a vendor tool by its bare name; "nvml" is hpkit's own NVML child, which prints JSON."""

    def stream(self, tool: str, *args: str, timeout_s: float) -> Generator[str, None, Ran]:
        """Like run, yielding lines as they come."""


def live(root: str = "", *, view: View | None = None) -> Host:
    """This machine; with `root` a sandbox node: the bundle folder whose root/ is read and whose bin/ holds its tools.

    `view` is STEP when SLURM_JOB_ID is in the environment and nothing else is said: root's hooks say NODE.
    """
    from hpkit.hosts.live import LiveHost

    return LiveHost(root, view)


def record(inner: Host, folder: str) -> Host:
    """Passes everything through to `inner` and writes each answer into a bundle folder (an existing, empty one).

    Raises OSError when the folder cannot be written; later write errors are kept for `bundle.finish`.
    """
    from hpkit.hosts.record import RecordHost

    return RecordHost(inner, folder)


def replay(folder: str) -> Host:
    """Answers from a bundle and from nothing else; raises UsageError when the folder is no bundle."""
    from hpkit.hosts.replay import ReplayHost

    return ReplayHost(folder)
