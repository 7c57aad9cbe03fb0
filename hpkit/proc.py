"""The one door to programs: argv only, a built environment, an own session, a deadline, capped output.

Nothing else in hpkit starts or signals a process (a lint test enforces it).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple, NoReturn

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Ran(NamedTuple):
    """How a program ended.

    `rc` is its exit status, `-N` when signal N ended it, `-1000` when it never started or never ended.
    `failure` is "" (it ran to its end), "missing", "denied", "timeout" (killed at its deadline) or "stuck" (could not
    be killed: left behind, `pid` and `started` tell which one). `truncated` means output beyond the limit was dropped.
    """

    argv: tuple[str, ...]
    rc: int
    stdout: bytes
    stderr: bytes
    seconds: float
    failure: str = ""
    truncated: bool = False
    pid: int = 0
    started: int = 0

    @property
    def ok(self) -> bool:
        """It ran to its end and exited 0."""
        return not self.failure and self.rc == 0

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are no UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")


class Stamp(NamedTuple):
    """A process that cannot be mistaken for a later one with the same pid: `started` is field 22 of /proc/PID/stat."""

    pid: int
    started: int


class Child:
    """A program that goes on beside us (hp-srun's srun, a daemon of the sandbox)."""

    stamp: Stamp

    def poll(self) -> int | None:
        """Its exit status (-N for signal N), None while it runs."""
        raise NotImplementedError

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end; None when it still runs after `timeout_s`."""
        raise NotImplementedError

    def signal(self, number: int) -> bool:
        """Send a signal to this process; False when it has ended."""
        raise NotImplementedError


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    limit: int = 8 << 20,
    grace_s: float = 2.0,
    cwd: str = "/",
) -> Ran:
    """Run a program to its end or its deadline, in a session of its own; never raises for what the program does.

    The environment is built (PATH, LC_ALL=C, TZ=UTC, HOME=/) and `env` is added to it. At the deadline SIGTERM, after
    `grace_s` SIGKILL, goes to the whole group; what still lives after that is left behind as "stuck". A grandchild that
    keeps a pipe open does not hold us.
    """
    raise NotImplementedError


def stream(
    argv: Sequence[str],
    *,
    timeout_s: float,
    env: Mapping[str, str] | None = None,
    limit: int = 8 << 20,
    grace_s: float = 2.0,
    cwd: str = "/",
) -> Generator[str, None, Ran]:
    """Like `run`, but yields each line of standard output as it comes; closing the generator ends the program."""
    raise NotImplementedError


def detach(argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = "/") -> Stamp:
    """Start a helper that outlives us: own session, not our child any more, all three standard streams on /dev/null."""
    raise NotImplementedError


def foreground(argv: Sequence[str], *, env: Mapping[str, str], new_session: bool = False, log: str = "") -> Child:
    """Start a program with our own standard streams (or `log` appended to) and exactly the environment given."""
    raise NotImplementedError


def become(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process by another program (exec); raises OSError when that is not possible."""
    raise NotImplementedError


def stamp(pid: int) -> Stamp | None:
    """The stamp of a running process, None when there is none."""
    raise NotImplementedError


def alive(process: Stamp) -> bool:
    """Whether exactly that process still exists (a zombie does not count)."""
    raise NotImplementedError


def end(process: Stamp, *, grace_s: float = 2.0, group: bool = False) -> bool:
    """SIGTERM, then SIGKILL, to exactly that process (or its whole session group); True when it is gone."""
    raise NotImplementedError
