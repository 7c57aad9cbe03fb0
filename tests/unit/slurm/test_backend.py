"""Which backend is chosen, and why; pyslurm is a package made here, scontrol a script that tells a version."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hpkit import log
from hpkit.config import SlurmConfig, from_tree
from hpkit.slurm import backend, connect
from hpkit.slurm.backend import Choice, choose
from hpkit.slurm.commands import Commands
from hpkit.slurm.pyslurm_client import Pyslurm
from tests.support.fake_pyslurm import plant
from tests.support.slurm_tools import Tools


@pytest.fixture
def here(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages, and a scontrol of 25.11."""
    tools.say("scontrol", "slurm 25.11.7\n")
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(backend, "places", lambda: (str(tmp_path / "none"), str(folder)))
    monkeypatch.setattr(backend, "_decided", {})
    return folder


def config(tools: Tools, wanted: str = "auto") -> SlurmConfig:
    return SlurmConfig(bin=str(tools.folder), timeout_s=10, backend=wanted)


@pytest.mark.parametrize("wanted", ["auto", "pyslurm"])
def test_it_is_chosen_where_it_fits(tools: Tools, here: Path, wanted: str) -> None:
    plant(here)
    choice = choose(config(tools, wanted), trusted_only=False)
    assert choice == Choice("pyslurm", "pyslurm and Slurm are both 25.11", folder=str(here))
    assert tools.calls == ["scontrol --version"]
    assert choose(config(tools, wanted)._replace(timeout_s=3), trusted_only=False) == choice
    assert tools.calls == ["scontrol --version"]
    assert isinstance(connect(config(tools, wanted), trusted_only=False), Pyslurm)


@pytest.mark.parametrize(
    ("wanted", "name", "refused"),
    [("auto", "commands", False), ("pyslurm", "commands", True), ("commands", "commands", False)],
)
def test_where_there_is_none(tools: Tools, here: Path, wanted: str, name: str, refused: bool) -> None:
    choice = choose(config(tools, wanted), trusted_only=False)
    assert (choice.name, choice.refused, choice.folder) == (name, refused, "")
    assert tools.calls == []
    assert type(connect(config(tools, wanted), trusted_only=False)) is Commands


def test_commands_means_commands(tools: Tools, here: Path) -> None:
    plant(here)
    choice = choose(config(tools, "commands"), trusted_only=False)
    assert choice == Choice("commands", 'set by [slurm] backend = "commands"')
    assert tools.calls == []


@pytest.mark.parametrize(
    ("info", "slurm", "fits"),
    [
        ("pyslurm-25.11.2.dist-info", "slurm 25.11.7", True),
        ("pyslurm-25.5.0.dist-info", "slurm 25.05.3", True),
        ("pyslurm-23.11.0-py3.11.egg-info", "slurm-wlm 23.11.4", True),
        ("pyslurm-22.5.1.egg-info", "slurm-wlm 22.05.8", True),
        ("pyslurm-25.11.2.dist-info", "slurm 25.05.1", False),
        ("pyslurm-25.11.2.dist-info", "slurm 26.05.3", False),
    ],
)
def test_its_first_two_numbers_must_be_slurms(
    tools: Tools, here: Path, info: str, slurm: str, fits: bool
) -> None:
    plant(here, info=info)
    tools.say("scontrol", slurm + "\n")
    choice = choose(config(tools, "pyslurm"), trusted_only=False)
    assert (choice.name == "pyslurm", choice.refused) == (fits, not fits)
    if not fits:
        version = slurm.split()[1][:5]
        assert choice.why == f"pyslurm is made for Slurm 25.11, this is Slurm {version}"


def test_a_folder_without_metadata_is_no_installation(tools: Tools, here: Path) -> None:
    plant(here, info="pyslurm_tools-1.0.dist-info")
    assert choose(config(tools), trusted_only=False).why == "pyslurm is not installed for this Python"


def test_an_unknown_version_is_not_remembered(tools: Tools, here: Path) -> None:
    plant(here)
    tools.say("scontrol", "", "scontrol: fatal: Could not establish a configuration source", 1)
    choice = choose(config(tools, "pyslurm"), trusted_only=False)
    assert (choice.name, choice.refused) == ("commands", True)
    assert "Could not establish a configuration source" in choice.why
    tools.say("scontrol", "slurm 25.11.7\n")
    assert choose(config(tools, "pyslurm"), trusted_only=False).name == "pyslurm"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own a trusted file")
def test_root_uses_nothing_that_others_could_change(
    tools: Tools, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(here)
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    assert choose(config(tools), trusted_only=True).name == "pyslurm"
    inner = here / "pyslurm" / "core"
    inner.mkdir()
    (inner / "node.so").write_text("")
    for path, mode in ((inner / "node.so", 0o666), (inner, 0o777), (here, 0o777)):
        before = path.stat().st_mode
        path.chmod(mode)
        monkeypatch.setattr(backend, "_decided", {})
        choice = choose(config(tools, "pyslurm"), trusted_only=True)
        assert (choice.name, choice.refused) == ("commands", True)
        assert choice.why.startswith(f"root does not use pyslurm: {path} is writable")
        assert choose(config(tools), trusted_only=False).name == "pyslurm"
        path.chmod(before)
    python = here / "python"
    python.write_text("")
    os.chown(python, 1, 1)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(backend, "_decided", {})
    assert "belongs to uid 1" in choose(config(tools), trusted_only=True).why


def test_a_demand_in_vain_is_logged_once(tools: Tools, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, object]] = []
    monkeypatch.setattr(log, "warning", lambda event, **fields: lines.append((event, fields["why"])))
    plant(here)
    tools.say("scontrol", "slurm 22.05.8\n")
    for wanted in ("auto", "pyslurm", "pyslurm"):
        connect(config(tools, wanted), trusted_only=False)
    assert lines == [("backend", "pyslurm is made for Slurm 25.11, this is Slurm 22.05")]


def test_the_places_are_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", "here", "/site", *sys.path])
    found = backend.places()
    assert all(map(os.path.isabs, found))
    assert "/site" in found
    assert found[0] == str(Path(backend.__file__).parents[2])


def test_the_configuration_knows_three_words() -> None:
    assert from_tree({"slurm": {"backend": "pyslurm"}})[1] == ()
    assert from_tree({"slurm": {"backend": "rest"}})[1] == (
        "slurm.backend: expected one of auto, commands, pyslurm, found 'rest'",
    )
