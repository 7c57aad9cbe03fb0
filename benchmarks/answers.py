"""What Slurm's two forms of an answer cost: `python -m benchmarks.answers`, as root, on a Slurm with --json.

The figures of docs/reference/slurm.md: `scripts/release.sh run 26.05 python -m benchmarks.answers`. A controller with
10,000 nodes of which only a few are there, and a job on eight nodes of 192 CPUs.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from typing import NamedTuple

from hpkit import proc
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox import slurmconf
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm import parse

RUNS = 5
LIMIT = 64 << 20
WIDE = 8
SLEEP = "#!/bin/sh\nexec sleep 600\n"
MANY = (
    "NodeName=p5-node-[1-10000] NodeAddr=127.0.0.1 Port=9 Sockets=2 CoresPerSocket=96 RealMemory=2048000 Gres=gpu:8"
    ' Feature=h100,efa,zone-a State=DOWN Reason="hpkit: gpu.xid: gpu3: Xid 79 GPU has fallen off the bus"\n'
)


class Answer(NamedTuple):
    """One form: its text, the median of seconds until it was there."""

    text: str
    seconds: float


def ask(cluster: Cluster, *words: str) -> Answer:
    """The answer of scontrol."""
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        ran = proc.run(
            [cluster.state.tools["scontrol"], "--all", *words],
            timeout_s=60,
            env={"SLURM_CONF": cluster.state.conf},
            limit=LIMIT,
        )
        took.append(time.perf_counter() - began)
        if not ran.ok:
            raise RuntimeError(f"scontrol {' '.join(words)}: {ran.stderr.decode(errors='replace').strip()}")
    return Answer(ran.text, statistics.median(took))


def by_line(text: str) -> object:
    """As the client reads nodes."""
    reader = parse.Nodes()
    start = 0
    while (end := text.find("\n", start)) >= 0:
        reader.feed(text[start:end])
        start = end + 1
    return reader.close()


def memory(read: Callable[[str], object], text: str) -> float:
    """What reading takes at its peak besides the text itself, in bytes."""
    tracemalloc.start()
    kept = read(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    return float(peak)


def tell(what: str, cluster: Cluster, *words: str) -> tuple[Answer, Answer]:
    """Both forms side by side."""
    plain, rich = ask(cluster, *words), ask(cluster, "--json", *words)
    size, took = len(rich.text) / len(plain.text), rich.seconds / plain.seconds
    print(
        f"{what}: text {len(plain.text)} bytes, JSON {size:.1f} times that, {took:.1f} times as long to come"
    )
    return plain, rich


def main() -> int:
    """Print all figures."""
    slurmconf.CPUS = 192
    cluster = clusters.up(f"/var/tmp/hpkit-answers-{os.getpid()}", nodes=WIDE, hooks=False)
    try:
        for count in (1, WIDE):
            job = cluster.submit(SLEEP, "--output=/dev/null", f"--nodes={count}", "--exclusive")
            cluster.wait(job, "RUNNING")
            tell(f"a job on {count} nodes of 192 CPUs", cluster, "show", "job", job)
            cluster.root("scancel", job)
            cluster.wait(job, "CANCELLED")
        cluster.stop("slurmctld")
        with open(cluster.state.conf, "a", encoding="utf-8") as file:
            file.write(MANY)
        cluster.start("slurmctld")
        cluster.until(lambda: clusters.daemons.controller_answers(cluster.state), bool, 60, "the controller")
        plain, rich = tell("10,000 nodes", cluster, "show", "node")
        by_text, by_json = memory(by_line, plain.text), memory(json.loads, rich.text) + len(rich.text)
        print(
            f"read: text {by_text / len(plain.text):.2f} times its size, JSON {by_json / by_text:.0f} times that"
        )
        tell("one of them", cluster, "show", "node", "n1")
    finally:
        cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
