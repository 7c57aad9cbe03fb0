"""One lock orders the hooks of a node."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path

from hpkit import proc
from hpkit.node import lock
from hpkit.paths import Paths


def test_free_held_and_free_again(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    with lock.acquire(paths, 0.0) as first:  # type: ignore[union-attr]  # it is free
        assert first.waited is False
        assert lock.acquire(paths, 0.0) is None
    with lock.acquire(paths, 0.0) as second:  # type: ignore[union-attr]  # it is free
        assert second.waited is False
    second.release()


def test_who_waited_knows_it(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    first = lock.acquire(paths, 0.0)
    assert first is not None
    threading.Timer(0.1, first.release).start()
    second = lock.acquire(paths, time.monotonic() + 30)
    assert second is not None and second.waited
    second.release()


def test_users_cannot_open_it(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    with lock.acquire(paths, 0.0):  # type: ignore[union-attr]  # it is free
        assert stat.S_IMODE(os.stat(f"{paths.run}/lock").st_mode) == 0o600


def test_a_dead_holder_holds_nothing(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path))
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from hpkit.node import lock; from hpkit.paths import Paths;"
        "held = lock.acquire(Paths(sys.argv[1]), 0.0); os.kill(os.getpid(), 9)"
    )
    here = str(Path(lock.__file__).parents[2])
    ran = proc.run((sys.executable, "-I", "-c", code, str(tmp_path), here), timeout_s=60)
    assert ran.rc == -9
    held = lock.acquire(paths, 0.0)
    assert held is not None
    held.release()


def test_a_child_does_not_inherit_it(tmp_path: Path) -> None:
    """A tool that is left behind must not keep the lock."""
    paths = Paths(str(tmp_path))
    held = lock.acquire(paths, 0.0)
    assert held is not None
    helper = proc.detach(("sleep", "60"))
    try:
        held.release()
        again = lock.acquire(paths, 0.0)
        assert again is not None
        again.release()
    finally:
        proc.end(helper)
