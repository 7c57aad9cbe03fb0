"""The drain record of a node that lost its files at a reboot, made again from the token in its drain reason.

A healthy node asks Slurm nothing, so a diskless one without a record asks once in each boot.
"""

from __future__ import annotations

from collections.abc import Callable

from hpkit import files, log
from hpkit.config import Config
from hpkit.errors import SlurmError
from hpkit.model import Clock
from hpkit.node import record as records
from hpkit.paths import Paths
from hpkit.policy.returning import Record, rebuilt
from hpkit.slurm.client import Client, Node

ROOT = "root"


def adopt(connect: Callable[[], Client], paths: Paths, config: Config, clock: Clock, node: str) -> bool:
    """Make the record of this node again if its drain is hpkit's and tells enough; whether there is one now.

    Call it without a record. At most two calls, in one round of a boot; a round without an answer does not count.
    """
    if not (config.drain.diskless and config.mode == "enforce" and clock.boot_id):
        return False
    if files.read_small(_asked(paths)) == clock.boot_id.encode():
        return False
    try:
        client = connect()
        held = from_drain(client, client.node(node), clock.wall)
        if held is not None:
            records.save(paths, held)
            log.info("record-rebuilt", node=node, reason=held.reason)
        files.ensure_dir(paths.run)
        files.write_atomic(_asked(paths), clock.boot_id, durable=False)
    except (SlurmError, OSError) as error:
        log.warning("record-not-rebuilt", node=node, why=error)
        return records.load(paths) is not None
    return held is not None


def from_drain(client: Client, node: Node, now: float) -> Record | None:
    """The record that the node's drain reason tells; None when it tells none, or when somebody else set it.

    Only root, or the user that slurmctld runs as (who owns the reason once Slurm has appended to it), is believed: an
    operator of the cluster can write any text. Asks Slurm only when it was not root; raises SlurmError.
    """
    held = rebuilt(node, now)
    if held is None or node.reason_by == ROOT:
        return held
    own = client.config().get("SlurmUser", "").partition("(")[0]
    if own and node.reason_by == own:
        return held
    log.info("token-not-trusted", node=node.name, by=node.reason_by, reason=node.reason)
    return None


def _asked(paths: Paths) -> str:
    """Holds the id of the boot in which Slurm was asked: not every /run is empty after a reboot."""
    return f"{paths.run}/drain-asked"
