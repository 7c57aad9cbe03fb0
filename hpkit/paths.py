"""Where hpkit keeps its own files. `root` is empty on a real machine and a sandbox node's folder otherwise."""

from __future__ import annotations

import os
from typing import NamedTuple


class Paths(NamedTuple):
    """hpkit's own files on one node; `base` is put before each of them."""

    base: str = ""

    @property
    def etc(self) -> str:
        """hpkit.toml and conf.d."""
        return f"{self.base}/etc/hpkit"

    @property
    def run(self) -> str:
        """State of this boot: verdict, lock, last reports, stuck processes. Root-owned, 0755."""
        return f"{self.base}/run/hpkit"

    @property
    def suspects(self) -> str:
        """Users' suspect notes: mode 1733."""
        return f"{self.base}/run/hpkit/suspects"

    @property
    def lib(self) -> str:
        """State that survives a boot: drain record, baselines, last good configuration. Root-owned, 0755."""
        return f"{self.base}/var/lib/hpkit"


def paths(root: str = "") -> Paths:
    """The paths for a node root: a sandbox node keeps the machine's files under `root`/root."""
    return Paths(f"{root}/root" if root else "")


def node_root(given: str | None = None) -> str:
    """The node root: `given`, else HPKIT_ROOT with %n replaced by SLURMD_NODENAME, else "" (the real machine).

    Root hooks pass `given` and never read HPKIT_ROOT: a user's environment must not steer them.
    """
    if given is not None:
        return given
    return os.environ.get("HPKIT_ROOT", "").replace("%n", os.environ.get("SLURMD_NODENAME", ""))
