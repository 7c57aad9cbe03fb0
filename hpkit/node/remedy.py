"""Take this node out of service because its round failed: the only automatic drain that hpkit makes.

Slurm has no compare-and-set. So: look at all nodes, write, and look again once Slurm's clock has moved on. Another hand
that writes between our look and our write is overwritten; that window is one RPC (a few milliseconds, measured on a
small cluster).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpkit import log
from hpkit.config import Config
from hpkit.errors import SlurmError
from hpkit.model import Clock, Report
from hpkit.node import diskless
from hpkit.node import record as records
from hpkit.paths import Paths
from hpkit.policy import budget, ownership
from hpkit.policy.returning import INTENDED, Here, Record, confirmed, extended, first_record
from hpkit.policy.token import signed
from hpkit.policy.verdict import culprit, reason_for
from hpkit.slurm.client import Client, Node

SETTLE_S = 2.1  # reasons have a resolution of one second: two seconds later all drains of ours are in order

Pause = Callable[[float], None]


class Outcome(NamedTuple):
    """What came of it: `kind` is one word, `text` says why.

    Kinds of a drain: "drained", "already-ours", "foreign" (somebody else has it: left alone), "no-budget", "no-answer"
    (Slurm did not say enough: nothing was written), "observe", "failed" (Slurm refused, or the drain did not hold).
    """

    kind: str
    text: str


class Case(NamedTuple):
    """One node, its failed round, and what is needed to act on it."""

    client: Client
    report: Report
    paths: Paths
    config: Config
    clock: Clock
    node: str
    here: Here
    reason: str


def take_out(
    client: Client,
    report: Report,
    paths: Paths,
    config: Config,
    clock: Clock,
    node: str,
    *,
    instance_id: str = "",
    deadline: float = float("inf"),
    pause: Pause = time.sleep,
) -> Outcome:
    """Drain this node with the report's reason, if it is nobody else's and the budget allows; never raises for Slurm.

    At most four calls, each with `config.slurm.timeout_s`. The last look, at least two seconds after the drain, is left
    to the next background round when it would not fit before `deadline` (time.monotonic seconds).
    """
    here = Here(clock.boot_id, instance_id, devices_of(report))
    reason = _reason(report, config, here)
    if not reason:
        return Outcome("failed", "nothing failed in this round")
    if config.mode != "enforce":
        return Outcome("observe", f"would drain: {reason}")
    case = Case(client, report, paths, config, clock, node, here, reason)
    pause(config.drain.jitter_s * int.from_bytes(os.urandom(4), "big") / (1 << 32))
    try:
        return _look_and_drain(case, deadline, pause)
    except SlurmError as error:
        return Outcome("no-answer" if error.kind in SILENT else "failed", f"{error.kind}: {error.message}")


def _reason(report: Report, config: Config, here: Here) -> str:
    """The reason to write; on a diskless node with the token that its return will need. "" without a failure."""
    reason, finding = reason_for(report), culprit(report)
    if finding is None or not config.drain.diskless:
        return reason
    return signed(reason, finding.action, here.boot_id, here.instance_id)


SILENT = ("unreachable", "timeout", "missing", "garbled", "unknown")


def _look_and_drain(case: Case, deadline: float, pause: Pause) -> Outcome:
    ledger = case.client.nodes()
    node = pick(ledger, case.node)
    if foreign := ownership.foreign(node):
        return Outcome("foreign", foreign)
    held = records.load(case.paths)
    if ownership.ours(node):
        return _held_already(case, node, held)
    if refused := budget.permit(node, ledger, case.config.drain, case.clock.wall):
        return Outcome("no-budget", refused)
    _keep(
        case.paths,
        first_record(case.report, case.reason, case.clock.wall, case.here)._replace(node=case.node),
    )
    try:
        case.client.drain(case.node, case.reason)
    except SlurmError as error:
        if error.kind not in SILENT:  # else the drain may have happened all the same
            records.clear(case.paths)
        raise
    log.audit("drained", node=case.node, reason=case.reason, verdict=case.report.verdict.value)
    left, call_s = deadline - time.monotonic(), case.config.slurm.timeout_s
    if left < call_s:  # the drain stands: it must not be lost with a hook that is ended while it waits
        return Outcome("drained", f"{case.reason} (not read back: no time left)")
    settle = SETTLE_S + 2 * call_s <= left
    if settle:
        pause(SETTLE_S)
    return _look_again(case, settle)


def _look_again(case: Case, settled: bool) -> Outcome:
    """Read back what we wrote. No answer now changes nothing: the drain was accepted."""
    try:
        ledger = case.client.nodes() if settled else (case.client.node(case.node),)
    except SlurmError as error:
        log.warning("drain-not-read-back", node=case.node, why=error.message)
        return Outcome("drained", f"{case.reason} (not read back: {error.kind})")
    node = pick(ledger, case.node)
    if not ownership.ours(node, case.reason):
        records.clear(case.paths)
        log.warning("drain-lost", node=case.node, state="+".join(sorted(node.flags)), reason=node.reason)
        return Outcome(
            "foreign" if ownership.foreign(node) else "failed", f"the drain did not hold: {node.reason}"
        )
    if settled and (late := budget.overdrawn(node, ledger, case.config.drain)):
        return step_back(case.client, case.paths, case.node, late)
    held = records.load(case.paths)
    if held is not None:
        _keep(case.paths, confirmed(held, case.clock.wall))
    return Outcome("drained", case.reason)


def step_back(client: Client, paths: Paths, name: str, why: str) -> Outcome:
    """Give up a drain of ours that came too late for the budget. Call it only after a look that found it to be ours.

    The record says so first: without Slurm's answer a node back in service would look as if a person had cured it.
    """
    held = records.load(paths)
    if held is not None:
        _keep(paths, held._replace(state=INTENDED))
    client.undrain(name)
    records.clear(paths)
    log.audit("drain-given-up", node=name, why=why)
    return Outcome("no-budget", why)


def _held_already(case: Case, node: Node, held: Record | None) -> Outcome:
    """The node is drained by hpkit: nothing is written to Slurm, a record of this drain learns of further failures.

    Without a record (an administrator's `hpkit drain`, a lost disk) none is made up: a person brings the node back,
    unless the reason shows that this very finding drained it, or a diskless node's reason tells what the record held.
    """
    if held is None and not ownership.ours(node, case.reason):
        held = _told_by(case, node)
    if held is None and ownership.ours(node, case.reason):
        held = first_record(case.report, case.reason, node.reason_at or case.clock.wall, case.here)
        _keep(case.paths, confirmed(held._replace(node=case.node), case.clock.wall))
    elif held is not None and ownership.ours(node, held.reason):
        grown = confirmed(extended(held, case.report, case.here), case.clock.wall)
        if grown != held:
            _keep(case.paths, grown)
    return Outcome("already-ours", node.reason)


def _told_by(case: Case, node: Node) -> Record | None:
    """The record in a diskless node's drain reason. Without an answer there is none in this round."""
    if not case.config.drain.diskless:
        return None
    try:
        return diskless.from_drain(case.client, node, case.clock.wall)
    except SlurmError as error:
        log.warning("record-not-rebuilt", node=case.node, why=error.message)
        return None


def pick(ledger: Sequence[Node], name: str) -> Node:
    """The node of that name; SlurmError "unknown" when the ledger lacks it."""
    for node in ledger:
        if node.name == name:
            return node
    raise SlurmError(
        "unknown", f"Slurm has no node {name}", "set SLURMD_NODENAME, or the node's NodeHostName"
    )


def devices_of(report: Report) -> tuple[str, ...]:
    """The serial numbers that the round's findings carry (`data["serials"]`)."""
    found: dict[str, None] = {}
    for finding in report.findings:
        listed = finding.data.get("serials", ())
        if isinstance(listed, (list, tuple)):
            found.update(dict.fromkeys(str(serial) for serial in listed if serial))
    return tuple(found)


def _keep(paths: Paths, record: Record) -> None:
    """A full disk costs the automatic return and not the drain."""
    try:
        records.save(paths, record)
    except OSError as error:
        log.error("record-not-kept", node=record.node, why=error)
