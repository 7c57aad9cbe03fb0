"""Slurm, behind one protocol (client.py); `connect` gives the backend."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpkit.config import SlurmConfig
    from hpkit.slurm.client import Client


def connect(config: SlurmConfig, *, trusted_only: bool = True) -> Client:
    """A client for the cluster that `config` names; nothing is asked yet.

    With `trusted_only` (root hooks) only the configuration counts and a tool that a non-root user could change is
    refused; without it SLURM_CONF of the environment is used when the configuration names no file.
    """
    from hpkit.slurm.backend import choose

    choice = choose(config, trusted_only=trusted_only)
    if choice.refused:
        _warn(choice.why)
    if choice.name == "pyslurm":
        from hpkit.slurm.pyslurm_client import Pyslurm

        return Pyslurm(config, trusted_only=trusted_only, folder=choice.folder)
    from hpkit.slurm.commands import Commands

    return Commands(config, trusted_only=trusted_only)


@cache
def _warn(why: str) -> None:
    """Log once that pyslurm was demanded in vain."""
    from hpkit import log

    log.warning("backend", demanded="pyslurm", used="commands", why=why)
