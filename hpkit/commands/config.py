"""`hpkit config show|check`: what the configuration says, which file said it, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from hpkit import config
from hpkit.commands.options import output
from hpkit.commands.site import explicit_file, trusted_only
from hpkit.errors import EXIT_DONE, EXIT_USAGE, ConfigError
from hpkit.paths import node_root, paths
from hpkit.result import Result
from hpkit.structure import key

SCHEMA = "hpkit.config/1"
SCHEMA_CHECK = "hpkit.config-check/1"


@click.group()
def command() -> None:
    """Show or check the configuration: /etc/hpkit/hpkit.toml, then /etc/hpkit/conf.d/*.toml."""


@command.command()
@output()
def show() -> Result:
    """Every setting, its value and the file that set it."""
    sources = _sources()
    settings, problems = config.from_tree(sources.tree)
    if sources.problems or problems:
        raise ConfigError(sources.problems + problems)
    rows = [
        (where, _toml(value), sources.origins.get(where, "default")) for where, value in _leaves(settings)
    ]
    width = max(len(f"{where} = {value}") for where, value, _ in rows)
    lines = [f"{f'{where} = {value}'.ljust(width)}  # {origin}" for where, value, origin in rows]
    document = {
        "schema": SCHEMA,
        "files": list(sources.files),
        "config": config.to_tree(settings),
        "origins": dict(sources.origins),
    }
    return Result(document, lines)


@command.command()
@output()
def check() -> Result:
    """Check every file and key, and tell all problems at once.

    The options of the checks and the suites are checked too.

    Exit code: 0 no problem, 3 problems.
    """
    from hpkit.checks import all_checks

    sources = _sources()
    settings, wrong = config.from_tree(sources.tree)
    known = {row.name: row.options for row in all_checks()}
    found = (*wrong, *config.check_problems(settings, known), *_unknown_suites(settings))
    problems = [*sources.problems, *(config.with_origin(problem, sources.origins) for problem in found)]
    document = {"schema": SCHEMA_CHECK, "files": list(sources.files), "problems": problems}
    read = f"{len(sources.files)} files" if len(sources.files) != 1 else "1 file"
    lines = problems or [
        f"{read} read, no problem found" if sources.files else "no file: the defaults are used"
    ]
    return Result(document, lines, EXIT_USAGE if problems else EXIT_DONE)


def _unknown_suites(settings: config.Config) -> tuple[str, ...]:
    """Hooks whose suite does not exist: they would go on with the last good configuration."""
    from hpkit import catalog

    known = {**catalog.suites(), **settings.suites}
    named = {name: getattr(settings.hooks, name).suite for name in ("prolog", "epilog", "health")}
    listed = ", ".join(sorted(known))
    return tuple(
        f"hooks.{name}.suite: there is no suite {suite!r} (there are {listed})"
        for name, suite in named.items()
        if suite not in known
    )


def _sources() -> config.Sources:
    etc = paths(node_root()).etc
    return config.read_sources(etc, explicit=explicit_file(), trusted_only=trusted_only())


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its dotted path, in the order of the classes."""
    inner = value._asdict() if hasattr(value, "_asdict") else value
    if isinstance(inner, Mapping):
        for name, part in inner.items():
            yield from _leaves(part, key(path, name))
    else:
        yield path, value


def _toml(value: Any) -> str:
    """A value as TOML writes it; what nobody set has no value there."""
    if value is None:
        return "(not set)"
    return json.dumps(list(value) if isinstance(value, tuple) else value)
