"""Which Slurm a sandbox is made of, and what its users and nodes get to know of it."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from hpkit import proc
from hpkit.config import from_tree
from hpkit.sandbox import ground, install
from hpkit.sandbox.ground import Account
from hpkit.sandbox.slurmconf import Settings
from hpkit.sandbox.state import State
from hpkit.slurm import backend
from hpkit.toml import load
from tests.support.fake_pyslurm import plant


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def state(folder: Path, tools: dict[str, str]) -> State:
    return State(
        str(folder), "", 0.0, Settings(), Account("u", 1, 1), "/usr/bin/python3", "25.11", "cgroup", tools, {}
    )


def test_the_named_folders_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = programs(tmp_path / "bin", "scontrol", "sbatch", "setpriv")
    other = programs(tmp_path / "sbin", "slurmd", "slurmctld", "munged")
    monkeypatch.setenv("HPKIT_SLURM_BIN", f"{one}:{other}")
    missing = ground.missing_tools()
    assert not {"scontrol", "sbatch", "slurmd", "slurmctld", "munged", "setpriv"} & set(missing)
    monkeypatch.setattr(ground, "TOOLS", ("scontrol", "slurmd"))
    assert ground.find_tools() == {"scontrol": f"{one}/scontrol", "slurmd": f"{other}/slurmd"}
    monkeypatch.delenv("HPKIT_SLURM_BIN")
    assert str(tmp_path) not in ground.search_path()
    assert ground.search_path() == f"{proc.PATH}:/opt/slurm/bin:/opt/slurm/sbin"


def test_users_find_the_same_slurm() -> None:
    assert ground.path_with({"scontrol": "/usr/bin/scontrol", "slurmd": "/usr/sbin/slurmd"}) == proc.PATH
    tools = {
        "slurmd": "/opt/slurm/sbin/slurmd",
        "scontrol": "/opt/slurm/bin/scontrol",
        "srun": "/opt/slurm/bin/srun",
    }
    assert ground.path_with(tools) == f"/opt/slurm/sbin:/opt/slurm/bin:{proc.PATH}"


def test_nodes_find_the_same_slurm(tmp_path: Path) -> None:
    text = install.node_config(state(tmp_path, {"scontrol": "/opt/slurm/bin/scontrol"}))
    tree = load(io.BytesIO(text.encode()))
    config, problems = from_tree(tree)
    assert problems == ()
    assert (config.slurm.bin, config.slurm.conf) == ("/opt/slurm/bin", f"{tmp_path}/etc/slurm.conf")


@pytest.mark.parametrize("there", [True, False])
def test_nodes_have_pyslurm_when_we_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    packages, lib = tmp_path / "packages", tmp_path / "lib"
    lib.mkdir()
    if there:
        plant(packages)
    monkeypatch.setattr(backend, "places", lambda: (str(packages),))
    install.pyslurm(str(lib))
    assert sorted(os.listdir(lib)) == (["pyslurm", "pyslurm-25.11.2.dist-info"] if there else [])
    found = backend.installed([str(lib)])
    assert (found is not None) is there
