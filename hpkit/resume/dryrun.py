"""--hp-dry-run: what hp-srun would do, and the exact commands; starts nothing and changes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from hpkit import proc
from hpkit.resume import attempts, placeholders, requeue
from hpkit.resume.evidence import witness_argv
from hpkit.resume.options import Command
from hpkit.resume.placeholders import Source
from hpkit.resume.plan import NO_RESTART_CODE, UNKNOWN_PER_RUN
from hpkit.resume.settings import Settings
from hpkit.resume.supervisor import srun_argv


def show(command: Command, settings: Settings, source: Source, env: Mapping[str, str], bare: str) -> int:
    """Print the plan; always 0."""
    hindrance = None if bare else _expedited(env)
    for line in lines(command, settings, source, env, bare, hindrance):
        print(line)
    return 0


def _expedited(env: Mapping[str, str]) -> str | None:
    """Why an expedited job is not put back by its exit code, "" when it is; None for any other job, or if not told."""
    from hpkit.resume import evidence, expedite
    from hpkit.resume.run import reach, site_of

    job, _ = evidence.read_job(reach(site_of(env).slurm, env), attempts.key_of(env).job)
    if job is None or not job.expedited:
        return None
    return expedite.hindrance(requeue.find_batch(proc.ancestors(), os.getuid(), env.get("SLURM_JOB_ID", "")))


def lines(
    command: Command,
    settings: Settings,
    source: Source,
    env: Mapping[str, str],
    bare: str,
    expedited: str | None = None,
) -> list[str]:
    """The plan as text. `bare` is why srun would simply take our place, "" when it is supervised.

    `expedited`: why an expedited job is not requeued by its exit code, "" when it may be; None for any other job.
    """
    shown = [f"{k}={shlex.quote(v)}" for k, v in placeholders.variables(source, 1).items()]
    if bare:
        told = bare if len(bare) > 1 else "only information is asked of srun"
        return [f"run: {shlex.join(('srun', *command.words))}", f"     {told}"]
    key = attempts.key_of(env)
    order = requeue.Order(key.job, settings.begin_in_s if expedited is None else None)
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
        *([] if expedited is None else _expedited_lines(expedited, key.job)),
        "requeue: one scontrol is fed",
        *(f"     {line}" for line in requeue.commands(order)),
        "     (excnodelist= is added for a faulty node that nothing else keeps the job away from)",
        "     and the batch script is ended, so that nothing after hp-srun runs",
    ]


def _expedited_lines(hindrance: str, job: str) -> list[str]:
    """What is different for a job submitted with --requeue=expedite."""
    by_code = [f"     not here: {hindrance}"] if hindrance else [
        "     end with the step's code, and Slurm puts the job back at once and before all others,",
        "     when hpkit has drained the faulty node; else as below",
    ]  # fmt: skip
    return [
        "expedited requeue (--requeue=expedite):",
        *by_code,
        "to end such a job as FAILED, so that Slurm does not hold it:",
        f"     scontrol update jobid={job} requeue=0",
    ]


def _requeue_text(settings: Settings) -> str:
    limit = f", at most {settings.max_restarts} times in the run" if settings.max_restarts else ""
    return f"requeue{limit}"


def _user_text(settings: Settings) -> str:
    return _requeue_text(settings) if settings.resume_on == "any" else "end with the step's code"
