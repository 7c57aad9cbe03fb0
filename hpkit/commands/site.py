"""Where a command finds this node's files and the site's configuration."""

from __future__ import annotations

import os
from typing import NamedTuple

from hpkit import config
from hpkit.paths import Paths, node_root, paths


class Site(NamedTuple):
    """A node's own files (`root` is "" on a real machine) and its configuration."""

    root: str
    paths: Paths
    config: config.Config


def site() -> Site:
    """This node and its configuration; raises ConfigError. HPKIT_CONFIG replaces hpkit.toml, HPKIT_ROOT the machine."""
    root = node_root()
    here = paths(root)
    return Site(root, here, config.load(here.etc, explicit=explicit_file(), trusted_only=trusted_only()))


def explicit_file() -> str:
    """The file that replaces hpkit.toml, "" when the user named none."""
    return os.environ.get("HPKIT_CONFIG", "")


def trusted_only() -> bool:
    """As root, nothing is obeyed that another user could have written."""
    return os.geteuid() == 0
