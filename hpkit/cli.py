"""The `hpkit` command: parse, call one command, render its result, turn every ending into an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

import click

from hpkit import __version__, render
from hpkit.commands.options import output
from hpkit.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, HpkitError
from hpkit.result import Output

EXIT_PIPE = 141  # 128 + SIGPIPE: what a shell shows for a program whose reader went away


class Verb(NamedTuple):
    """Where a command lives and its one line in `hpkit --help`, so that the help need not import it."""

    target: str
    about: str


VERBS: dict[str, Verb] = {
    "check": Verb("hpkit.commands.check:command", "Check this node, or a recorded one."),
    "bundle": Verb(
        "hpkit.commands.bundle:command", "Record a round on this node, for check --replay elsewhere."
    ),
    "status": Verb(
        "hpkit.commands.status:command", "Show the nodes that hpkit took out of service, and why."
    ),
    "drain": Verb("hpkit.commands.drain:command", "Take nodes out of service with a clear reason."),
    "undrain": Verb("hpkit.commands.undrain:command", "Bring back nodes that hpkit took out of service."),
    "checkpoint": Verb(
        "hpkit.commands.checkpoint:command", "Find the newest complete checkpoint in a folder."
    ),
    "attempts": Verb(
        "hpkit.commands.attempts:command", "Show the attempts of a training run and why each ended."
    ),
    "doctor": Verb(
        "hpkit.commands.doctor:command", "Look at this installation: Slurm, ways to restart, slurm.conf."
    ),
    "config": Verb("hpkit.commands.config:command", "Show or check the configuration."),
    "sandbox": Verb(
        "hpkit.commands.sandbox:command", "A real Slurm cluster on this machine, to try hpkit on."
    ),
    "hook": Verb("hpkit.commands.hook:command", "Run a hook by hand: prolog, epilog or health."),
}


class LazyGroup(click.Group):
    """Imports the module of a command when that command is called, and no other."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a verb, imported now; None when there is no such verb."""
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        if isinstance(ctx.obj, Output):
            ctx.obj.verb = cmd_name
        module, _, attribute = verb.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.about) for name, verb in VERBS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: check 0 healthy, 1 degraded, 2 unhealthy, 3 could not tell. "
    "Other commands 0 done, 1 failed, 4 partly. All: 3 wrong usage, 124 own deadline, 130 ^C.",
)
@click.version_option(__version__, message=f"hpkit %(version)s, Python {sys.version.split()[0]}")
@output()
def group() -> None:
    """Keep large AI training alive on plain Slurm: find bad nodes, take them out, resume the job."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code and never raises."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["hook"] and args[1:2] in (["prolog"], ["epilog"], ["health"]):
        from hpkit.hook import main as hook_main

        return hook_main(args[1:])
    wanted = Output()
    try:
        return _run(args, wanted)
    except BrokenPipeError:
        _abandon_stdout()
        return EXIT_PIPE
    except (KeyboardInterrupt, click.Abort):
        render.error("interrupted")
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        _tell_usage(error)
        return EXIT_USAGE
    except HpkitError as error:
        render.failure(error, wanted.format)
        return error.code
    except Exception:  # noqa: BLE001 - the last handler: a report file instead of a traceback
        from hpkit.crash import report

        render.error("internal error", f"please report it with this file: {report(args)}")
        return EXIT_USAGE if wanted.verb == "check" else EXIT_FAILED


def _run(args: list[str], wanted: Output) -> int:
    """Parse and call without click's own error handling; help and version end with 0."""
    value: Any = _call(args, wanted)
    if value is None or isinstance(value, int):
        return value or 0
    return render.show(value, wanted.format, wanted.color)


def _call(args: list[str], wanted: Output) -> Any:
    try:
        return group.main(args, prog_name="hpkit", obj=wanted, standalone_mode=False)
    except SystemExit:  # click's answer to a reader that went away while it printed its help
        raise BrokenPipeError from None


def _tell_usage(error: click.UsageError) -> None:
    """A group called without a verb shows its help; every other fault is one line."""
    if error.ctx and isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        render.lines(error.ctx.get_help().splitlines(), sys.stderr)
        return
    render.error(error.format_message(), f"see: {error.ctx.command_path if error.ctx else 'hpkit'} --help")


def _abandon_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush stays quiet."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
