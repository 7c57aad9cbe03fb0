"""The scripts around the tests: what fails must fail them, whatever the environment holds."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOP / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("passed", "failed", "code", "made", "strict", "lenient"),
    [
        (5, 0, 0, True, 0, 0),
        (5, 1, 1, True, 1, 1),
        (5, 0, 2, True, 1, 1),  # interrupted: a report without a failure
        (0, 0, 5, True, 1, 1),  # nothing was collected
        (-1, 0, 137, True, 1, 1),
        (-1, 0, 0, False, 1, 0),  # a root that cannot be made
    ],
)
def test_what_fails_every_release(
    monkeypatch: pytest.MonkeyPatch,
    passed: int, failed: int, code: int, made: bool, strict: int, lenient: int,
) -> None:  # fmt: skip
    every = script("every_release")
    row = every.Row("24.11", "-", "-", passed, failed, 0, 1.0, made=made, code=code)
    monkeypatch.setattr(every, "releases", lambda: ["24.11"])
    monkeypatch.setattr(every, "own_release", lambda: "22.05")
    monkeypatch.setattr(every, "run", lambda name, words: row)
    assert (every.main([]), every.main(["--others"])) == (strict, lenient)


FIRST = [sys.executable, str(TOP / "scripts/first.py")]


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 7", 7), ("kill -TERM $$", 143), ("kill -INT $$", 130), ("read x; exit $x", 9)],
)
def test_the_first_process_ends_as_its_command_does(command: str, code: int) -> None:
    ran = subprocess.run([*FIRST, str(TOP), "sh", "-c", command], input="9\n", text=True, timeout=60)
    assert ran.returncode == code


def test_the_first_process_says_what_cannot_be_started() -> None:
    ran = subprocess.run([*FIRST, str(TOP), "/no/such"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (127, "/no/such: No such file or directory\n")


def test_the_gate_minds_no_environment(tmp_path: Path) -> None:
    """`make` here is a program that tells what it was given."""
    decoy = tmp_path / "cd" / ".ci"
    decoy.mkdir(parents=True)
    (tmp_path / "make").write_text('#!/bin/sh\necho "$PWD $*"\nenv\n')
    (tmp_path / "make").chmod(0o755)
    loose = {
        "MAKEFLAGS": "n",
        "PYTEST_ADDOPTS": "--collect-only",
        "PYTHONPATH": "/x",
        "CDPATH": str(decoy.parent),
    }
    ran = subprocess.run(
        [".ci/run"], cwd=TOP, capture_output=True, text=True, timeout=60,
        env={**os.environ, **loose, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stderr
    assert [line for line in lines if line.startswith(f"{TOP} ")] == [
        f"{TOP} --no-print-directory smoke",
        f"{TOP} --no-print-directory test",
    ]
    assert not {"MAKEFLAGS", "PYTEST_ADDOPTS", "PYTHONPATH"} & {line.partition("=")[0] for line in lines}


def test_the_gate_fails_with_the_smoke_round(tmp_path: Path) -> None:
    (tmp_path / "make").write_text('#!/bin/sh\ncase "$*" in *smoke*) exit 2;; esac\n')
    (tmp_path / "make").chmod(0o755)
    ran = subprocess.run(
        [".ci/run"], cwd=TOP, timeout=60, env={**os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert ran.returncode == 2
