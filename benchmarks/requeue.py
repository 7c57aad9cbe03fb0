"""From a fault to the job step running again: hp-srun against Slurm's own requeue, on the same real cluster."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.measure import Figure
from hpkit.sandbox import cluster as sandbox

TIMES = 3
START_S, STOCK_S = 60.0, 300.0

# The step: one line in `starts` for each start, then it works until its node is told to fail or the run is told to end.
STEP = """#!/bin/sh
n=$(date +%s.%N)
[ "$SLURM_PROCID" = 0 ] && echo "$n" >>"$1/starts"
while [ ! -e "$1/end" ]; do
    [ -e "$1/fail.$SLURMD_NODENAME" ] && exit 1
    sleep 0.05
done
"""
OURS = "#!/bin/bash\n#SBATCH -N2 --requeue --gres=gpu:8\nhp-srun --auto-resume=1 -N2 -n2 {step} {folder}\n"
STOCK = "#!/bin/bash\n#SBATCH -N2 --requeue --gres=gpu:8\nsrun -N2 -n2 {step} {folder}\n"


def figures() -> Iterator[Callable[[], Figure]]:
    """The one figure that is measured here; only root can have a sandbox with hooks."""
    if os.geteuid() == 0:
        yield recovery


def recovery() -> Figure:
    """Medians of our recoveries; Slurm's own is measured once, since it takes minutes by design."""
    with tempfile.TemporaryDirectory(prefix="hpkit-bench-") as folder:
        os.chmod(folder, 0o755)
        cluster = sandbox.up(f"{folder}/sandbox", nodes=4, gpus=8)
        try:
            ours = [ours_once(cluster, number) for number in range(TIMES)]
            stock = stock_once(cluster)
        finally:
            cluster.down()
    details = {"ours_s": ours, "stock_s": stock}
    return Figure(
        "fault -> step runs again, hp-srun / stock requeue",
        statistics.median(ours) / stock,
        "x",
        0.1,
        details,
    )


def ours_once(cluster: sandbox.Cluster, number: int) -> float:
    """Seconds from a lost GPU to the step's next start; the node is healed afterwards."""
    run = Run(cluster, f"ours{number}", OURS)
    bad = run.nodes()[-1]
    cluster.brk(bad, "gpu-lost")
    began = time.time()
    run.tell(f"fail.{bad}")
    again = run.starts(2)[1]
    run.finish()
    cluster.heal(bad)
    cluster.wait_node(bad, lambda node: "DRAIN" not in node.flags and "IDLE" in node.flags)
    return again - began


def stock_once(cluster: sandbox.Cluster) -> float:
    """Seconds from an administrator's `scontrol requeue` to the step's next start."""
    run = Run(cluster, "stock", STOCK)
    began = time.time()
    cluster.root("scontrol", "requeue", run.job)
    again = run.starts(2, STOCK_S)[1]
    run.finish()
    return again - began


class Run:
    """A submitted job whose step has started."""

    def __init__(self, cluster: sandbox.Cluster, name: str, script: str) -> None:
        self.cluster = cluster
        self.folder = f"{cluster.folder}/home/{name}"
        step = f"{self.folder}/step"
        made = cluster.run_as_user(["/bin/sh", "-c", f'mkdir {self.folder} && cat >{step} && chmod 755 {step}'],
                                   stdin=STEP.encode())  # fmt: skip
        if not made.ok:
            raise RuntimeError(f"the job's folder cannot be made: {made.stderr!r}")
        self.job = cluster.submit(script.format(step=step, folder=self.folder))
        self.starts(1)

    def nodes(self) -> list[str]:
        """The nodes of the job's present run."""
        return list(self.cluster.client.hostnames(self.cluster.job(self.job).nodes))

    def starts(self, count: int, timeout_s: float = START_S) -> list[float]:
        """Wait until the step has started `count` times; when each start was."""
        return self.cluster.until(
            self._starts, lambda found: len(found) >= count, timeout_s, f"starts of {self.job}"
        )

    def tell(self, word: str) -> None:
        """Leave a file that the step looks for."""
        with open(f"{self.folder}/{word}", "w", encoding="utf-8"):
            return

    def finish(self) -> None:
        """Let the step end well and wait for the job's end."""
        self.tell("end")
        self.cluster.wait(self.job, ("COMPLETED", "FAILED", "CANCELLED"))

    def _starts(self) -> list[Any]:
        try:
            with open(f"{self.folder}/starts", encoding="utf-8") as file:
                return [float(line) for line in file]
        except FileNotFoundError:
            return []
