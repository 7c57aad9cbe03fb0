"""`hpkit hook prolog|epilog|health`: the hooks' own main, run by hand."""

from __future__ import annotations

import click


@click.command(short_help="Run a hook by hand: prolog, epilog or health.")
@click.argument("which", type=click.Choice(["prolog", "epilog", "health"]))
@click.option("--root", default="", help="The folder of a simulated node, instead of this machine.")
def command(which: str, root: str) -> int:
    """Run the prolog, epilog or health hook on this node, as slurmd would: in mode enforce it may drain the node.

    slurm.conf names the shell scripts in prolog/ and epilog/; they reach the same code without this command.
    """
    from hpkit.hook import main

    return main([which, "--root", root])
