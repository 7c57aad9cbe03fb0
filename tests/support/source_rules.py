"""The house rules that no ready-made linter knows, each as a function from one source file to its problems."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

MAX_FILE = 400
MAX_FUNCTION = 40

# The doors: who may do what others may not. Paths are relative to hpkit/.
PROGRAM_DOORS = ("proc.py", "pids.py", "forks.py")
MACHINE_DOORS = ("host.py", "hosts/", "proc.py", "pids.py", "forks.py", "sandbox/")
PRINTERS: Mapping[str, str] = {
    "render.py": "the renderer",
    "hook.py": "the hook's one line to slurmd",
    "probes/nvml_child.py": "the child prints its one document",
    "resume/witness.py": "the witness prints its one line",
    "resume/main.py": "hp-srun's help",
    "resume/dryrun.py": "hp-srun's plan is its output",
    "resume/messages.py": "hp-srun speaks on standard error beside the program's own output",
    "sandbox/data/": "training programs that the sandbox submits",
}

DRIVERS: Mapping[str, str] = {"pynvml": "probes/nvml_child.py", "pyslurm": "slurm/pyslurm_worker.py"}

_OS_PROGRAMS = re.compile(
    r"(system|popen|fork|forkpty|kill|killpg|posix_spawnp?|exec[lv]p?e?|spawn[lv]p?e?)\Z"
)
_SIGNAL_SENDERS = {"pidfd_send_signal", "pthread_kill"}
_PROGRAM_MODULES = {"subprocess", "multiprocessing", "pty", "concurrent"}
_MACHINE = re.compile(r"/(sys|proc|dev)(/|\Z)")
_OPENERS = {
    "open", "listdir", "scandir", "readlink", "stat", "lstat", "statvfs", "exists", "lexists", "isfile", "isdir",
    "islink", "walk", "glob", "iglob", "Path", "access", "realpath",
}  # fmt: skip
_REQUEUE_TEXT = re.compile(r"(\S*/)?scontrol\s+requeue\s+(?!incomplete)|requeue\s+(?!incomplete\s)\S*\s*\Z")


class Source(NamedTuple):
    """One file of hpkit/: its path there, text and tree."""

    path: str
    text: str
    tree: ast.Module


Rule = Callable[[Source], Iterator[str]]


def source(path: str, text: str) -> Source:
    """A source from its text."""
    return Source(path, text, ast.parse(text))


def at_door(path: str, doors: tuple[str, ...] | Mapping[str, str]) -> bool:
    """Whether a file is one of the doors, or lies in a folder that is."""
    return any(path == door or (door.endswith("/") and path.startswith(door)) for door in doors)


def starts_no_program(src: Source) -> Iterator[str]:
    """Only proc.py starts programs or sends signals."""
    if at_door(src.path, PROGRAM_DOORS):
        return
    for node in ast.walk(src.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for name in names:
                if name.split(".")[0] in _PROGRAM_MODULES or name == "asyncio.subprocess":
                    yield f"{src.path}:{node.lineno}: imports {name}; programs are started by proc.py only"
            if isinstance(node, ast.ImportFrom) and node.module in ("os", "signal"):
                for alias in node.names:
                    if _OS_PROGRAMS.match(alias.name) or alias.name in _SIGNAL_SENDERS:
                        yield f"{src.path}:{node.lineno}: imports {node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = node.value.id, node.attr
            if (owner == "os" and _OS_PROGRAMS.match(name)) or (
                owner == "signal" and name in _SIGNAL_SENDERS
            ):
                yield f"{src.path}:{node.lineno}: {owner}.{name}; programs and signals are proc.py's"


def imports_no_driver(src: Source) -> Iterator[str]:
    """Only child programs import pynvml and pyslurm: a wedged GPU or a dead controller hangs whoever calls them."""
    for node in ast.walk(src.tree):
        names = (
            [a.name for a in node.names]
            if isinstance(node, ast.Import)
            else [getattr(node, "module", None) or ""]
        )
        for name in {name.split(".")[0] for name in names} & set(DRIVERS):
            if src.path != DRIVERS[name]:
                yield f"{src.path}:{getattr(node, 'lineno', 0)}: imports {name}"


def opens_no_machine_file(src: Source) -> Iterator[str]:
    """Only the hosts open what lies below /sys, /proc and /dev; probes and judges open nothing at all."""
    pure = src.path.startswith(("probes/", "checks/", "policy/")) and src.path != "checks/__init__.py"
    for node in ast.walk(src.tree):
        if not isinstance(node, ast.Call) or _called(node) not in _OPENERS:
            continue
        if pure and (isinstance(node.func, ast.Name) and node.func.id == "open"):
            yield f"{src.path}:{node.lineno}: open(); what a probe reads comes from its host"
        if at_door(src.path, MACHINE_DOORS):
            continue
        for argument in node.args:
            text = _leading_text(argument)
            if _MACHINE.match(text) and text != "/dev/null" and not _on_host(node):
                yield f"{src.path}:{node.lineno}: opens {text}; machine files are host.py's"


def prints_nothing(src: Source) -> Iterator[str]:
    """Only the renderer prints, and the few whose output is a protocol."""
    if at_door(src.path, PRINTERS):
        return
    for node in ast.walk(src.tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name in ("print", "click.echo", "click.secho") or re.match(
            r"sys\.(__)?std(out|err)(__)?(\.|\Z)", name
        ):
            yield f"{src.path}:{node.lineno}: {name}(); the renderer prints"


def swallows_nothing(src: Source) -> Iterator[str]:
    """No handler of everything that does nothing."""
    for node in ast.walk(src.tree):
        if (
            isinstance(node, ast.ExceptHandler)
            and _catches_all(node.type)
            and all(_idle(s) for s in node.body)
        ):
            yield f"{src.path}:{node.lineno}: swallows every exception"
        if (
            isinstance(node, ast.Call)
            and _called(node) == "suppress"
            and any(_catches_all(a) for a in node.args)
        ):
            yield f"{src.path}:{node.lineno}: suppresses every exception"


def is_small(src: Source) -> Iterator[str]:
    """Files and functions keep to their size."""
    count = src.text.count("\n")
    if count > MAX_FILE:
        yield f"{src.path}: {count} lines, more than {MAX_FILE}"
    for node in ast.walk(src.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > MAX_FUNCTION:
                yield f"{src.path}:{node.lineno}: {node.name} has {size} lines, more than {MAX_FUNCTION}"


def requeues_incomplete_only(src: Source) -> Iterator[str]:
    """`scontrol requeue` would revive a cancelled job; `scontrol requeue incomplete` does not."""
    documented = {id(node) for node in _docstrings(src.tree)}
    in_f_string = {id(v) for n in ast.walk(src.tree) if isinstance(n, ast.JoinedStr) for v in n.values}
    for node in ast.walk(src.tree):
        if isinstance(node, (ast.List, ast.Tuple, ast.Call)):
            words = node.args if isinstance(node, ast.Call) else node.elts
            ours = src.path.startswith("slurm/") or any("scontrol" in ast.unparse(w) for w in words)
            for word, after in zip_longest(words, words[1:]):
                if ours and _text(word) == "requeue" and _text(after) != "incomplete":
                    yield f"{src.path}:{node.lineno}: 'requeue' without 'incomplete'"
        whole = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and id(node) not in in_f_string
        )
        if whole and id(node) not in documented and _starts_command(_flat(node)):
            yield f"{src.path}:{node.lineno}: a requeue command without 'incomplete'"


def gives_reasons(src: Source) -> Iterator[str]:
    """A suppression says why, and nothing is left for later."""
    for number, line in enumerate(src.text.splitlines(), 1):
        mark = re.search(r"#\s*(type:\s*ignore\S*|noqa\S*(?:\s+[A-Z]+[0-9]+)*)(.*)", line)
        if mark and not re.match(r"\s*(#|-)\s*\w+", mark.group(2)):
            yield f"{src.path}:{number}: {mark.group(1)} without a reason"
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            yield f"{src.path}:{number}: something was left for later"


def is_documented(src: Source) -> Iterator[str]:
    """A docstring on each module, public class and public function."""
    if src.text.strip() and not ast.get_docstring(src.tree):
        yield f"{src.path}: no docstring"
    for node in _public(src.tree):
        if not ast.get_docstring(node):
            yield f"{src.path}:{node.lineno}: {node.name} has no docstring"


RULES: tuple[Rule, ...] = (
    starts_no_program,
    imports_no_driver,
    opens_no_machine_file,
    prints_nothing,
    swallows_nothing,
    is_small,
    requeues_incomplete_only,
    gives_reasons,
    is_documented,
)


def _public(tree: ast.Module) -> Iterator[ast.ClassDef | ast.FunctionDef]:
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                for part in node.body:
                    if isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
                        yield part


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _on_host(node: ast.Call) -> bool:
    """`host.list(…)`, `host.stat(…)`: a question to the door itself."""
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return isinstance(owner, ast.Name) and owner.id in ("host", "inner")


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _leading_text(node: ast.expr) -> str:
    """What a path begins with, as far as it is written out."""
    if isinstance(node, ast.JoinedStr) and node.values:
        return _leading_text(node.values[0])
    if isinstance(node, ast.BinOp):
        return _leading_text(node.left)
    return _text(node)


def _flat(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(v) or "X" for v in node.values)
    return _text(node)


def _starts_command(text: str) -> bool:
    """Text that is a requeue for scontrol: after its name, or a line of that word and at most one more."""
    return any(_REQUEUE_TEXT.match(line.lstrip()) for line in text.split("\n"))


def _catches_all(node: ast.expr | None) -> bool:
    names = node.elts if isinstance(node, ast.Tuple) else [node]
    return any(
        n is None or (isinstance(n, ast.Name) and n.id in ("Exception", "BaseException")) for n in names
    )


def _idle(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Pass, ast.Continue)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
