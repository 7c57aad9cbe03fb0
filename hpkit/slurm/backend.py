"""Which backend serves: Slurm's commands, or pyslurm where it is installed for the Slurm that is here.

pyslurm is looked for, never imported (see pyslurm_client.py).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

from hpkit import trust
from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError

PACKAGE = "pyslurm"
_INFO = re.compile(r"pyslurm-(\d+)\.(\d+)[^-]*(?:-py[\d.]+)?\.(?:dist|egg)-info\Z")


class Choice(NamedTuple):
    """The backend: `name` is "commands" or "pyslurm", `why` one line about it.

    `refused` when pyslurm was demanded and cannot be had. `folder` holds pyslurm where it serves.
    """

    name: str
    why: str
    refused: bool = False
    folder: str = ""


class Package(NamedTuple):
    """pyslurm as it is installed: the folder that holds it, and Slurm's (year, month) that it was made for."""

    folder: str
    made_for: tuple[int, int]


_decided: dict[tuple[SlurmConfig, bool], Choice] = {}


def choose(config: SlurmConfig, *, trusted_only: bool) -> Choice:
    """The backend for this configuration; decided once a process.

    pyslurm's first two numbers are those of the Slurm it was made for, and must be those of the scontrol that is here:
    both use the same library. With `trusted_only` (root hooks) neither Python nor the package may be changeable by a
    non-root user. While scontrol does not tell its version the commands are chosen, and the next call looks again.
    """
    if config.backend == "commands":
        return Choice("commands", 'set by [slurm] backend = "commands"')
    key = (config._replace(timeout_s=0.0), trusted_only)
    if key not in _decided:
        demanded = config.backend == PACKAGE
        try:
            _decided[key] = _decide(config, demanded, trusted_only)
        except SlurmError as error:
            return Choice("commands", f"Slurm's own version is not known: {error.message}", demanded)
    return _decided[key]


def _decide(config: SlurmConfig, demanded: bool, trusted_only: bool) -> Choice:
    """The choice for as long as we live; raises SlurmError when Slurm's version cannot be told now."""
    from hpkit.slurm.commands import Commands

    found = installed(places())
    if found is None:
        return Choice("commands", "pyslurm is not installed for this Python", demanded)
    if trusted_only and (why := loose(found.folder)):
        return Choice("commands", f"root does not use pyslurm: {why}", demanded)
    here = Commands(config, trusted_only=trusted_only).version_here()
    if here != found.made_for:
        text = f"pyslurm is made for Slurm {_dotted(found.made_for)}, this is Slurm {_dotted(here)}"
        return Choice("commands", text, demanded)
    return Choice(PACKAGE, f"pyslurm and Slurm are both {_dotted(here)}", folder=found.folder)


def places() -> tuple[str, ...]:
    """Where pyslurm may lie: beside hpkit, in this Python's own folder (hooks run without it), on its path."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    prefix = os.path.dirname(os.path.dirname(sys.executable))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    own = [f"{prefix}/{lib}/{version}/site-packages" for lib in ("lib", "lib64")]
    return tuple(dict.fromkeys((package, *own, *(path for path in sys.path if os.path.isabs(path)))))


def installed(folders: Iterable[str]) -> Package | None:
    """The first pyslurm in these folders, told by its metadata; None when there is none."""
    for folder in folders:
        if not os.path.isfile(f"{folder}/{PACKAGE}/__init__.py"):
            continue
        matches = (_INFO.match(name) for name in sorted(os.listdir(folder)))
        found = next((match for match in matches if match), None)
        if found:
            return Package(folder, (int(found[1]), int(found[2])))
    return None


def loose(folder: str) -> str:
    """What of Python or of the pyslurm in `folder` a non-root user could change, "" for nothing."""
    files = [sys.executable]
    for where, _, names in os.walk(os.path.join(folder, PACKAGE)):
        files += [where, *(os.path.join(where, name) for name in names)]
    return next((why for path in files if (why := trust.untrusted(path))), "")


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]:02d}"
