"""`hpkit status`: which nodes hpkit took out and why, which others did, the drain budget, this node's last verdict."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from hpkit import files
from hpkit.commands.fleet_nodes import budget_documents, client_of
from hpkit.commands.options import output
from hpkit.commands.site import site
from hpkit.config import DrainConfig
from hpkit.errors import EXIT_DONE, EXIT_FAILED, SlurmError
from hpkit.node import record, verdict
from hpkit.paths import Paths
from hpkit.policy import budget, ownership
from hpkit.result import Result
from hpkit.slurm.client import Client, Node
from hpkit.slurm.names import own_node
from hpkit.slurm.states import summary

SCHEMA = "hpkit.status/1"
OUT = frozenset({"DRAIN", "DOWN", "FAIL"})
ANSWER_LIMIT = 4 << 20


@click.command()
@output()
def command() -> Result:
    """Show the nodes that hpkit took out of service, those that others took out, and the drain budget.

    Exit code: 0, or 1 when Slurm does not answer (this node's own verdict is shown all the same).
    """
    where = site()
    return status(client_of(where), where.paths, where.config.drain, os.environ.get("SLURMD_NODENAME", ""))


def status(client: Client, paths: Paths, rules: DrainConfig, node: str) -> Result:
    """The state of things now; `node` is this node's name when it is known."""
    here = local(paths)
    try:
        ledger = client.nodes()
    except SlurmError as error:
        here["node"] = node
        notes = (f"Slurm: {error.message}", *((f"  {error.hint}",) if error.hint else ()))
        failed = {"schema": SCHEMA, "error": error.message, "here": here}
        return Result(failed, _here_lines(here), EXIT_FAILED, notes)
    here["node"] = node or _name(client)
    ours = [_row(n, here) for n in ledger if ownership.ours(n)]
    others = [_row(n, here) for n in ledger if n.flags & OUT and not ownership.ours(n)]
    uses = budget.uses(ledger, rules, time.time())
    document = {
        "schema": SCHEMA,
        "nodes": len(ledger),
        "drained": ours,
        "foreign": others,
        "budget": budget_documents(uses),
        "here": here,
    }
    count = "1 node" if len(ledger) == 1 else f"{len(ledger)} nodes"
    lines = [
        f"{count}, {len(ours)} drained by hpkit, {len(others)} taken out by others",
        *_rows(ours, "drained by hpkit"),
        *_rows(others, "by others (hpkit leaves them alone)"),
        *_budget_lines(uses, rules),
        *_here_lines(here),
    ]
    return Result(document, lines, EXIT_DONE)


def local(paths: Paths) -> dict[str, Any]:
    """What this node's own files say: the last verdict, what failed, the drain record."""
    answer = _document(f"{paths.run}/answer.json")
    held = verdict.read(paths)
    kept = record.load(paths)
    return {
        "node": "",
        "verdict": held.verdict if held else str(answer.get("verdict", "")),
        "failures": [] if held else [_failure(f) for f in answer.get("failures", ())],
        "record": None if kept is None else {**kept._asdict(), "action": kept.action.value},
    }


def _document(path: str) -> Mapping[str, Any]:
    found = files.read_json(path, ANSWER_LIMIT)
    return found if isinstance(found, dict) else {}


def _failure(finding: Mapping[str, Any]) -> str:
    subject = f" {finding.get('subject')}" if finding.get("subject") else ""
    return f"{finding.get('check', '')}{subject}: {finding.get('message', '')}"


def _name(client: Client) -> str:
    """This machine's node name, "" on a login node."""
    try:
        return own_node(client, socket.gethostname())
    except SlurmError:
        return ""


def _row(node: Node, here: Mapping[str, Any]) -> dict[str, Any]:
    """One node that is out of service; its drain record only when it is this machine's."""
    return {
        "node": node.name,
        "state": summary(node.flags),
        "flags": sorted(node.flags),
        "reason": node.reason,
        "by": node.reason_by,
        "at": node.reason_at,
        "record": here["record"] if node.name == here["node"] else None,
    }


def _rows(rows: Sequence[Mapping[str, Any]], head: str) -> list[str]:
    """A small table under its own head line; nothing for no rows."""
    if not rows:
        return []
    cells = [(r["node"], r["state"], _moment(r["at"]), r["by"], r["reason"]) for r in rows]
    widths = [max(len(str(cell[at])) for cell in cells) for at in range(4)]
    table = [
        "  " + "  ".join(str(c).ljust(w) for c, w in zip(cell, [*widths, 0], strict=True)) for cell in cells
    ]
    needs = [
        f"    needs: {r['record']['action']}, noted: {r['record']['message']}" for r in rows if r["record"]
    ]
    return ["", f"{head}:", *(line.rstrip() for line in table), *needs]


def _budget_lines(uses: Sequence[budget.Use], rules: DrainConfig) -> list[str]:
    """The cluster's budget, and that of each partition that is in use."""
    head = f"drain budget within {rules.window_s / 60:g} minutes:"
    shown = [use for use in uses if not use.group or use.drained]
    rows = [f"  {u.group or 'cluster'}: {len(u.drained)} of {u.limit} used, {u.left} left" for u in shown]
    return ["", head, *rows]


def _here_lines(here: Mapping[str, Any]) -> list[str]:
    name = f"this node ({here['node']})" if here["node"] else "this node"
    if not here["verdict"]:
        return ["", f"{name}: no round has run here since the boot"]
    return ["", f"{name}: {here['verdict']}", *(f"  {failure}" for failure in here["failures"])]


def _moment(at: float | None) -> str:
    return "-" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
