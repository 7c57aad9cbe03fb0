"""What this node should have and be, resolved from the site's config, the catalogue and gres.conf."""

from __future__ import annotations

from typing import NamedTuple


class Want(NamedTuple):
    """Expectations of one node; None means that nobody said. `source` tells where `gpus` came from."""

    gpus: int | None = None
    gpus_source: str = ""
    mounts: tuple[str, ...] = ()
    instance_type: str = ""
