"""What a call costs over Slurm's commands and over pyslurm: `python -m benchmarks.backends`, as root.

The figures of docs/how-to/use-pyslurm.md. Needs a pyslurm that fits the Slurm that is here.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

from hpkit.sandbox import cluster as clusters
from hpkit.slurm import connect
from hpkit.slurm.backend import choose
from hpkit.slurm.client import Client

RUNS = 20
JOBS = 4
SLEEP = "#!/bin/sh\nexec sleep 600\n"


def seconds(call: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def median(call: Callable[[], object]) -> float:
    """The same, of many."""
    return statistics.median(seconds(call) for _ in range(RUNS))


def main() -> int:
    """Print all figures."""
    cluster = clusters.up(f"/var/tmp/hpkit-backends-{os.getpid()}", nodes=4, hooks=False, expedite=False)
    try:
        config = cluster.slurm._replace(backend="pyslurm")
        choice = choose(config, trusted_only=False)
        if choice.refused:
            print(choice.why, file=sys.stderr)
            return 1

        def over(name: str) -> Client:
            return connect(config._replace(backend=name), trusted_only=False)

        time.sleep(1.1)  # what is submitted in slurmctld's first second might be from before
        jobs = [cluster.submit(SLEEP, "--output=/dev/null", "--nodelist=n1") for _ in range(JOBS)]
        for job in jobs:
            cluster.wait(job, "RUNNING")
        commands, pyslurm = over("commands"), over("pyslurm")
        one = median(lambda: commands.node("n1"))
        first = statistics.median(seconds(lambda: over("pyslurm").node("n1")) for _ in range(RUNS))
        print(f"the first call over pyslurm takes as long as {first / one:.0f} over commands")
        for what, call in (
            ("node", lambda client: client.node("n1")),
            ("job", lambda client: client.job(jobs[0])),
            (f"jobs_on, {JOBS} jobs", lambda client: client.jobs_on("n1")),
        ):
            slow, fast = (median(lambda c=client, f=call: f(c)) for client in (commands, pyslurm))
            print(f"{what}: a further call over pyslurm takes {fast / slow:.2f} of one over commands")
    finally:
        cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
