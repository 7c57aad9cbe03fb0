"""How hp-srun reaches Slurm: a backend that cannot be had is told in one line, and the commands go on."""

from __future__ import annotations

import pytest

from hpkit.config import SlurmConfig
from hpkit.resume.run import reach
from hpkit.slurm.commands import Commands


@pytest.mark.parametrize("backend, told", [("pyslurm", 1), ("auto", 0), ("commands", 0)])
def test_a_backend_that_cannot_be_had(backend: str, told: int, capfd: pytest.CaptureFixture[str]) -> None:
    client = reach(SlurmConfig(backend=backend, bin="/no/such"), {"PATH": "/no/such"})
    assert isinstance(client, Commands)
    lines = [line for line in capfd.readouterr().err.splitlines() if "pyslurm" in line]
    assert len(lines) == told
