"""TOML is read on every Python, also without site-packages as the hooks run."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from hpkit import toml

TOP = Path(__file__).resolve().parents[3]
SCRIPT = "import io, sys; sys.path.insert(0, sys.argv[1]); from hpkit import toml; print(toml.load(io.BytesIO(b'a = 1')))"


def test_a_document() -> None:
    assert toml.load(io.BytesIO(b'[a]\nb = ["c"]\n')) == {"a": {"b": ["c"]}}


@pytest.mark.parametrize("data", [b"a =", b"\xff", b"a = 1\na = 2\n"])
def test_what_is_no_toml(data: bytes) -> None:
    with pytest.raises(ValueError):
        toml.load(io.BytesIO(data))


def test_without_site_packages() -> None:
    argv = [sys.executable, "-I", "-S", "-c", SCRIPT, str(TOP)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("{'a': 1}\n", "")
