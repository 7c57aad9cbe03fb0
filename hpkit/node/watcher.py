"""The background process that answers suspect notes at once where no systemd path unit does.

One for each node. It looks into the notes' folder a few times a second and starts a root round for a note, in a
process of its own, so that it stays small and the round is always of the installed version.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping

from hpkit import files, log, proc
from hpkit.node import lock, notes, settings, verdict
from hpkit.paths import Paths

TICK_S = 0.25
IDENTITY_S = 2.0  # how often it looks whether it is still the one that is wanted
START_S = 5.0
RETRY_S = 1.0  # at least this long between two processes for notes, whatever becomes of the first
ROUND_EXTRA_S = (
    10.0  # over the round's budget: its process starts, waits for the lock's holder, and ends by itself
)


def pidfile(paths: Paths) -> str:
    """Where the watcher says who it is."""
    return f"{paths.run}/watcher.json"


def ensure(paths: Paths, root: str, script: str, env: Mapping[str, str]) -> bool:
    """Start a watcher when none lives; True when one was started. `script` is start.py's path. Raises OSError."""
    named = _named(paths)
    if named is not None and proc.alive(named):
        return False
    stamp = proc.detach((sys.executable, "-I", "-S", script, "watch", "--root", root), env=env)
    log.info("watcher-started", pid=stamp.pid)
    return True


def watch(paths: Paths, root: str, script: str) -> None:
    """Be the watcher until the run folder vanishes or the pidfile names another; returns at once when there is one."""
    if not os.path.isdir(paths.run):
        return
    held = lock.acquire(paths, time.monotonic() + START_S, "watcher.lock")
    own = proc.stamp(os.getpid())
    if held is None or own is None:
        return
    with held:
        files.write_atomic(pidfile(paths), json.dumps(own._asdict()) + "\n", durable=False)
        looked = idle_until = time.monotonic()
        while True:
            time.sleep(TICK_S)
            if time.monotonic() - looked >= IDENTITY_S:
                looked = time.monotonic()
                if _named(paths) != own:
                    return
            if time.monotonic() >= idle_until and notes.any_left(paths):
                idle_until = time.monotonic() + _answer(paths, root, script)


def _answer(paths: Paths, root: str, script: str) -> float:
    """Run one round for the notes that are there; returns for how many seconds no other may run."""
    hooks = settings.load(paths, lambda found, suites: found.hooks, keep=False)[1]
    early = notes.due_in(paths, hooks.note_interval_s, time.clock_gettime(time.CLOCK_BOOTTIME))
    if early > 0:
        verdict.remove(paths)  # a suspect node: whoever comes first meanwhile runs the suite
        return early
    argv = (sys.executable, "-I", "-S", script, "note", "--root", root)
    env = {n: os.environ[n] for n in ("SLURMD_NODENAME",) if n in os.environ}
    ran = proc.run(argv, timeout_s=2 * hooks.health.budget_s + ROUND_EXTRA_S, env=env)
    if not ran.ok:
        log.error(
            "note-round-failed", rc=ran.rc, failure=ran.failure, why=ran.stderr.decode("utf-8", "replace")
        )
    return max(TICK_S, min(hooks.note_interval_s, RETRY_S))


def _named(paths: Paths) -> proc.Stamp | None:
    """The process that the pidfile names."""
    document = files.read_json(pidfile(paths))
    try:
        return proc.Stamp(int(document["pid"]), int(document["started"]))
    except files.BROKEN:
        return None
