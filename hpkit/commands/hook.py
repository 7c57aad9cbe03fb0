"""`hpkit hook prolog|epilog|health`: the hooks' own main, run by hand."""

from __future__ import annotations

import click


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    short_help="Run a hook by hand: prolog, epilog or health.",
)
@click.argument("which", type=click.Choice(["prolog", "epilog", "health"]))
@click.argument("rest", nargs=-1, type=click.UNPROCESSED)
def command(which: str, rest: tuple[str, ...]) -> int:
    """Run the prolog, epilog or health hook on this node, as slurmd would.

    slurm.conf names the shell scripts in prolog/ and epilog/; they reach the same code without this command.
    """
    from hpkit.hook import main

    return main([which, *rest])
