"""The step daemons that an ended job leaves on its node for a moment.

slurmd takes a step as ended once its slurmstepd has removed its socket, and runs the epilog then (slurmd/req.c,
_job_still_running). The daemon itself goes on: it waits up to 3 s for connections that are still open (req.c of
slurmstepd, STEPD_MESSAGE_COMP_WAIT), and removes the step's cgroup last. A step that srun's -K1 or scancel ends always
has such a connection: the thread that sent SIGTERM sleeps for KillWait. A requeued job that is back on the node by then
has a step of the same name, hence the same cgroup: it loses it, its tasks never start, and srun exits with 0. Slurm's
own two minutes after a requeue hide this; hpkit starts the job after seconds, so its epilog waits for the last of them.
(Read in 22.05 and 26.05; measured on 22.05.8: gone 3 s after the step's end on each node where a signal ended it.)
"""

from __future__ import annotations

import os
import time

from hpkit import log, proc

WAIT_S = 5.0  # more than the daemon's own 3 s; what is left then is stuck and will not end soon
POLL_S = 0.05
EXTERN = ".extern]"  # may outlive the epilog by design: with PrologFlags=RunInJob the epilog runs inside it


def wait_for_end(job: str, until: float) -> bool:
    """Wait until none of the job's step daemons is left here, at most to `until` (monotonic); False when one is.

    Nodes that share a machine (a sandbox) wait for each other's: a daemon that has let go of its socket and its cgroup
    does not tell whose it is. No new ones come: slurmd has revoked the job's credentials by now.
    """
    if not job.isdecimal():
        return True
    begun = time.monotonic()
    left = _daemons(job)
    while left and time.monotonic() < until:
        time.sleep(POLL_S)
        left = [kin for kin in left if proc.alive(kin.stamp)]
    waited_s = round(time.monotonic() - begun, 2)
    if left:
        log.warning("steps-left", job=job, waited_s=waited_s, title=left[0].title, pid=left[0].stamp.pid)
    elif waited_s >= POLL_S:
        log.info("steps-ended", job=job, waited_s=waited_s)
    return not left


def _daemons(job: str) -> list[proc.Kin]:
    """The job's step daemons on this machine, by the title that each gives itself: `slurmstepd: [JOB.STEP]`."""
    begins = f"slurmstepd: [{job}"
    return [k for k in proc.titled(f"{begins}.", os.geteuid()) if not k.title.startswith(begins + EXTERN)]
