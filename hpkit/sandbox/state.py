"""What a sandbox remembers between two commands: `sandbox.json` in its folder, and where its folder is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from hpkit.errors import HpkitError
from hpkit.files import write_atomic
from hpkit.pids import Stamp
from hpkit.sandbox.ground import Account
from hpkit.sandbox.slurmconf import Settings

SCHEMA = "hpkit.sandbox/1"
FILE = "sandbox.json"


class State(NamedTuple):
    """`token` marks the daemons' environment, `processes` are the daemons by name, `started` is wall time."""

    folder: str
    token: str
    started: float
    settings: Settings
    account: Account
    python: str
    slurm: str
    proctrack: str
    tools: Mapping[str, str]
    processes: Mapping[str, Stamp]
    ready: bool = False

    @property
    def conf(self) -> str:
        """The path of slurm.conf."""
        return f"{self.folder}/etc/slurm.conf"

    @property
    def slurm_bin(self) -> str:
        """The folder of scontrol and the other commands."""
        return os.path.dirname(self.tools["scontrol"])

    @property
    def hook_main(self) -> str:
        """hpkit's own hook program, in this sandbox's copy."""
        return f"{self.folder}/lib/hpkit/start.py"

    def node(self, name: str) -> str:
        """A node's folder."""
        return f"{self.folder}/nodes/{name}"


def default_folder() -> str:
    """HPKIT_SANDBOX, else a folder below /var/tmp (every user may enter it), of who typed the command, also by sudo."""
    user = os.environ.get("SUDO_UID", "") if os.geteuid() == 0 else ""
    return os.environ.get("HPKIT_SANDBOX", "") or f"/var/tmp/hpkit-sandbox-{user or os.geteuid()}"


def save(state: State) -> None:
    """Write sandbox.json, whole or not at all."""
    document: dict[str, Any] = {"schema": SCHEMA, **state._asdict()}
    for name in ("settings", "account"):
        document[name] = document[name]._asdict()
    document["processes"] = {name: list(stamp) for name, stamp in state.processes.items()}
    write_atomic(os.path.join(state.folder, FILE), json.dumps(document, indent=1) + "\n", durable=False)


def exists(folder: str) -> bool:
    """Whether a sandbox was started in this folder and not taken down."""
    return os.path.isfile(os.path.join(folder, FILE))


def load(folder: str) -> State:
    """The state of the sandbox in a folder; raises HpkitError when there is none."""
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            found: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        raise HpkitError(f"no sandbox in {folder}", "start one with: hpkit sandbox up") from None
    except (OSError, ValueError) as error:
        raise HpkitError(f"the sandbox's state cannot be read: {error}") from error
    if found.pop("schema", "") != SCHEMA:
        raise HpkitError(f"{folder}/{FILE} was written by another version of hpkit")
    found["settings"] = Settings(**found["settings"])
    found["account"] = Account(**found["account"])
    found["processes"] = {name: Stamp(*pair) for name, pair in found["processes"].items()}
    return State(**found)
