"""Bring this node back when its drain record says that enough was proven; called by the background round."""

from __future__ import annotations

from hpkit import log
from hpkit.config import Config
from hpkit.errors import SlurmError
from hpkit.model import Clock, Report
from hpkit.node import record as records
from hpkit.node.remedy import SILENT, Outcome, devices_of, pick, step_back
from hpkit.paths import Paths
from hpkit.policy import budget, ownership
from hpkit.policy.returning import REBUILT, Here, Record, confirmed, counted, may_return
from hpkit.slurm.client import Client, Node
from hpkit.slurm.states import REBOOTING, unknown_words

# An older drain was looked at before: a budget that is cut, or a cluster that shrinks, brings no bad node back.
FRESH_S = 300.0


def consider(
    client: Client,
    report: Report,
    paths: Paths,
    config: Config,
    clock: Clock,
    node: str,
    *,
    instance_id: str = "",
) -> Outcome:
    """Count this round for the drain record and undrain the node when nothing is missing; never raises for Slurm.

    Kinds: "none" (no record), "observe", "no-answer", "lost" (the drain is not ours any more: the record is dropped),
    "no-budget" (too many were drained before this one: stepped back), "waiting" (`text` says for what), "returned",
    "failed". At most three calls.
    """
    record = records.load(paths)
    if record is None:
        return Outcome("none", "no drain record")
    if config.mode != "enforce":
        return Outcome("observe", "changes nothing")
    record = _count(paths, record, report)
    try:
        return _consider(client, report, paths, config, clock, record._replace(node=node), instance_id)
    except SlurmError as error:
        return Outcome("no-answer" if error.kind in SILENT else "failed", f"{error.kind}: {error.message}")


def _consider(
    client: Client,
    report: Report,
    paths: Paths,
    config: Config,
    clock: Clock,
    record: Record,
    instance_id: str,
) -> Outcome:
    ledger = client.nodes()
    node = pick(ledger, record.node)
    if not ownership.ours(node, record.reason):
        return _lost(paths, node)
    # A reason that Slurm has appended to carries a later time than our drain: only our own text is compared.
    fresh = node.reason == record.reason and clock.wall - record.at <= max(
        FRESH_S, 3 * config.hooks.interval_s
    )
    if fresh and (late := budget.overdrawn(node, ledger, config.drain)):
        return step_back(client, paths, record.node, late)
    if record.state != REBUILT:
        record = _keep(paths, record, confirmed(record, clock.wall))
    missing = _slurm_missing(node) or may_return(
        record, report, Here(clock.boot_id, instance_id, devices_of(report))
    )
    if missing:
        return Outcome("waiting", missing)
    client.undrain(record.node)
    records.clear(paths)
    log.audit(
        "returned", node=record.node, reason=record.reason, action=record.action.value, passes=record.passes
    )
    return Outcome("returned", f"{record.check} passes again")


def _count(paths: Paths, record: Record, report: Report) -> Record:
    """The record with this round counted; when that cannot be kept, the next round counts anew."""
    return _keep(paths, record, counted(record, report))


def _keep(paths: Paths, before: Record, now: Record) -> Record:
    """`now`, kept where it differs; a full disk costs what is new in it."""
    if now != before:
        try:
            records.save(paths, now)
        except OSError as error:
            log.error("record-not-kept", node=now.node, why=error)
    return now


def _lost(paths: Paths, node: Node) -> Outcome:
    """Somebody else brought the node back or took it over: from now on it is theirs."""
    records.clear(paths)
    text = ownership.foreign(node) or "the node is in service"
    log.info("drain-not-ours", node=node.name, why=text)
    return Outcome("lost", text)


def _slurm_missing(node: Node) -> str:
    """What must happen in Slurm first: undrain leaves DOWN as it is, and a reboot must end by itself."""
    if node.flags & REBOOTING:
        return "the end of a reboot"
    if "DOWN" in node.flags:
        return "Slurm itself, which has the node DOWN"
    if unknown := unknown_words(node.flags):
        return f"a person: the node's state {', '.join(sorted(unknown))} is not known to this hpkit"
    if foreign := ownership.foreign(node):
        return f"a person: {foreign}"
    return ""
