"""The end of a hook that does not end by itself."""

from __future__ import annotations

import os
import signal
from types import FrameType

from hpkit import log, proc


class Watchdog:
    """Ends this process at its deadline, or at SIGTERM, with its running children; `code` is what it exits with."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.code = 0

    def arm(self, seconds: float) -> None:
        """Set, or set anew, the time that is left."""
        signal.signal(signal.SIGALRM, self._ring)
        signal.signal(signal.SIGTERM, self._ring)
        signal.setitimer(signal.ITIMER_REAL, max(0.01, seconds))

    def disarm(self) -> None:
        """The work is done in time."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _ring(self, number: int, _frame: FrameType | None) -> None:
        proc.kill_running()
        log.error("hook-out-of-time", hook=self.kind, signal=signal.Signals(number).name)
        os._exit(self.code)  # not sys.exit: whatever hangs must not get a say
