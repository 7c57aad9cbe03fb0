"""Runs one srun to its end: its own streams, its signals, its exit code."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpkit import proc
from hpkit.resume.options import Command
from hpkit.resume.signals import Inbox, Place, must_forward, stop_self

KILL_OPTION = "kill-on-bad-exit"
KILL_VARIABLE = "SLURM_KILL_BAD_EXIT"
TICK_S = 5.0  # a lost SIGCHLD costs at most this long


class Ended(NamedTuple):
    """How a step ended: the code that hp-srun exits with, and when (wall seconds)."""

    code: int
    begun: float
    ended: float


def srun_argv(command: Command, env: Mapping[str, str], srun: str = "srun") -> tuple[str, ...]:
    """The step's command line: the user's words, and -K1 where he said nothing about it.

    -K1 ends the step everywhere when one task fails; without it the other ranks wait in a collective for minutes.
    """
    words: list[str] = []
    for part in command.components:
        if part.start:
            words.append(":")
        if KILL_OPTION not in part.given and not env.get(KILL_VARIABLE):
            words.append("-K1")
        words += command.words[part.start : part.end]
    return (srun, *words)


def exit_code(status: int) -> int:
    """A wait status as a shell shows it: 128 + N for a program that signal N ended."""
    return 128 - status if status < 0 else status


def supervise(argv: Sequence[str], env: Mapping[str, str], inbox: Inbox, place: Place) -> Ended:
    """Run srun in our own process group, so that the terminal stays its terminal, and pass signals on.

    Raises OSError when srun cannot be started.
    """
    begun = time.time()
    child = proc.foreground(argv, env=env)
    while (status := child.poll()) is None:
        got = inbox.wait(TICK_S)
        if got is None or got.number == signal.SIGCHLD:
            continue
        if must_forward(got, place):
            child.signal(got.number)
        if got.number == signal.SIGTSTP:
            stop_self()
    inbox.take()
    return Ended(exit_code(status), begun, time.time())
