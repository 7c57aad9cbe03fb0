"""Runs one srun to its end: its own streams, its signals, its exit code."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hpkit import proc
from hpkit.resume.echo import Echo, TaskEnd, own_code
from hpkit.resume.messages import say
from hpkit.resume.options import Command
from hpkit.resume.placeholders import VARIABLES
from hpkit.resume.signals import Inbox, Place, must_forward, stop_self

KILL_OPTION = "kill-on-bad-exit"
KILL_VARIABLE = "SLURM_KILL_BAD_EXIT"
NOT_FOUND = 127
TICK_S = 5.0  # a lost SIGCHLD costs at most this long


class Ended(NamedTuple):
    """How a step ended: the step's own code, when (wall seconds), and the task that failed first, if srun told.

    `unlaunched`: what srun said of tasks that it could not start; the code is then never 0. `cancelled`: somebody ended
    the step before a task of it failed (scancel of the step, or with a signal). `lost`: a node that failed, as Slurm
    told srun.
    """

    code: int
    begun: float
    ended: float
    first: TaskEnd | None = None
    unlaunched: str = ""
    cancelled: bool = False
    lost: str = ""


def srun_argv(command: Command, env: Mapping[str, str], srun: str = "srun") -> tuple[str, ...]:
    """The step's command line: the user's words, -K1 where he said nothing about it, and our variables let through.

    -K1 ends the step everywhere when one task fails; without it the other ranks wait in a collective for minutes.
    """
    words: list[str] = []
    for part in command.components:
        if part.start:
            words.append(":")
        if KILL_OPTION not in part.given and not env.get(KILL_VARIABLE):
            words.append("-K1")
        options = list(command.words[part.start : part.program])
        last = len(options) - (options[-1:] == ["--"])
        options[last:last] = _export(part.given.get("export") or env.get("SLURM_EXPORT_ENV", ""))
        words += [*options, *command.words[part.program : part.end]]
    return (srun, *words)


def _export(listed: str) -> list[str]:
    """A --export with our variables, where the one in force would keep them from the program."""
    names = [name for name in listed.split(",") if name]
    if not names or {"ALL", "NIL"}.intersection(name.upper() for name in names):
        return []
    return ["--export=" + ",".join([*(n for n in names if n.upper() != "NONE"), *VARIABLES])]


def ends_all(command: Command, env: Mapping[str, str]) -> bool:
    """Whether a task that fails ends the others, in every component of the step."""
    default = env.get(KILL_VARIABLE) or "1"
    return all(part.given.get(KILL_OPTION, default) != "0" for part in command.components)


def become(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Let srun take our place; returns only where that is not possible, with a shell's code for it."""
    try:
        proc.become(argv, env)
    except OSError as error:
        say(f"srun cannot be started: {error.strerror}")
        return NOT_FOUND


def exit_code(status: int) -> int:
    """A wait status as a shell shows it: 128 + N for a program that signal N ended."""
    return 128 - status if status < 0 else status


def supervise(
    argv: Sequence[str],
    env: Mapping[str, str],
    inbox: Inbox,
    place: Place,
    *,
    listen: bool = True,
    ends_all: bool = True,
) -> Ended:
    """Run srun in our own process group, so that the terminal stays its terminal, and pass signals on.

    With `listen` its standard error goes through us (echo.py), where that is possible. Raises OSError when srun cannot
    be started. `ends_all`: a task that fails ends the others, so that their codes are not the step's own.
    """
    echo = Echo.possible() if listen else None
    begun = time.time()
    if echo is None:
        return Ended(exit_code(_watch(proc.foreground(argv, env=env), inbox, place)), begun, time.time())
    try:
        child = proc.foreground(argv, env=env, stderr=echo.writer)
    except OSError:
        echo.drop()
        raise
    echo.start()
    status = _watch(child, inbox, place)
    ended = time.time()
    echo.finish()
    code = own_code(exit_code(status), echo.first if ends_all else None, echo.unlaunched)
    return Ended(code, begun, ended, echo.first, echo.unlaunched, echo.cancelled, echo.lost)


def _watch(child: proc.Child, inbox: Inbox, place: Place) -> int:
    """Wait for srun, passing signals on; its wait status."""
    while (status := child.poll()) is None:
        got = inbox.wait(TICK_S)
        if got is None or got.number == signal.SIGCHLD:
            continue
        if must_forward(got, place):
            child.signal(got.number)
        if got.number == signal.SIGTSTP:
            stop_self()
    inbox.take()
    return status
