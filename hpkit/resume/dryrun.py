"""--hp-dry-run: what hp-srun would do, and the exact commands; starts nothing and changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from hpkit.resume import attempts, placeholders, requeue
from hpkit.resume.evidence import witness_argv
from hpkit.resume.options import Command
from hpkit.resume.placeholders import Source
from hpkit.resume.plan import NO_RESTART_CODE, UNKNOWN_PER_RUN
from hpkit.resume.settings import Settings
from hpkit.resume.supervisor import srun_argv


def show(command: Command, settings: Settings, source: Source, env: Mapping[str, str], bare: str) -> int:
    """Print the plan; always 0."""
    for line in lines(command, settings, source, env, bare):
        print(line)
    return 0


def lines(
    command: Command, settings: Settings, source: Source, env: Mapping[str, str], bare: str
) -> list[str]:
    """The plan as text. `bare` is why srun would simply take our place, "" when it is supervised."""
    shown = [f"{k}={shlex.quote(v)}" for k, v in placeholders.variables(source, 1).items()]
    if bare:
        told = bare if len(bare) > 1 else "only information is asked of srun"
        return [f"run: {shlex.join(('srun', *command.words))}", f"     {told}"]
    key = attempts.key_of(env)
    order = requeue.Order(key.job, settings.begin_in_s)
    nodes = env.get("SLURM_JOB_NODELIST", "NODES")
    return [
        f"run: {shlex.join(srun_argv(command, env))}",
        f"     with {' '.join(shown)}",
        f"record: {attempts.folders(settings.state_dir, settings.checkpoint_dir, env)[0]}/{key.file}",
        "when the step fails, ask Slurm, and every node for at most " + f"{settings.answer_s:g} s:",
        f"     {shlex.join(witness_argv((nodes,), settings.answer_s))}",
        "then by cause:",
        f"     hardware   {_requeue_text(settings)}",
        f"     user       {_user_text(settings)}",
        f"     unknown    requeue, at most {UNKNOWN_PER_RUN} time in the run"
        if settings.resume_on != "any"
        else f"     unknown    {_requeue_text(settings)}",
        "     scheduler  (cancelled, time limit, preempted, requeued by Slurm) end with the step's code",
        f"     exit code {NO_RESTART_CODE} from the program: never requeued",
        "requeue: one scontrol is fed",
        *(f"     {line}" for line in requeue.commands(order)),
        "     (excnodelist= is added for a faulty node that nothing else keeps the job away from)",
        "     and the batch script is ended, so that nothing after hp-srun runs",
    ]


def _requeue_text(settings: Settings) -> str:
    limit = f", at most {settings.max_restarts} times in the run" if settings.max_restarts else ""
    return f"requeue{limit}"


def _user_text(settings: Settings) -> str:
    return _requeue_text(settings) if settings.resume_on == "any" else "end with the step's code"
