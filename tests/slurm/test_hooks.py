"""What hooks leave behind, on a real controller: a rejected job and a requeued one run again soon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit.paths import paths
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm.client import Job

SHORT = "#!/bin/sh\necho ran on $SLURM_JOB_NODELIST\n"
# Leaves a suspect note on each node, waits for root's answers, and requeues itself once, as an ordinary user.
NOTED = """#!/bin/bash
[ -n "$SLURM_RESTART_COUNT" ] && exit 0
srun -N2 -n2 --ntasks-per-node=1 bash -c '
  run=${HPKIT_ROOT//%n/$SLURMD_NODENAME}/root/run/hpkit
  umask 022
  echo "{\\"job\\": \\"$SLURM_JOB_ID\\", \\"uptime\\": 1.0}" > $run/suspects/job-$SLURM_JOB_ID-$RANDOM
  until [ -e $run/answered/$SLURM_JOB_ID ]; do sleep 0.1; done'
scontrol requeue incomplete $SLURM_JOB_ID
sleep 120
"""


@pytest.fixture(params=["held", "not held"])
def holding(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    """Slurm holds a job after a failed prolog, unless nohold_on_prolog_fail is set."""
    conf = Path(cluster.state.folder, "etc", "slurm.conf")
    before = conf.read_text()
    if request.param == "held":
        conf.write_text(before.replace("nohold_on_prolog_fail,", ""))
        cluster.root("scontrol", "reconfigure")
    try:
        yield request.param
    finally:
        conf.write_text(before)
        cluster.root("scontrol", "reconfigure")


def test_a_job_rejected_by_a_prolog_runs_elsewhere_soon(cluster: Cluster, holding: str) -> None:
    bad, *others = cluster.names
    for name in others:
        cluster.root("scontrol", "update", f"nodename={name}", "state=drain", "reason=parked")
    own = paths(cluster.state.node(bad))
    cluster.brk(bad, "gpu-lost")
    Path(own.run, "verdict").unlink(missing_ok=True)
    job = cluster.submit(SHORT, "-N1", "-w", bad)
    rejected = cluster.until(
        lambda: cluster.job(job), lambda found: found.restarts > 0, 30, "the prolog's reject"
    )
    assert "RUNNING" not in rejected.flags
    assert cluster.node(bad).reason.startswith("hpkit: gpu.count: ")
    cluster.until(
        lambda: _log(cluster, bad), lambda text: f"event=job-start-now job={job}" in text, 30, "the helper"
    )
    released = json.loads(Path(own.lib, "released.json").read_text()) if holding == "held" else []
    assert released == ([job] if holding == "held" else [])


@pytest.mark.parametrize("array", [(), ("-a", "5")])
def test_a_requeued_job_with_an_answered_note_runs_again_soon(
    cluster: Cluster, array: tuple[str, ...]
) -> None:
    job = cluster.submit(NOTED, "-N2", "--exclusive", *array)
    name = f"{job}_5" if array else job
    done: Job = cluster.wait(name, "COMPLETED", 60)
    assert done.restarts == 1
    host = cluster.names[0]
    assert f"event=job-start-now job={name}" in _log(cluster, host)
    assert not any(Path(paths(cluster.state.node(n)).run, "answered", job).exists() for n in cluster.names)


def _log(cluster: Cluster, name: str) -> str:
    return Path(cluster.state.node(name), "hpkit.log").read_text()
