"""A program that is kept and asked again and again, a line for a line: one that costs too much to start each time."""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpkit.pids import NO_STATUS, peek
from hpkit.proc import Piped, exhaust


class Said(NamedTuple):
    """What came of one question: `line` is the answer without its end.

    `failure` is "" or why there is none: "ended" (the program is gone, `rc` as in Ran), "timeout", "long" (an answer
    beyond the limit) or "busy" (it is answering another question of ours). `stderr` is what it printed there meanwhile.
    """

    line: bytes
    failure: str = ""
    rc: int = NO_STATUS
    stderr: bytes = b""


class Talk:
    """A program with pipes, in a session of its own and with a built environment; OSError when it cannot start.

    It sees the end of its input when we end, however that happens, or when this object goes away. After any failure
    but "busy" it is ended, and so it is when a question is interrupted: the next would get the answer to that one.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        limit: int = 8 << 20,
        cwd: str = "/",
    ) -> None:
        self._piped: Piped | None = Piped(argv, env, b"", limit, cwd, talk=True)
        self._asking = False

    def __del__(self) -> None:
        if getattr(self, "_piped", None):
            self._close(wait=False)

    @property
    def alive(self) -> bool:
        """Whether it can be asked: it has not ended by itself either."""
        return self._piped is not None and peek(self._piped.pid) is None

    @property
    def pid(self) -> int:
        """Its process number, 0 once it is ended."""
        return self._piped.pid if self._piped else 0

    def ask(self, line: bytes, *, timeout_s: float, grace_s: float = 0.5) -> Said:
        """Write a line and wait for one, at most `timeout_s` seconds; then SIGTERM, after `grace_s` more SIGKILL."""
        if self._asking:  # from a signal handler or another thread
            return Said(b"", "busy")
        if self._piped is None:
            return Said(b"", "ended")
        self._asking, said = True, None
        try:
            said = _exchange(self._piped, line, time.monotonic() + timeout_s)
        finally:
            self._asking = False
            if said is None or said.failure:
                self.end(grace_s=grace_s)
        return said

    def end(self, *, grace_s: float = 0.5) -> None:
        """End it, if it still runs, and let go of it."""
        self._close(wait=True, grace_s=grace_s)

    def _close(self, *, wait: bool, grace_s: float = 0.0) -> None:
        piped, self._piped = self._piped, None
        if piped is not None:
            piped.close(stuck=not (wait and exhaust(piped.kill(grace_s))))


def _exchange(piped: Piped, line: bytes, deadline: float) -> Said:
    out, err = piped.output[piped.out_fd], piped.output[piped.err_fd]
    out.clear()
    err.clear()
    assert piped.popen.stdin
    piped.stdin = memoryview(line + b"\n")
    piped.poller.register(piped.popen.stdin, select.POLLOUT)
    failure = ""
    while not out.endswith(b"\n") and not failure:
        left = deadline - time.monotonic()
        if peek(piped.pid) is not None:
            for _ in piped.drain():
                pass
            failure = "" if out.endswith(b"\n") else "ended"
        elif piped.truncated or left <= 0:
            failure = "long" if piped.truncated else "timeout"
        else:
            for _ in piped.pump(left):
                pass
    rc = peek(piped.pid) if failure == "ended" else None
    return Said(b"" if failure else bytes(out[:-1]), failure, NO_STATUS if rc is None else rc, bytes(err))
