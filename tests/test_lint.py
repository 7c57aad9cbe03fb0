"""The linters, run as tests, and the house rules of tests/support/source_rules.py."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support import source_rules as rules

TOP = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CODE = ("hpkit", "tests", "benchmarks")
SKIPPED = {".git", ".venv", "build", "dist", "__pycache__"}


def lint(*argv: str) -> None:
    """Run a linter in the project's folder; its output is the failure's text."""
    done = subprocess.run(
        argv, cwd=TOP, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280
    )
    assert done.returncode == 0, f"{' '.join(argv[:3])}\n{done.stdout}"


def files() -> Iterator[Path]:
    """Every file of the project that is not made by a tool."""
    for path in TOP.rglob("*"):
        parts = path.relative_to(TOP).parts
        made = any(
            part in SKIPPED or part.endswith((".egg-info", "_cache")) or part == ".hypothesis"
            for part in parts
        )
        if path.is_file() and not path.is_symlink() and not made:
            yield path


@cache
def sources() -> list[rules.Source]:
    return [
        rules.source(path.relative_to(TOP / "hpkit").as_posix(), path.read_text())
        for path in files()
        if path.suffix == ".py" and path.is_relative_to(TOP / "hpkit")
    ]


def shell_scripts() -> list[str]:
    starts = re.compile(rb"#!\s*(/usr)?/bin/(env )?(ba|da)?sh\b")
    return sorted(str(p.relative_to(TOP)) for p in files() if starts.match(p.read_bytes()[:40]))


def test_ruff() -> None:
    lint(str(BIN / "ruff"), "check", *CODE)


def test_ruff_format() -> None:
    lint(str(BIN / "ruff"), "format", "--check", *CODE)


def test_mypy() -> None:
    lint(str(BIN / "mypy"))


def test_shellcheck() -> None:
    scripts = shell_scripts()
    assert {"prolog/hpkit", "epilog/hpkit", "prolog/hpkit-health", "scripts/setup.sh", ".ci/run"} <= set(
        scripts
    )
    lint("shellcheck", "-x", *scripts)


def test_layers() -> None:
    lint(str(BIN / "lint-imports"))


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_house_rule(rule: rules.Rule) -> None:
    problems = [problem for src in sources() for problem in rule(src)]
    assert not problems, f"{rule.__doc__}\n" + "\n".join(problems)


BROKEN: list[tuple[rules.Rule, str, str]] = [
    (rules.starts_no_program, "checks/x.py", "import subprocess"),
    (rules.starts_no_program, "checks/x.py", "from subprocess import run"),
    (rules.starts_no_program, "checks/x.py", "from os import kill"),
    (rules.starts_no_program, "checks/x.py", "import os\nos.system('x')"),
    (rules.starts_no_program, "node/x.py", "import os\nos.posix_spawn('x', [], {})"),
    (rules.starts_no_program, "node/x.py", "import signal\nsignal.pidfd_send_signal(1, 2)"),
    (rules.imports_no_driver, "probes/x.py", "import pynvml"),
    (rules.imports_no_driver, "probes/x.py", "from pynvml import nvmlInit"),
    (rules.imports_no_driver, "slurm/x.py", "import pyslurm.core"),
    (rules.opens_no_machine_file, "node/x.py", "open('/proc/uptime')"),
    (rules.opens_no_machine_file, "node/x.py", "import os\nos.listdir(f'/sys/class/{x}')"),
    (rules.opens_no_machine_file, "node/x.py", "import os\nos.path.exists('/dev/' + name)"),
    (rules.opens_no_machine_file, "probes/x.py", "open(path)"),
    (rules.prints_nothing, "checks/x.py", "print('x')"),
    (rules.prints_nothing, "commands/x.py", "import sys\nsys.stderr.write('x')"),
    (rules.swallows_nothing, "x.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (rules.swallows_nothing, "x.py", "try:\n    f()\nexcept (OSError, BaseException):\n    '''why'''"),
    (rules.swallows_nothing, "x.py", "with contextlib.suppress(Exception):\n    f()"),
    (rules.is_small, "x.py", "x = 1\n" * 401),
    (rules.is_small, "x.py", "def f():\n" + "    x = 1\n" * 40),
    (rules.requeues_incomplete_only, "slurm/x.py", "run(['scontrol', 'requeue', job])"),
    (rules.requeues_incomplete_only, "slurm/x.py", "run('scontrol', 'requeue', job)"),
    (rules.requeues_incomplete_only, "slurm/x.py", "feed(f'requeue {job}\\nupdate x')"),
    (rules.requeues_incomplete_only, "slurm/x.py", "x = 'scontrol requeue ' + job"),
    (rules.gives_reasons, "x.py", "x = 1  # type: ignore"),
    (rules.gives_reasons, "x.py", "x = 1  # noqa: E501"),
    (rules.gives_reasons, "x.py", "x = 1  # " + "TO" + "DO later"),
    (rules.is_documented, "x.py", "x = 1"),
    (rules.is_documented, "x.py", "'''Doc.'''\ndef f():\n    x = 1"),
]
FINE: list[tuple[rules.Rule, str, str]] = [
    (rules.starts_no_program, "proc.py", "import subprocess"),
    (rules.starts_no_program, "x.py", "import os, signal\nos.getpid()\nsignal.signal(1, 2)"),
    (rules.opens_no_machine_file, "probes/x.py", "host.read('/proc/meminfo')\nhost.list('/sys/class')"),
    (rules.opens_no_machine_file, "node/x.py", "open('/dev/null')"),
    (rules.imports_no_driver, "slurm/pyslurm_worker.py", "def f():\n    import pyslurm"),
    (rules.swallows_nothing, "x.py", "try:\n    f()\nexcept OSError:\n    pass"),
    (rules.requeues_incomplete_only, "slurm/x.py", "run(['scontrol', 'requeue', 'incomplete', job])"),
    (
        rules.requeues_incomplete_only,
        "slurm/x.py",
        "f'requeue incomplete {job}'\nx = 'requeue the leader of it'",
    ),
    (rules.requeues_incomplete_only, "slurm/x.py", "'''\nrequeue is not used'''"),
    (rules.gives_reasons, "x.py", "x = 1  # type: ignore[misc]  # because of y"),
    (rules.gives_reasons, "x.py", "x = 1  # noqa: BLE001 - the last handler"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_a_rule_sees_what_breaks_it(rule: rules.Rule, path: str, text: str) -> None:
    assert list(rule(rules.source(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), FINE)
def test_a_rule_leaves_alone_what_keeps_it(rule: rules.Rule, path: str, text: str) -> None:
    assert not list(rule(rules.source(path, text)))


# Where a text may point: the documentation that our facts come from, and places that exist only as examples.
KNOWN_HOSTS = re.compile(
    r"https?://(([\w-]+\.)*(nvidia\.com|schedmd\.com|github\.com|kernel\.org|python\.org|pytorch\.org|huggingface\.co"
    r"|amazon\.com|readthedocs\.io|readthedocs-hosted\.com|freedesktop\.org|no-color\.org|diataxis\.fr|example\.(com|org))"
    r"|localhost|127\.0\.0\.1)(?![\w.-])"
)
LEFTOVERS = re.compile(r"/wor[k]/|index-ur[l]|find-link[s]|PIP[_]|/tmp/h[p]/")


def test_nothing_of_the_place_where_it_was_made_is_left() -> None:
    found = []
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            urls = re.findall(r"https?://[^\s)>\"'`]+", line)
            strange = [url for url in urls if not KNOWN_HOSTS.match(url)]
            if path != Path(__file__) and (LEFTOVERS.search(line) or strange):
                found.append(f"{path.relative_to(TOP)}:{number}: {line.strip()[:100]}")
    assert not found, "\n".join(found)
