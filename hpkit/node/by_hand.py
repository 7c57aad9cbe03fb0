"""A person brought this node back: what it failed for is accepted, so that only what is wrong now can drain it again.

Without this a failure that is kept until a new boot (an Xid that scrolled away) would drain the node again in the next
round, and nobody could ever bring it back without a reboot.
"""

from __future__ import annotations

from collections.abc import Callable

from hpkit import log, past
from hpkit.errors import SlurmError
from hpkit.model import Clock, Report
from hpkit.node import record as records
from hpkit.paths import Paths
from hpkit.policy.returning import DRAINED, INTENDED, Record
from hpkit.slurm.client import Client
from hpkit.slurm.parse import moment
from hpkit.slurm.states import drained

CLOCKS_S = 2.0  # the clocks of this node and of slurmctld may differ by this much


def accept(
    connect: Callable[[], Client], paths: Paths, clock: Clock, node: str, last: Callable[[], Report | None]
) -> bool:
    """Accept the baseline anew when the node has a confirmed drain record but is in service; whether that was done.

    Slurm is asked only when there is such a record; without an answer nothing is accepted, nor when Slurm may have lost
    the drain itself. `last` gives the last report, whose device counters become the baseline. Raises OSError when that
    cannot be kept: then the record stays.
    """
    record = records.load(paths)
    if record is None or record.state == INTENDED or record.node != node:
        return False
    try:
        if not _brought_back(connect(), record):
            return False
    except SlurmError as error:
        log.info("return-by-hand-not-known", node=node, why=error)
        return False
    before, report = past.load(paths), last()
    counters = past.counters_of(report.findings) if report else dict(before.counters)
    past.save(paths, past.accept(past.begin(before, clock), "operator", clock, counters))
    records.clear(paths)
    log.audit("returned-by-hand", node=node, reason=record.reason, check=record.check)
    return True


def _brought_back(client: Client, record: Record) -> bool:
    """Whether the node is in service, and not because slurmctld began anew from a state without the drain.

    A drain that is not settled may be lost so. A backup does not tell when it took over.
    """
    seen = client.node(record.node)
    if "DOWN" in seen.flags or drained(seen.flags) is not False:
        return False
    if record.state != DRAINED:
        return True
    told = client.config()
    began = moment(told.get("BOOT_TIME", ""))
    return began is not None and began < record.at - CLOCKS_S and "SlurmctldHost[1]" not in told
