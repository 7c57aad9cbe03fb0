"""gres.conf of a node whose slurmd has its configuration from slurmctld: where slurmd links it."""

from __future__ import annotations

import pytest

from hpkit.config import SlurmConfig, WantConfig
from hpkit.want import resolve
from tests.support.machine import Machine

CACHED = {"/run/slurm/conf/gres.conf": "Name=gpu File=/dev/nvidia[0-3]\n"}
OWN = {"/etc/slurm/gres.conf": "Name=gpu File=/dev/nvidia[0-1]\n"}


@pytest.mark.parametrize(
    ("conf", "files", "gpus"),
    [
        ("", CACHED, 4),
        ("/run/slurm/conf/slurm.conf", CACHED, 4),
        ("", {**CACHED, **OWN}, 2),  # Slurm, too, takes /etc/slurm first
        ("/run/slurm/conf/slurm.conf", {**CACHED, **OWN}, 4),
        ("", {}, None),
    ],
)
def test_gres_conf(conf: str, files: dict[str, str], gpus: int | None) -> None:
    assert resolve(WantConfig(), SlurmConfig(conf=conf), Machine(files)).gpus == gpus
