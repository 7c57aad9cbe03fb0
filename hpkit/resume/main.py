"""hp-srun: srun that survives hardware failure.

The rule above all: a fault of hpkit never costs a job. What goes wrong before the step starts is said in one line, and
srun runs as it would without us; what goes wrong after it is said, and the step's own code stays.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from hpkit.errors import EXIT_USAGE, ConfigError, HpkitError, UsageError
from hpkit.resume import options, placeholders, settings
from hpkit.resume.messages import say
from hpkit.resume.options import Command
from hpkit.resume.placeholders import Source
from hpkit.resume.settings import Settings
from hpkit.resume.srun_options import Table, from_help

HELP_S = 10.0
ASKED = "-"
ASKS_ONLY = ("help", "usage", "version", "test-only", "autocomplete")
USAGE = """\
usage: hp-srun [--auto-resume[=0|1]] [--hp-NAME=VALUE ...] [srun's options] program [arguments]

hp-srun is srun; with --auto-resume, inside a job started by sbatch, it survives hardware failure: when the step fails
and a node is found faulty, the job is requeued and goes on from the latest complete checkpoint.
In the program's arguments {checkpoint} and {step} are filled in; with nothing to resume from, the argument that holds
one is dropped, together with a flag directly before it.

  --hp-checkpoint-dir=DIR       where the checkpoints are
  --hp-checkpoint-format=NAME   their layout (auto)
  --hp-resume-on=hardware|any   requeue only when a node is faulty (hardware), or after every failure
  --hp-max-restarts=N           requeue at most N times (0: no limit)
  --hp-answer=SECONDS           how long to wait for the nodes' answers (15)
  --hp-begin-in=SECONDS         the requeued job may start after this long (8)
  --hp-state-dir=DIR            where the record of the run is kept
  --hp-give-up-code=N           exit code when a restart is wanted and not possible (the step's own)
  --hp-dry-run                  print what would be done, start nothing

Each also as HPKIT_NAME in the environment (HPKIT_CHECKPOINT_DIR) and in [resume] of the configuration.
For srun's own options: srun --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run hp-srun; returns the exit code (it does not return where srun takes our place)."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--hp-help"]:
        print(USAGE, end="")
        return 0
    env = dict(os.environ)
    command = Command(tuple(words), (), ())
    try:
        command = options.parse(words, _installed)
        chosen = _settings(command, env)
        source = _source(command, chosen)
    except HpkitError as error:
        say(error.message + (f" ({error.hint})" if error.hint else ""))
        _end_unheld(env)
        return EXIT_USAGE
    except Exception as error:  # noqa: BLE001  # the rule above all: our own failure must not cost the job
        say(f"cannot prepare the step ({type(error).__name__}: {error}); running srun as it is")
        return _become(placeholders.fill(command, Source()), Source(), env)
    return _go(command, chosen, source, env)


def _end_unheld(env: dict[str, str]) -> None:
    """See to it that Slurm does not hold an expedited job for a mistake in our command line."""
    if not env.get("SLURM_JOB_ID"):
        return
    try:
        from hpkit.resume.run import end_before_step

        end_before_step(env)
    except Exception as error:  # noqa: BLE001  # the mistake was told, and its code must come out
        say(f"Slurm could not be asked about the job ({type(error).__name__}: {error})")


def _go(command: Command, chosen: Settings, source: Source, env: dict[str, str]) -> int:
    """Take srun's place, or supervise it."""
    filled = placeholders.fill(command, source) if chosen.checkpoint_dir else command
    bare = _why_bare(filled, chosen, env)
    if chosen.dry_run:
        from hpkit.resume.dryrun import show

        return show(filled, chosen, source, env, bare)
    if bare:
        if bare != ASKED:
            say(bare)
        return _become(filled, source, env)
    try:
        from hpkit.resume.run import prepare

        run = prepare(filled, chosen, source, env)
    except Exception as error:  # noqa: BLE001  # the rule above all: our own failure must not cost the job
        say(f"cannot watch over the step ({type(error).__name__}: {error}); running srun as it is")
        return _become(filled, source, env)
    return run.go()


def _why_bare(command: Command, chosen: Settings, env: dict[str, str]) -> str:
    """Why srun simply takes our place; "" when it is supervised, `ASKED` when nothing need be said."""
    if any(command.gives(name) for name in ASKS_ONLY):
        return ASKED
    if not chosen.auto_resume:
        return "no --auto-resume: running srun as it is"
    job = env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID", "")
    if not job:
        return "not inside a Slurm job: running srun as it is, without auto-resume"
    named = {part.given["jobid"] for part in command.components if "jobid" in part.given}
    if named - {job}:
        return "--jobid names another job than the one around us: running srun as it is, without auto-resume"
    return ""


def _become(command: Command, source: Source, env: dict[str, str]) -> int:
    from hpkit.resume.supervisor import become

    return become(("srun", *command.words), {**env, **placeholders.variables(source, 1)})


def _settings(command: Command, env: dict[str, str]) -> Settings:
    """The settings in force. The site's bad configuration is said and passed over: no user can mend it."""
    from hpkit import config
    from hpkit.paths import node_root, paths

    explicit = env.get("HPKIT_CONFIG", "")
    try:
        site = config.load(paths(node_root()).etc, explicit=explicit, trusted_only=False).resume
    except ConfigError as error:
        if explicit:
            raise
        say(f"{error.message}; going on with the defaults")
        site = config.ResumeConfig()
    return settings.resolve(command.ours, env, site)


def _source(command: Command, chosen: Settings) -> Source:
    """The checkpoint to resume from; every answer of the chooser is said, none is silently "from the beginning"."""
    if not chosen.checkpoint_dir:
        if placeholders.wanted(command):
            raise UsageError(
                "the arguments hold {checkpoint}, but no --hp-checkpoint-dir is given",
                "say where the checkpoints are: --hp-checkpoint-dir=DIR",
            )
        return Source()
    from hpkit.checkpoints import choose

    folder = chosen.checkpoint_dir
    try:
        choice = choose(folder, chosen.checkpoint_format)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001  # the rule above all: our own failure must not cost the job
        say(
            f"the checkpoints in {folder} could not be examined ({type(error).__name__}: {error}); starting without"
        )
        return Source()
    for warning in choice.warnings:
        say(warning)
    if choice.answer == "found":
        step = "" if choice.step is None else f" (step {choice.step})"
        say(f"resuming from {choice.path}{step}")
        return Source(choice.path, choice.step)
    if choice.answer == "nothing there":
        say(f"no checkpoint in {folder} yet: starting from the beginning")
        return Source()
    why = f": {choice.why}" if choice.why else ""
    say(f"WARNING: no usable checkpoint in {folder} ({choice.answer}{why}); starting without one")
    for candidate in choice.candidates[:5]:
        say(f"  {candidate.path}: {candidate.reason}")
    return Source()


def _installed() -> Table:
    """What the installed srun and its plugins know; empty when it does not tell."""
    import shutil

    from hpkit import proc

    srun = shutil.which("srun")
    if not srun:
        return Table({}, {})
    return from_help(proc.run((srun, "--help"), timeout_s=HELP_S, env=dict(os.environ)).text)


if __name__ == "__main__":
    sys.exit(main())
