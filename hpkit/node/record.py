"""The drain record of this node in /var/lib/hpkit: what was found, and what must happen before the node may return."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hpkit import files
from hpkit.host import Host
from hpkit.model import Action
from hpkit.paths import Paths

if TYPE_CHECKING:
    from hpkit.policy.returning import Record

SCHEMA = "hpkit.record/1"
LIMIT = 65536


def path(paths: Paths) -> str:
    """Where the record is."""
    return f"{paths.lib}/record.json"


def load(paths: Paths) -> Record | None:
    """The record; None when there is none or it cannot be understood, and then the node does not return by itself."""
    document = files.read_json(path(paths), LIMIT)
    try:
        return None if document is None else _from(document)
    except files.BROKEN:
        return None


def save(paths: Paths, record: Record) -> None:
    """Store it, whole or not at all; raises OSError."""
    files.ensure_dir(paths.lib)
    document = {"schema": SCHEMA, **record._asdict(), "action": record.action.value}
    files.write_atomic(path(paths), json.dumps(document, indent=1) + "\n")


def clear(paths: Paths) -> bool:
    """Remove the record; False when there was none."""
    return files.remove(path(paths))


def instance_id(host: Host) -> str:
    """What changes when the machine behind a node name is replaced: the instance id, else one of the board's UUID.

    Amazon EC2 (Nitro) gives the instance id as the board's asset tag. The UUID is for root's eyes; the record is for
    all: only a digest of it is told. "" when nothing is known.
    """
    from hashlib import sha256  # costs a shared library, and most rounds do not need it

    folder = "/sys/devices/virtual/dmi/id"
    for name in ("board_asset_tag", "product_uuid"):
        data = host.read(f"{folder}/{name}", 256)
        text = data.decode("ascii", "replace").strip() if isinstance(data, bytes) else ""
        if text.startswith("i-"):
            return text
        if text and name == "product_uuid":
            return f"uuid-{sha256(text.encode()).hexdigest()[:16]}"
    return ""


def _from(document: Any) -> Record:
    """The record in a document; raises for anything that `save` did not write."""
    from hpkit.policy.returning import Record  # nearly every round finds no record

    if document["schema"] != SCHEMA:
        raise ValueError(f"not a {SCHEMA} document")
    texts = {key: document[key] for key in _TEXTS}
    numbers = {key: document[key] for key in ("at", "reset_at")}
    lists = {key: document[key] for key in ("checks", "devices")}
    if not all(
        isinstance(value, str) for value in (*texts.values(), *(v for each in lists.values() for v in each))
    ):
        raise TypeError("a text is no text")
    if not all(type(value) in (int, float) for value in (*numbers.values(), document["passes"])):
        raise TypeError("a number is no number")
    return Record(
        **texts,
        at=float(numbers["at"]),
        reset_at=float(numbers["reset_at"]),
        checks=tuple(lists["checks"]),
        devices=tuple(lists["devices"]),
        action=Action(document["action"]),
        passes=int(document["passes"]),
    )


_TEXTS = ("node", "boot_id", "instance_id", "reason", "check", "subject", "message", "state")
