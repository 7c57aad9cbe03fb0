"""The hook path is lean: which modules a whole prolog round imports is pinned."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import ForwardRef

import pytest

from hpkit import config, hook, model, proc
from tests.support.node_root import NodeRoot

# What a round adds to a bare interpreter, over CPython 3.10 to 3.13. A longer list is a slower prolog: ask whether it pays.
STANDARD = {
    "__future__", "_collections", "_collections_abc", "_functools", "_json", "_locale", "_operator", "_posixsubprocess",
    "_sre", "_stat", "_typing", "_weakrefset", "collections", "contextlib", "copyreg", "enum", "errno", "fcntl",
    "fnmatch", "functools", "gc", "genericpath", "importlib", "itertools", "json", "keyword", "locale", "math",
    "operator", "os", "posixpath", "re", "reprlib", "select", "selectors", "signal", "sre_compile", "sre_constants",
    "sre_parse", "stat", "subprocess", "threading", "types", "typing", "warnings",
}  # fmt: skip
HEAVY = (
    "argparse",
    "asyncio",
    "dataclasses",
    "inspect",
    "logging",
    "pathlib",
    "random",
    "shutil",
    "socket",
    "tempfile",
)
SAYS = """
import sys
before = set(sys.modules)
sys.path.insert(0, {package!r})
sys.argv = ["hook.py"]
from hpkit import hook
code = hook.run(["prolog", "--root", {root!r}])
print(code, *sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("used", [10, 100])
def test_a_round_imports_only_the_standard_library_and_hpkit(tmp_path: Path, used: int) -> None:
    node = NodeRoot(tmp_path)
    node.configure("observe" if used == 100 else "enforce")
    node.disk(used=used)
    node.hook("prolog")
    text = SAYS.format(package=str(Path(hook.__file__).parents[1]), root=str(tmp_path))
    ran = proc.run((sys.executable, "-I", "-S", "-c", text), timeout_s=60, env={"SLURMD_NODENAME": "n1"})
    code, *modules = ran.text.split()
    assert code == "0", ran.stderr
    tops = {name.partition(".")[0] for name in modules}
    assert "hpkit" in tops
    if used == 10:  # the failing path may log, and that takes a socket
        assert not tops & set(HEAVY)
        assert tops - {"hpkit"} <= STANDARD, sorted(tops - {"hpkit"} - STANDARD)
    allowed = sys.stdlib_module_names | {"hpkit"}
    assert tops <= allowed, sorted(tops - allowed)


def test_a_healthy_round_reads_no_toml_twice_and_loads_no_remedy(tmp_path: Path) -> None:
    node = NodeRoot(tmp_path)
    node.hook("prolog")
    text = SAYS.format(package=str(Path(hook.__file__).parents[1]), root=str(tmp_path))
    ran = proc.run((sys.executable, "-I", "-S", "-c", text), timeout_s=60, env={"SLURMD_NODENAME": "n1"})
    modules = ran.text.split()
    unused = {
        "tomllib", "hpkit.slurm.client", "hpkit.slurm.commands", "hpkit.node.remedy", "hpkit.node.watcher",
        "hpkit.policy.returning",
    }  # fmt: skip
    assert modules[0] == "0" and not unused & set(modules)


@pytest.mark.parametrize("module", [config, model])
def test_the_large_modules_of_tuples_give_them_types_and_not_texts(module: ModuleType) -> None:
    tuples = [each for each in vars(module).values() if isinstance(each, type) and hasattr(each, "_fields")]
    given = {f"{t.__name__}.{n}": kind for t in tuples for n, kind in t.__annotations__.items()}
    assert given
    assert [name for name, kind in given.items() if isinstance(kind, ForwardRef)] == []
