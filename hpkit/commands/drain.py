"""`hpkit drain`: an administrator takes nodes out of service. What others took out stays as they left it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from hpkit import log
from hpkit.commands.fleet_nodes import (
    Step,
    budget_documents,
    client_of,
    for_each,
    names_of,
    read_back,
    result,
)
from hpkit.commands.options import output
from hpkit.commands.site import site
from hpkit.config import DrainConfig
from hpkit.errors import SlurmError
from hpkit.policy import budget, ownership
from hpkit.policy.verdict import one_line
from hpkit.result import Result
from hpkit.slurm.client import Client, Node

SCHEMA = "hpkit.drain/1"
NO_REASON = "no reason given"


@click.command()
@click.argument("nodes", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="Why; Slurm shows it as: hpkit: admin: TEXT.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@output()
def command(nodes: tuple[str, ...], reason: str, dry_run: bool) -> Result:
    """Take NODES (n1,n[3-5]) out of service.

    Running jobs go on, no new one starts. A node that somebody else drained, downed or failed is not touched. The
    drain budget does not bind a person, but these drains count in it.

    Exit code: 0 all drained, 4 some, 1 none.
    """
    where = site()
    return drain(client_of(where), names_of(nodes), reason, dry_run, where.config.drain)


def drain(client: Client, names: tuple[str, ...], reason: str, dry_run: bool, rules: DrainConfig) -> Result:
    """Drain each node that is nobody else's; raises SlurmError when Slurm does not answer."""
    text = one_line(f"{ownership.ADMIN} {reason.strip() or NO_REASON}")

    def act(client: Client, node: Node, dry_run: bool) -> Step:
        return _drain_one(client, node, text, dry_run)

    steps = for_each(client, names, act, dry_run)
    uses, note = _budget(client, rules)
    done = result(SCHEMA, steps, dry_run, reason=text, budget=budget_documents(uses))
    return done._replace(lines=[*done.lines, f"budget: {note}"])


def _budget(client: Client, rules: DrainConfig) -> tuple[Sequence[budget.Use], str]:
    """The cluster's use of its budget, and in words; () when Slurm does not tell: what was drained is drained."""
    try:
        uses = budget.uses(client.nodes(), rules, time.time(), groups=("",))
    except SlurmError as error:
        return (), f"not known ({error.message})"
    used, limit = len(uses[0].drained), uses[0].limit
    return uses, f"{used} of {limit} drains used within {rules.window_s / 60:g} minutes"


def _drain_one(client: Client, node: Node, text: str, dry_run: bool) -> Step:
    if foreign := ownership.foreign(node):
        return Step(node.name, "left-alone", foreign, False)
    if ownership.ours(node):
        return Step(node.name, "unchanged", f"already drained: {node.reason}", True)
    if dry_run:
        return Step(node.name, "drained", text, True)
    client.drain(node.name, text)
    log.audit("drained", node=node.name, reason=text, by="hpkit drain")
    after, remark = read_back(client, node.name)
    if after is not None and not ownership.ours(after, text):
        return Step(node.name, "lost", f"somebody else changed it at the same time: {after.reason}", False)
    return Step(node.name, "drained", text + remark, True)
