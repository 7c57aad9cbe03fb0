"""The signals that hp-srun gets: held back, looked at, and passed on to srun once.

While they are blocked, a signal waits until we ask for it; nothing of ours is interrupted, and the kernel tells who
sent it. That matters because srun often has the signal already: the terminal sends ^C to the whole foreground group,
and Slurm signals every process of the batch step when it ends a job.
"""

from __future__ import annotations

import signal
import time
from typing import NamedTuple

FORWARDED = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT, signal.SIGTSTP,
)  # fmt: skip
ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
SI_KERNEL = 0x80  # asm-generic/siginfo.h: sent by the kernel, for example by the terminal's driver


class Got(NamedTuple):
    """A signal that arrived: its number, `code` and `sender` of siginfo (0 when unknown), wall time in seconds."""

    number: int
    code: int = 0
    sender: int = 0
    at: float = 0.0


class Place(NamedTuple):
    """Where we run: the pid of the slurmstepd above us (0: none), and whether we are the batch shell ourselves."""

    stepd: int = 0
    is_shell: bool = False


def must_forward(got: Got, place: Place) -> bool:
    """Whether srun still needs this signal from us.

    Not when the terminal sent it: srun is in our group. Not when slurmstepd sent it to us and we are below the batch
    shell: it only signals the shell alone, or every process of the batch step, srun included. As the shell itself
    (exec) we cannot tell these two apart and pass it on.
    """
    if got.code == SI_KERNEL:
        return False
    return not (place.stepd and got.sender == place.stepd and not place.is_shell)


class Inbox:
    """Blocks the forwarded signals for the rest of this process's life and hands them out on request.

    Signals that our parent made us ignore (nohup, a background job) stay ignored, for srun too.
    """

    def __init__(self) -> None:
        heard = {s for s in FORWARDED if signal.getsignal(s) is not signal.SIG_IGN}
        self.watched = heard | {signal.SIGCHLD}
        self.seen: list[Got] = []
        signal.pthread_sigmask(signal.SIG_BLOCK, self.watched)

    def release(self) -> None:
        """Let the signals through again: another program is about to take our place."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.watched)

    def wait(self, timeout_s: float) -> Got | None:
        """The next signal (SIGCHLD included: a child has changed), None after `timeout_s` seconds without one."""
        info = signal.sigtimedwait(self.watched, timeout_s)
        if info is None:
            return None
        got = Got(info.si_signo, info.si_code, info.si_pid, time.time())
        if got.number != signal.SIGCHLD:
            self.seen.append(got)
        return got

    def take(self) -> None:
        """Collect what has arrived meanwhile."""
        while self.wait(0) is not None:
            continue

    def ending_since(self, wall: float) -> int:
        """The first signal at `wall` or later that asks a program to end; 0 for none."""
        return next((g.number for g in self.seen if g.number in ENDING and g.at >= wall), 0)

    @staticmethod
    def name(number: int) -> str:
        """`SIGTERM` for 15."""
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"signal {number}"


def stop_self() -> None:
    """Stop as SIGTSTP wants it; returns when somebody continues us."""
    signal.raise_signal(signal.SIGSTOP)


def end_self() -> None:
    """End as a program that SIGTERM ended; what was printed must have been flushed."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    signal.raise_signal(signal.SIGTERM)


def ignore_ending() -> None:
    """From here on nothing short of SIGKILL ends us or a program that we start."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
