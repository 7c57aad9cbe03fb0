"""Which processes belong to a sandbox, and their end. Never by name: by stamp, by descent, or by a mark only we set."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import NamedTuple

import psutil

from hpkit import pids
from hpkit.files import read_small
from hpkit.paths import paths
from hpkit.pids import Stamp
from hpkit.sandbox import daemons
from hpkit.sandbox.slurmconf import node_names
from hpkit.sandbox.state import State

JOBS_END_S = 8.0  # a job that ignores SIGTERM lives for KillWait
SWEEP_S = 6.0
GRACE_S = 3.0


class Belongs(NamedTuple):
    """A process of the sandbox, and what it is."""

    stamp: Stamp
    what: str


def down(state: State) -> tuple[Belongs, ...]:
    """End everything of a sandbox; returns what could not be ended (nothing, unless it sits in the kernel)."""
    end_jobs(state)
    for name in (*node_names(state.settings.nodes), "slurmctld"):
        if name in state.processes:
            pids.end(state.processes[name], grace_s=GRACE_S)
    until = time.monotonic() + SWEEP_S
    while left := belonging(state):
        for each in left:
            pids.end(each.stamp, grace_s=0.5)
        if time.monotonic() > until:
            return belonging(state)
    return ()


def end_jobs(state: State) -> None:
    """Cancel every job, kill its processes through Slurm, and wait for a moment until it is gone."""
    controller = state.processes.get("slurmctld")
    if controller is None or not pids.alive(controller):
        return
    until = time.monotonic() + JOBS_END_S
    while time.monotonic() < until:
        listed = daemons.slurm(state, "squeue", "-h", "-o", "%A", timeout_s=3.0)
        jobs = sorted(set(listed.text.split()))
        if not listed.ok or not jobs:  # a controller that does not answer: the sweep ends the jobs
            return
        daemons.slurm(state, "scancel", "--signal=KILL", "--full", *jobs, timeout_s=3.0)
        daemons.slurm(state, "scancel", *jobs, timeout_s=3.0)
        time.sleep(0.2)


def belonging(state: State) -> tuple[Belongs, ...]:
    """Every living process of this sandbox, daemons first; never this process or one above it."""
    mine = own_line()
    found: dict[Stamp, str] = {stamp: name for name, stamp in state.processes.items() if pids.alive(stamp)}
    found.update({stamp: "watcher" for stamp in watchers(state) if pids.alive(stamp)})
    for process in psutil.process_iter():
        stamp = pids.stamp(process.pid)
        if stamp is not None and stamp not in found and process.pid not in mine:
            what = marked(state, process)
            if what:
                found[stamp] = what
    for stamp in list(found):
        found.update(
            {child: f"child of {found[stamp]}" for child in descendants(stamp) if child not in found}
        )
    return tuple(Belongs(stamp, what) for stamp, what in found.items() if stamp.pid not in mine)


def own_line() -> set[int]:
    """Our own pid and those of all processes above us."""
    me = psutil.Process()
    return {me.pid, *(parent.pid for parent in me.parents())}


def marked(state: State, process: psutil.Process) -> str:
    """What a process is when it carries one of the sandbox's marks, else "".

    The daemons' token is set nowhere else; a hook program is started from the sandbox's own copy; a process in a job of
    this cluster has a job number and this cluster's slurm.conf; a slurmstepd, which writes its title over its
    environment, holds the log of one of this sandbox's slurmd open.
    """
    try:
        if process.name() == "slurmstepd":
            logs = f"{state.folder}/log/slurmd-"
            return "job step" if any(file.path.startswith(logs) for file in process.open_files()) else ""
        words, environ = process.cmdline(), process.environ()
    except (psutil.Error, OSError):
        return ""
    if environ.get(daemons.TOKEN) == state.token:
        return "daemon"
    if state.hook_main in words[:5]:
        return "hook"
    if environ.get("SLURM_JOB_ID") and environ.get("SLURM_CONF") == state.conf:
        return f"job {environ['SLURM_JOB_ID']}"
    return ""


def descendants(stamp: Stamp) -> Iterable[Stamp]:
    """The stamps of all processes below one."""
    try:
        below = psutil.Process(stamp.pid).children(recursive=True)
    except psutil.Error:
        return
    for child in below:
        found = pids.stamp(child.pid)
        if found is not None:
            yield found


def watchers(state: State) -> Iterable[Stamp]:
    """The background helpers of the nodes, by what they wrote about themselves."""
    for name in node_names(state.settings.nodes):
        text = read_small(f"{paths(state.node(name)).run}/watcher.json")
        if text is None:
            continue
        try:
            found = json.loads(text)
            yield Stamp(int(found["pid"]), int(found["started"]))
        except (ValueError, KeyError, TypeError):
            continue
