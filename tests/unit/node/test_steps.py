"""Waiting for a job's step daemons, played by programs with such a title."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpkit.node import steps

JOB = str(4_000_000_000 + os.getpid())  # no job of this machine has such a number
Titled = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def titled() -> Iterator[Titled]:
    """Starts a program with a title of our choice that ends by itself after `seconds`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(title: str, seconds: float = 60, user: int | None = None) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([title, str(seconds)], executable="/bin/sleep", user=user))
        while not Path(
            f"/proc/{started[-1].pid}/cmdline"
        ).read_bytes():  # the kernel sets it a moment after exec
            time.sleep(0.001)
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


@pytest.mark.parametrize("step", ["0", "17", "batch", "interactive"])
def test_it_waits_for_the_last(titled: Titled, step: str) -> None:
    last = titled(f"slurmstepd: [{JOB}.{step}]", 0.5)
    assert steps.wait_for_end(JOB, time.monotonic() + 30)
    assert last.poll() == 0


def test_a_stopped_one_is_not_waited_for_for_ever(titled: Titled) -> None:
    last = titled(f"slurmstepd: [{JOB}.0]")
    last.send_signal(signal.SIGSTOP)
    assert not steps.wait_for_end(JOB, time.monotonic() + 0.2)
    assert last.poll() is None


@pytest.mark.parametrize(
    "title",
    [
        f"slurmstepd: [{JOB}1.0]",
        f"slurmstepd: [{JOB[:-1]}.0]",
        f"slurmstepd: [{JOB}.extern]",
        f"sh -c slurmstepd: [{JOB}.0]",
    ],
)
def test_what_is_not_waited_for(titled: Titled, title: str) -> None:
    titled(title)
    assert steps.wait_for_end(JOB, time.monotonic())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: another user's program is started")
def test_a_user_cannot_hold_an_epilog(titled: Titled) -> None:
    titled(f"slurmstepd: [{JOB}.0]", user=1)
    assert steps.wait_for_end(JOB, time.monotonic())


@pytest.mark.parametrize("job", ["", "x", "-1", "7_3"])
def test_what_is_no_job(job: str) -> None:
    assert steps.wait_for_end(job, time.monotonic() + 30)
