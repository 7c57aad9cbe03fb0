"""The ways in which a broken job runs again on this cluster, and what each of them lacks. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hpkit.slurm.abilities import Abilities

EXPEDITED = "expedited requeue"
BY_ROOT = "requeue, started at once by the epilog's helper"
BY_USER = "requeue, begin time set by hp-srun"
BY_SLURM = "Slurm's own requeue"
ENFORCE = 'set mode = "enforce" in hpkit.toml'
ON_A_NODE = "this machine has no hpkit.toml that tells; run hpkit doctor on a node"


class Way(NamedTuple):
    """One way: `text` says how it goes where it is `open` (None: not told here), else what it lacks.

    `hint` is what to do, "" for nothing.
    """

    name: str
    open: bool | None
    text: str
    hint: str = ""


class Hooks(NamedTuple):
    """hpkit on the nodes: its epilog is in slurm.conf, it may act (None: not told here), it may start jobs."""

    epilog: bool
    enforce: bool | None
    start_requeued: bool


def ways(able: Abilities, config: Mapping[str, str], hooks: Hooks, begin_in_s: int) -> tuple[Way, ...]:
    """All of them; hp-srun takes the first that is open.

    `config` is `scontrol show config`, `begin_in_s` hp-srun's begin time in seconds.
    """
    may = config.get("JobRequeue", "1") != "0"
    ask = "" if may else "JobRequeue is 0 here: jobs must be submitted with sbatch --requeue"
    return (
        expedited(able, hooks),
        by_root(hooks, ask),
        Way(BY_USER, True, f"the job begins {begin_in_s} s after its requeue at the earliest", ask),
        Way(BY_SLURM, True, f"begins {able.requeue_delay_s + 1} s after a requeue", shorter(able)),
    )


def expedited(able: Abilities, hooks: Hooks) -> Way:
    """Slurm's own way: keeps the job's other nodes and puts it before all others. It needs an epilog that fails."""
    if not able.knows_expedited:
        return Way(EXPEDITED, False, f"Slurm {able.release} has none, 25.11.3 and newer do")
    if not able.expedited_sound:
        text = f"Slurm {able.release} runs such a job again even when it ended well"
        return Way(
            EXPEDITED,
            False,
            text,
            "update to 25.11.3 or newer, and take enable_expedited_requeue out till then",
        )
    if not able.expedited_requeue:
        hint = "add enable_expedited_requeue to SlurmctldParameters in slurm.conf"
        return Way(EXPEDITED, False, "not enabled", hint)
    if not hooks.epilog:
        text = "enabled, but slurm.conf does not name hpkit's epilog itself, so hp-srun requeues as below"
        return Way(EXPEDITED, False, text, "add Epilog=…/epilog/hpkit")
    if hooks.enforce is False:
        text = "enabled, but hpkit only observes here, so hp-srun requeues as below"
        return Way(EXPEDITED, False, text, ENFORCE)
    text = "runs again before all other jobs, without Slurm's delay, and keeps its healthy nodes"
    if hooks.enforce is None:
        return Way(EXPEDITED, None, f"where hpkit acts on the nodes: {text}", ON_A_NODE)
    return Way(EXPEDITED, True, text, "submit with SBATCH_REQUEUE=expedite sbatch …")


def by_root(hooks: Hooks, ask: str) -> Way:
    """The helper that hpkit's epilog leaves behind on a node with a suspect note."""
    if not hooks.epilog:
        return Way(BY_ROOT, False, "hpkit's epilog is not in slurm.conf", "add Epilog=…/epilog/hpkit")
    if hooks.enforce is None:
        return Way(BY_ROOT, None, "where hpkit acts on the nodes", ON_A_NODE)
    if not hooks.enforce:
        return Way(BY_ROOT, False, "hpkit only observes here", ENFORCE)
    if not hooks.start_requeued:
        return Way(BY_ROOT, False, "switched off", "set hooks.start_requeued = true in hpkit.toml")
    return Way(BY_ROOT, True, "runs again as soon as the nodes have ended the old run", ask)


def shorter(able: Abilities) -> str:
    """How an administrator makes Slurm's own delay shorter."""
    if able.knows_requeue_delay:
        return "requeue_delay=N in SchedulerParameters makes it shorter, once slurmctld is restarted"
    return "cred_expire=N in AuthInfo makes it shorter, and the life of every credential too"
