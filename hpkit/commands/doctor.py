"""`hpkit doctor`: how hpkit reaches Slurm here, how a broken job would run again, and what in slurm.conf would hurt."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import click

from hpkit import __version__, config
from hpkit.commands.options import output
from hpkit.commands.site import explicit_file, trusted_only
from hpkit.errors import EXIT_DONE, EXIT_FAILED, SlurmError
from hpkit.paths import node_root, paths
from hpkit.result import Result
from hpkit.slurm import connect, hooked, ways
from hpkit.slurm.abilities import Abilities
from hpkit.slurm.backend import Choice, choose

SCHEMA = "hpkit.doctor/1"
WORDS = {True: "ok", False: "no", None: "?"}
MEND = "the defaults are used here, the hooks go on with the last good configuration; run: hpkit config check"
NO_SOURCE = "configuration source"  # in what Slurm's commands print


class Setup(NamedTuple):
    """This machine's settings, the files that they come from, and what is wrong with those."""

    config: config.Config = config.Config()
    files: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Row(NamedTuple):
    """One line: what it is about, what is so, what to do.

    `status` is "ok", "warn", "bad", "no" (a way that is closed) or "?" (cannot be told on this machine).
    """

    topic: str
    status: str
    text: str
    hint: str = ""


@click.command()
@output()
def command() -> Result:
    """Look at this installation: Slurm's release, the backend, ways to restart a job, slurm.conf.

    Exit code: 0, or 1 when Slurm does not answer or something does not work as meant.
    """
    return report(setup())


def setup() -> Setup:
    """Read what there is; a fault in a file is told, and the defaults hold in its place."""
    root = node_root()
    if "%n" in os.environ.get("HPKIT_ROOT", "") and not os.environ.get("SLURMD_NODENAME"):
        return Setup()  # a sandbox user's shell, which is on no node
    found = config.read_sources(paths(root).etc, explicit=explicit_file(), trusted_only=trusted_only())
    settings, wrong = config.from_tree(found.tree)
    problems = (*found.problems, *(config.with_origin(problem, found.origins) for problem in wrong))
    return Setup(config.Config() if wrong else settings, tuple(found.files), problems)


def report(where: Setup) -> Result:
    """All rows, whether Slurm answers or not."""
    rows = [first(where), *(Row("hpkit", "bad", text, MEND) for text in where.problems)]
    able = Abilities()
    try:
        choice = choose(where.config.slurm, trusted_only=False)
        client = connect(where.config.slurm, trusted_only=False)
        shown = client.config()
        able = client.abilities()
        hooks = where.config.hooks if where.files else None
        rows += [*slurm_rows(able, shown, choice), *way_rows(where, able, shown)]
        rows += [Row("slurm.conf", *each) for each in hooked.advice(shown, hooks, able)]
    except SlurmError as error:
        hint = error.hint or unreached(where, error.kind)
        lost = error.kind == "missing" and NO_SOURCE in error.message
        text = "its commands find no slurm.conf" if lost else f"no answer: {error.message}"
        rows.append(Row("Slurm", "bad", text, hint))
    failed = any(row.status == "bad" for row in rows)
    document = {
        "schema": SCHEMA,
        "hpkit": __version__,
        "slurm": able.release,
        "rows": [row._asdict() for row in rows],
    }
    return Result(document, list(lines(rows)), EXIT_FAILED if failed else EXIT_DONE)


def first(where: Setup) -> Row:
    """hpkit itself and its configuration."""
    text = f"{__version__}, Python {platform.python_version()}"
    if not where.files:
        return Row("hpkit", "ok", f"{text}, no hpkit.toml here: defaults")
    return Row("hpkit", "ok", f"{text}, mode {where.config.mode} (from {', '.join(where.files)})")


def unreached(where: Setup, kind: str) -> str:
    """What to look at when Slurm does not answer; `kind` is that of the SlurmError."""
    up = "is slurmctld up? try: scontrol ping; " if kind in ("unreachable", "timeout") else ""
    named, source = where.config.slurm.conf, "[slurm] conf"
    if not named:
        named, source = os.environ.get("SLURM_CONF", ""), "SLURM_CONF"
    if not named:
        return (
            f"{up}slurm.conf is the one that Slurm finds; another: [slurm] conf in hpkit.toml, or SLURM_CONF"
        )
    return f"{up}{source} is {named}" + ("" if os.path.isfile(named) else ", and there is no such file")


def slurm_rows(able: Abilities, config: Mapping[str, str], choice: Choice) -> Iterator[Row]:
    """The release and the backend."""
    name = config.get("ClusterName", "")
    yield Row("Slurm", "ok", f"{able.release}, cluster {name or 'without a name'}")
    hint = 'see docs/how-to/use-pyslurm.md, or set backend = "auto"' if choice.refused else ""
    yield Row("backend", "warn" if choice.refused else "ok", f"{choice.name}: {choice.why}", hint)


def way_rows(where: Setup, able: Abilities, shown: Mapping[str, str]) -> Iterator[Row]:
    """The ways to run a job again, numbered in the order in which hp-srun takes them."""
    own = where.config
    enforce = own.mode == "enforce" if where.files else None
    hooks = ways.Hooks(hooked.named(shown, "Epilog"), enforce, own.hooks.start_requeued)
    for number, way in enumerate(ways.ways(able, shown, hooks, own.resume.begin_in_s), 1):
        yield Row(f"restart {number}", WORDS[way.open], f"{way.name}: {way.text}", way.hint)


def lines(rows: list[Row]) -> Iterator[str]:
    """The rows as a table; what to do stands below the line that it belongs to."""
    width = max(len(row.topic) for row in rows)
    for row in rows:
        yield f"{row.topic:<{width}}  {row.status:<4}  {row.text}"
        if row.hint:
            yield f"{'':<{width}}        -> {row.hint}"
