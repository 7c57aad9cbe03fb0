"""The ways in which a broken job runs again on this cluster, and what each of them lacks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hpkit.slurm.abilities import Abilities

EXPEDITED = "expedited requeue"
BY_ROOT = "requeue, started at once by the epilog's helper"
BY_USER = "requeue, begin time set by hp-srun"
BY_SLURM = "Slurm's own requeue"


class Way(NamedTuple):
    """One way: `text` says how it goes where it is `open`, else what it lacks; `hint` what to do ("" for nothing)."""

    name: str
    open: bool
    text: str
    hint: str = ""


class Hooks(NamedTuple):
    """hpkit on the nodes: its epilog is in slurm.conf, it may act (None: not told here), it may start jobs."""

    epilog: bool
    enforce: bool | None
    start_requeued: bool


def ways(able: Abilities, config: Mapping[str, str], hooks: Hooks, begin_in_s: int) -> tuple[Way, ...]:
    """All of them, the best first. `config` is `scontrol show config`, `begin_in_s` hp-srun's begin time in seconds."""
    may = config.get("JobRequeue", "1") != "0"
    ask = "" if may else "JobRequeue is 0 here: jobs must be submitted with sbatch --requeue"
    return (
        expedited(able),
        by_root(hooks, ask),
        Way(BY_USER, True, f"the job may begin {begin_in_s} s after its requeue", ask),
        Way(BY_SLURM, True, f"begins {able.requeue_delay_s + 1} s after a requeue", shorter(able)),
    )


def expedited(able: Abilities) -> Way:
    """Slurm's own fast way: keeps the job's other nodes and puts it before all others."""
    if able.expedited_requeue:
        text = "runs again before all other jobs, at once; with hpkit's epilog it keeps its healthy nodes"
        return Way(EXPEDITED, True, text, "submit with SBATCH_REQUEUE=expedite sbatch …")
    if able.knows_expedited:
        hint = "add enable_expedited_requeue to SlurmctldParameters in slurm.conf"
        return Way(EXPEDITED, False, "not enabled", hint)
    return Way(EXPEDITED, False, f"Slurm {able.release} has none, 25.11 and newer do")


def by_root(hooks: Hooks, ask: str) -> Way:
    """The helper that hpkit's epilog leaves behind on a node with a suspect note."""
    if not hooks.epilog:
        return Way(BY_ROOT, False, "hpkit's epilog is not in slurm.conf", "add Epilog=…/epilog/hpkit")
    if hooks.enforce is None:
        text = "this machine has no hpkit.toml that says whether the nodes' hooks may act"
        return Way(BY_ROOT, False, text, "run hpkit doctor on a node")
    if not hooks.enforce:
        return Way(BY_ROOT, False, "hpkit only observes here", 'set mode = "enforce" in hpkit.toml')
    if not hooks.start_requeued:
        return Way(BY_ROOT, False, "switched off", "set hooks.start_requeued = true in hpkit.toml")
    return Way(BY_ROOT, True, "runs again as soon as the nodes have ended the old run", ask)


def shorter(able: Abilities) -> str:
    """How an administrator makes Slurm's own delay shorter."""
    if able.knows_requeue_delay:
        return "SchedulerParameters=requeue_delay=N makes it shorter"
    return "AuthInfo=cred_expire=N makes it shorter, and credentials too"
