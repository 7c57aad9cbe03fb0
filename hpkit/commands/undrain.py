"""`hpkit undrain`: an administrator brings back nodes that hpkit took out; only the `hpkit:` in the reason counts."""

from __future__ import annotations

import click

from hpkit import log
from hpkit.commands.fleet_nodes import Step, client_of, for_each, names_of, read_back, result
from hpkit.commands.options import output
from hpkit.commands.site import site
from hpkit.policy import ownership
from hpkit.result import Result
from hpkit.slurm.client import Client, Node

SCHEMA = "hpkit.undrain/1"


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@output()
def command(nodes: tuple[str, ...], dry_run: bool) -> Result:
    """Bring NODES (n1,n[3-5]) back into service, whatever their records still ask for.

    Only nodes whose reason begins with hpkit: are touched. A node that Slurm has DOWN stays DOWN.

    Exit code: 0 all are back, 4 some, 1 none.
    """
    return undrain(client_of(site()), names_of(nodes), dry_run)


def undrain(client: Client, names: tuple[str, ...], dry_run: bool) -> Result:
    """Undrain each node that hpkit drained; raises SlurmError when Slurm does not answer."""
    return result(SCHEMA, for_each(client, names, _undrain_one, dry_run), dry_run)


def _undrain_one(client: Client, node: Node, dry_run: bool) -> Step:
    if not ownership.ours(node):
        foreign = ownership.foreign(node)
        if foreign:
            return Step(node.name, "left-alone", foreign, False)
        return Step(node.name, "unchanged", "not drained", True)
    if dry_run:
        return Step(node.name, "returned", node.reason, True)
    client.undrain(node.name)
    log.audit("returned", node=node.name, reason=node.reason, by="hpkit undrain")
    after, remark = read_back(client, node.name)
    if after is not None and after.flags & {"DRAIN", "FAIL"}:
        return Step(node.name, "lost", f"drained again at once: {after.reason}", False)
    if after is not None and "DOWN" in after.flags:
        remark = "; Slurm still has it DOWN"
    return Step(node.name, "returned", f"was: {node.reason}{remark}", True)
