"""Guards for every test: a home of its own, none of this machine's configuration or state, no network."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STEERING = ("HPKIT_", "SLURM_", "SLURMD_", "SINFO_", "SQUEUE_", "SBATCH_", "SRUN_", "XDG_")
OURS = ("/etc/hpkit", "/run/hpkit", "/var/run/hpkit", "/var/lib/hpkit")
KEPT = ("HPKIT_SLURM_BIN",)  # which Slurm of this machine the clusters of the tests are made of
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@pytest.fixture(autouse=True)
def guarded(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty home, an environment that steers nothing, and no connection that leaves this machine."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(STEERING) and name not in KEPT:
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "TERM", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(socket.socket, "connect", _only_here(socket.socket.connect))
    yield home


def _only_here(connect: Any) -> Any:
    def guarded_connect(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in (
            "127.0.0.1",
            "::1",
            "localhost",
        ):
            raise AssertionError(f"a test must not reach {address[0]}")
        return connect(self, address)

    return guarded_connect


def _guard_files(event: str, args: tuple[Any, ...]) -> None:
    """An installed hpkit is not there for our own process: its files cannot be read, and writing them fails a test."""
    if event == "open":
        writing = bool(args[2] & WRITING) if isinstance(args[2], int) else False
    elif event in ("os.mkdir", "os.rename", "os.remove"):
        writing = True
    elif event in ("os.listdir", "os.scandir"):
        writing = False
    else:
        return
    path = args[0]
    if isinstance(path, (str, bytes)) and os.fsdecode(path).startswith(OURS):
        if writing:
            raise AssertionError(f"a test must not touch {os.fsdecode(path)}")
        raise FileNotFoundError(2, "No such file or directory", path)


sys.addaudithook(_guard_files)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first: what needs a real cluster comes last."""
    items.sort(key=lambda item: item.get_closest_marker("slurm") is not None)
