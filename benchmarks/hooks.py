"""What the hooks cost a job's start: the prolog with a fresh verdict, and the prolog suite without one."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import hpkit
from benchmarks.measure import Figure, peak_mb, ratio
from hpkit import proc
from hpkit.files import write_atomic
from hpkit.hosts.live import nvml_child
from hpkit.installing import write_hooks
from hpkit.paths import paths
from hpkit.sandbox import healthy, nodes

LIB = os.path.dirname(os.path.dirname(os.path.abspath(hpkit.__file__)))
CONFIG = 'mode = "enforce"\n[want]\ngpus = {gpus}\n[hooks]\nwatcher = "none"\n[log]\nsyslog = false\n'
STUB = os.path.join(LIB, "tests", "support", "nvml_stub", "nvml_stub.c")
SHELL = ("/bin/sh", "-c", ":")
PYTHON = (sys.executable, "-I", "-S", "-c", "pass")
HEALTHY_RUNS, COLD_RUNS = 300, 25
ENV = {"PATH": proc.PATH, "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "1", "LC_ALL": "C"}


class Bench(NamedTuple):
    """A healthy simulated node with its hooks."""

    root: str
    prolog: str

    @property
    def verdict(self) -> str:
        """The file whose absence makes the prolog run its suite."""
        return f"{paths(self.root).run}/verdict"

    def forget(self) -> None:
        """Remove the verdict."""
        with suppress(FileNotFoundError):
            os.unlink(self.verdict)


@contextmanager
def node(gpus: int) -> Iterator[Bench]:
    """A node in a folder of its own, checked once by the background round so that a verdict is there."""
    with tempfile.TemporaryDirectory(prefix="hpkit-bench-") as folder:
        os.chmod(folder, 0o755)
        root = f"{folder}/nodes/n1"
        nodes.create(root, nodes.boot("n1", gpus), CONFIG.format(gpus=gpus))
        real_child(folder, root, gpus)
        prolog, _health, _epilog = write_hooks(f"{folder}/hooks", sys.executable, LIB, root)
        health = [sys.executable, "-I", "-S", f"{LIB}/hpkit/start.py", "health", "--root", root]
        ran = proc.run(health, timeout_s=60, env={"SLURMD_NODENAME": "n1"})
        bench = Bench(root, prolog)
        if not ran.ok or not os.path.exists(bench.verdict):
            raise RuntimeError(f"the background round left no verdict: {ran.rc} {ran.text} {ran.stderr!r}")
        yield bench


def real_child(folder: str, root: str, gpus: int) -> None:
    """The NVML child itself, with the real pynvml over a small library that plays the driver: its cost is the point."""
    library, settings = f"{folder}/libnvidia-ml.so.1", f"{folder}/gpus"
    ran = proc.run(["gcc", "-shared", "-fPIC", "-o", library, STUB], timeout_s=60)
    if not ran.ok:
        raise RuntimeError(f"the NVML library does not compile: {ran.stderr!r}")
    buses = "".join(f"{n}.bus={int(healthy.pci(n).split(':')[1], 16)}\n" for n in range(gpus))
    write_atomic(settings, f"count={gpus}\n{buses}", durable=False)
    start = f"LD_LIBRARY_PATH={folder} NVML_STUB={settings} exec {' '.join(nvml_child())}"
    write_atomic(f"{root}/bin/nvml", f"#!/bin/sh\n{start}\n", 0o755, durable=False)


def healthy_path() -> Figure:
    """The prolog with a fresh verdict against an empty shell."""
    with node(gpus=8) as bench:
        took = ratio((bench.prolog,), SHELL, ENV, HEALTHY_RUNS)
    return Figure("prolog, fresh verdict / sh -c :", took["ratio"], "x", 2.0, took)


def cold(gpus: int, goal: float) -> Figure:
    """The prolog that has to run its suite against an empty Python."""
    with node(gpus) as bench:
        took = ratio((bench.prolog,), PYTHON, ENV, COLD_RUNS, bench.forget)
        _sure_that_it_checked(bench)
    name = f"prolog suite, cold, {gpus} GPUs / python3 -I -S -c pass"
    return Figure(name, took["ratio"], "x", goal, took)


def memory(gpus: int) -> Figure:
    """The peak memory of the cold prolog."""
    with node(gpus) as bench:
        bench.forget()
        peak = peak_mb((bench.prolog,), ENV)
        _sure_that_it_checked(bench)
    return Figure(f"prolog suite, cold, {gpus} GPUs, peak memory", peak, "MB", 20.0, {"peak_mb": peak})


def figures() -> Iterator[Callable[[], Figure]]:
    """Everything measured here."""
    yield healthy_path
    yield lambda: cold(0, 6.0)
    yield lambda: cold(8, 10.0)
    yield lambda: memory(0)
    yield lambda: memory(8)


def _sure_that_it_checked(bench: Bench) -> None:
    """A prolog that failed open would look fast."""
    with open(f"{paths(bench.root).run}/report-prolog.json", encoding="utf-8") as file:
        report = json.load(file)
    if report["verdict"] != "healthy" or len(report["findings"]) < 6:
        raise RuntimeError(f"the prolog's suite did not run as expected: {report}")
