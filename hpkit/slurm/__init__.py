"""Slurm, behind one protocol (client.py); `connect` gives the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpkit.config import SlurmConfig
    from hpkit.slurm.client import Client


def connect(config: SlurmConfig, *, trusted_only: bool = True) -> Client:
    """A client for the cluster that `config` names; nothing is asked yet.

    With `trusted_only` (root hooks) only the configuration counts and a tool that a non-root user could change is
    refused; without it SLURM_CONF of the environment is used when the configuration names no file.
    """
    from hpkit.slurm.commands import Commands

    return Commands(config, trusted_only=trusted_only)
