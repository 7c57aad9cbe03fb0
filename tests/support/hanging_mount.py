"""A FUSE mount whose server never says a word: whoever looks at it hangs until he is killed."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MNT_DETACH = 2


@contextmanager
def hanging_mount(path: Path) -> Iterator[None]:
    """Mount it over a file or a folder, open to everybody; skips the test where that is not possible."""
    try:
        fd = os.open("/dev/fuse", os.O_RDWR)
    except OSError:
        pytest.skip("no FUSE here")
    mode = "40000" if path.is_dir() else "100000"
    options = f"fd={fd},rootmode={mode},user_id=1000,group_id=1000,allow_other"
    libc = ctypes.CDLL(None)
    try:
        if libc.mount(b"evil", os.fsencode(path), b"fuse", 0, options.encode()) != 0:
            pytest.skip("no mounts here")
        yield
    finally:
        os.close(fd)
        libc.umount2(os.fsencode(path), MNT_DETACH)
