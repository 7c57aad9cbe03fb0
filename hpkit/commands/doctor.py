"""`hpkit doctor`: how hpkit reaches Slurm here, how a broken job would run again, and what in slurm.conf would hurt."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import click

from hpkit import __version__
from hpkit.commands.fleet_nodes import client_of
from hpkit.commands.options import output
from hpkit.commands.site import Site, site
from hpkit.config import Config
from hpkit.errors import EXIT_DONE, EXIT_FAILED, SlurmError
from hpkit.result import Result
from hpkit.slurm import hooked, ways
from hpkit.slurm.abilities import Abilities
from hpkit.slurm.backend import Choice, choose

SCHEMA = "hpkit.doctor/1"


class Row(NamedTuple):
    """One line: what it is about, "ok", "warn", "bad" or "no" (a way that is closed), what is so, what to do."""

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
    return report(site())


def report(where: Site) -> Result:
    """All rows, whether Slurm answers or not."""
    rows = [first(where)]
    config: Mapping[str, str] = {}
    able = Abilities()
    try:
        choice = choose(where.config.slurm, trusted_only=False)
        client = client_of(where)
        config = client.config()
        able = client.abilities()
        rows += [*slurm_rows(able, config, choice), *way_rows(where, able, config)]
        rows += [Row("slurm.conf", *each) for each in hooked.advice(config, where.config.hooks, able)]
    except SlurmError as error:
        hint = error.hint or unreached(where, error.kind)
        rows.append(Row("Slurm", "bad", f"no answer: {error.message}", hint))
    failed = any(row.status == "bad" for row in rows)
    document = {
        "schema": SCHEMA,
        "hpkit": __version__,
        "slurm": able.release,
        "rows": [row._asdict() for row in rows],
    }
    return Result(document, list(lines(rows)), EXIT_FAILED if failed else EXIT_DONE)


def first(where: Site) -> Row:
    """hpkit itself and its configuration."""
    text = f"{__version__}, Python {platform.python_version()}"
    if where.config == Config():
        return Row("hpkit", "ok", f"{text}, no settings in {where.paths.etc}: defaults")
    return Row("hpkit", "ok", f"{text}, mode {where.config.mode}")


def unreached(where: Site, kind: str) -> str:
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
    yield Row("backend", "warn" if choice.refused else "ok", f"{choice.name}: {choice.why}")


def way_rows(where: Site, able: Abilities, config: Mapping[str, str]) -> Iterator[Row]:
    """The ways to run a job again."""
    own = where.config
    enforce = None if own == Config() else own.mode == "enforce"
    hooks = ways.Hooks(hooked.named(config, "Epilog"), enforce, own.hooks.start_requeued)
    for way in ways.ways(able, config, hooks, own.resume.begin_in_s):
        yield Row("restart", "ok" if way.open else "no", f"{way.name}: {way.text}", way.hint)


def lines(rows: list[Row]) -> Iterator[str]:
    """The rows as a table; what to do stands below the line that it belongs to."""
    width = max(len(row.topic) for row in rows)
    for row in rows:
        yield f"{row.topic:<{width}}  {row.status:<4}  {row.text}"
        if row.hint:
            yield f"{'':<{width}}        -> {row.hint}"
