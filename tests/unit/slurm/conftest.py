"""Programs in Slurm's place, for the tests of the client over commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.slurm_tools import Tools


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.setattr("hpkit.slurm.commands.SECOND_S", 0.0)
    return Tools(tmp_path)
