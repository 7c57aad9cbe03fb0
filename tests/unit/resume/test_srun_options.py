"""The table of srun's options against the srun that is installed here, and against help texts of plugins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hpkit.resume.srun_options import NONE, OPTIONAL, REQUIRED, from_help, known

CONF = "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=ALL\n"
PLUGINS = """\
Usage: srun [OPTIONS(0)...]
  -I, --immediate[=secs]      exit if resources not available in "secs"
  -B  --extra-node-info=S[:C[:T]]  combine request of sockets per node,
      --contiguous            demand a contiguous range of nodes

Options provided by plugins:
      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH
                              the image to use for the container filesystem
      --container-mount-home  bind mount the user's home directory
"""


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("nodes", REQUIRED),
        ("container", REQUIRED),
        ("kill-on-bad-exit", OPTIONAL),
        ("overlap", OPTIONAL),
        ("pty", OPTIONAL),  # none in 22.05, optional since 23.02
        ("label", NONE),
        ("segment", REQUIRED),  # since 24.05
        ("uid", REQUIRED),  # until 22.05
    ],
)
def test_known_long_options(name: str, takes: str) -> None:
    assert known().long[name] == takes


def test_short_letters_lead_to_long_names() -> None:
    table = known()
    assert all(name in table.long for name in table.short.values())
    assert (table.letter("N"), table.letter("K"), table.letter("l"), table.letter("y")) == (
        REQUIRED,
        OPTIONAL,
        NONE,
        "",
    )


def test_help_of_plugins() -> None:
    table = from_help(PLUGINS)
    assert table.long == {
        "immediate": OPTIONAL,
        "extra-node-info": REQUIRED,
        "contiguous": NONE,
        "container-image": REQUIRED,
        "container-mount-home": NONE,
    }
    assert table.short == {"I": "immediate", "B": "extra-node-info"}


def test_the_installed_srun_agrees(tmp_path: Path) -> None:
    srun = shutil.which("srun")
    if srun is None:
        pytest.skip("no srun here")
    conf = tmp_path / "slurm.conf"
    conf.write_text(CONF)
    ran = subprocess.run(
        [srun, "--help"], env={"SLURM_CONF": str(conf)}, capture_output=True, text=True, check=True
    )
    shown, table = from_help(ran.stdout), known()
    assert len(shown.long) > 80
    missing = set(shown.long) - set(table.long)
    assert not missing
    for name, takes in shown.long.items():
        if takes == REQUIRED:
            assert table.long[name] != NONE, name
        if takes == OPTIONAL:
            assert table.long[name] == OPTIONAL, name
    assert {letter: table.short.get(letter) for letter in shown.short} == dict(shown.short)
