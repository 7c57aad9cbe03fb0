"""Timing of whole processes: interleaved, so that what else the machine does hits both sides alike; medians."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hpkit import proc

NOTHING = "/dev/null"
SILENT = (
    (os.POSIX_SPAWN_OPEN, 0, NOTHING, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, NOTHING, os.O_WRONLY, 0),
)
MEMORY = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, used = os.wait4(pid, 0)
os.write(1, f"{status} {used.ru_maxrss}".encode())
"""


class Figure(NamedTuple):
    """One measured figure with its goal (`value` should be at most that) and how it came about."""

    name: str
    value: float
    unit: str
    goal: float
    details: Mapping[str, Any]

    @property
    def reached(self) -> bool:
        """Whether the goal is met."""
        return self.value <= self.goal


def seconds(argv: Sequence[str], env: Mapping[str, str]) -> float:
    """The wall time of one run of a program; raises RuntimeError when it does not exit 0."""
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, env, file_actions=SILENT)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - began
    if status != 0:
        raise RuntimeError(f"{' '.join(argv)} ended with wait status {status}")
    return took


def ratio(
    ours: Sequence[str],
    bare: Sequence[str],
    env: Mapping[str, str],
    runs: int,
    before: Callable[[], None] | None = None,
) -> dict[str, float]:
    """Median times of both in seconds and their ratio; `before` runs ahead of each run of ours, untimed."""
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(runs + 1):
        if before:
            before()
        times["ours"].append(seconds(ours, env))
        times["bare"].append(seconds(bare, env))
    medians = {
        name: statistics.median(each[1:]) for name, each in times.items()
    }  # the first run warms the caches
    return {**medians, "ratio": medians["ours"] / medians["bare"], "runs": runs}


def peak_mb(argv: Sequence[str], env: Mapping[str, str]) -> float:
    """The largest resident size of a program and of any one of its children, in MB.

    A small interpreter starts and waits for it: a process that we start ourselves would inherit our own peak.
    """
    ran = proc.run([sys.executable, "-I", "-S", "-c", MEMORY, *argv], timeout_s=120, env=env)
    status, kilobytes = ran.text.split()
    if status != "0":
        raise RuntimeError(f"{' '.join(argv)} ended with wait status {status}")
    return int(kilobytes) * 1024 / 1e6
