"""What is imported when: a help page and a usage error must not pay for what they do not use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

OWN = {
    "hpkit",
    "hpkit.cli",
    "hpkit.commands",
    "hpkit.commands.options",
    "hpkit.errors",
    "hpkit.model",
    "hpkit.render",
    "hpkit.result",
}
HEAVY = {
    "ClusterShell", "argparse", "asyncio", "concurrent", "dataclasses", "http", "logging", "multiprocessing",
    "paramiko", "prometheus_client", "psutil", "pynvml", "rich", "socket", "sqlite3", "ssl", "subprocess", "tempfile",
    "tomli", "tomllib", "unittest", "xml",
}  # fmt: skip
if sys.version_info < (3, 11):
    HEAVY.remove("subprocess")  # click imports uuid, which imports platform, which imported it then
SCRIPT = """
import contextlib, io, json, sys
before = set(sys.modules)
from hpkit.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(json.loads(sys.argv[1]))
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(*args: str) -> set[str]:
    """The modules that `hpkit ARGS` imports in an interpreter of its own."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, json.dumps(args)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("args", [["--help"], ["--version"], [], ["nonsense"]])
def test_help_and_usage_errors_import_little(args: list[str]) -> None:
    modules = imported(*args)
    assert {m for m in modules if m.split(".")[0] == "hpkit"} == OWN
    assert {m.split(".")[0] for m in modules} & HEAVY == set()
    strangers = {m.split(".")[0] for m in modules} - set(sys.stdlib_module_names) - {"hpkit", "click"}
    assert strangers == set()
