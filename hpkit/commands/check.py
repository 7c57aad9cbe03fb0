"""`hpkit check`: one round on this node, or on a recorded one; shows what it found and changes nothing.

Only the hooks move hpkit's state of a node (verdict, baseline, last reports). This command reads the baseline, so that
it judges as they do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hpkit import catalog, config
from hpkit.checks.model import Check
from hpkit.commands.options import output
from hpkit.commands.site import Site, site
from hpkit.errors import ConfigError, UsageError
from hpkit.host import Host
from hpkit.model import Event, Report, report_document
from hpkit.paths import paths
from hpkit.result import Result, Running

if TYPE_CHECKING:
    from hpkit.runner import Round

SCHEMA_LIST = "hpkit.checks/1"
SCHEMA_EXPLAIN = "hpkit.check/1"
LONG_S = {"basic": 1800.0}  # suites that no hook runs: minutes for basic, else up to hours
LONGEST_S = 6 * 3600.0


class Asked(NamedTuple):
    """What the command line asked for."""

    suite: str
    only: tuple[str, ...]
    skip: tuple[str, ...]


@click.command()
@click.option("--suite", default="", metavar="NAME", help="Which suite of checks to run.  [default: health]")
@click.option("--deep", is_flag=True, help="The deep suite: up to hours, on an idle node.")
@click.option(
    "--only", multiple=True, metavar="PATTERN", help="Only these checks, as gpu.*; may be given again."
)
@click.option("--skip", multiple=True, metavar="PATTERN", help="Not these checks; may be given again.")
@click.option(
    "--replay", metavar="DIR", default="", help="Check a recorded node (hpkit bundle) instead of this one."
)
@click.option("--list", "listing", is_flag=True, help="List the checks and their suites, run nothing.")
@click.option(
    "--explain", metavar="CHECK", default="", help="What a check looks at, and its settings; run nothing."
)
@output("nagios")
def command(
    suite: str,
    deep: bool,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    replay: str,
    listing: bool,
    explain: str,
) -> Running | Result:
    """Check this node.

    Exit code: 0 healthy, 1 degraded (a warning), 2 unhealthy (a failure), 3 could not tell, or wrong usage.
    """
    if deep and suite not in ("", "deep"):
        raise UsageError(f"--deep is --suite deep, not --suite {suite}")
    where = recorded(replay) if replay else site()
    if listing:
        return listed(where.config)
    if explain:
        return explained(where.config, explain)
    return checking(where, Asked("deep" if deep else suite or "health", only, skip), replay)


def recorded(folder: str) -> Site:
    """A bundle as a node: its own configuration and state, and nothing of this machine's."""
    if not os.path.isfile(os.path.join(folder, "meta.json")):
        raise UsageError(f"{folder} is no bundle: it has no meta.json", "make one with: hpkit bundle PATH")
    inside = paths(folder)
    top = os.path.realpath(folder)
    for path in config.read_sources(inside.etc, trusted_only=False).files:
        if not os.path.realpath(path).startswith(f"{top}/"):
            raise UsageError(f"{path} leads out of the bundle", "such a bundle was not made by hpkit bundle")
    return Site(folder, inside, config.load(inside.etc, trusted_only=False))


def checking(where: Site, asked: Asked, replay: str) -> Running:
    """Run the round and tell its events; the result holds the report."""
    from hpkit import host as hosts

    checks = selected(where.config, asked)
    host: Host = hosts.replay(replay) if replay else hosts.live(where.root)
    report: Report = (yield from round_of(where, checks, host, asked.suite)).report
    return Result(report_document(report), code=report.verdict.exit_code)


def round_of(where: Site, checks: Sequence[Check], host: Host, suite: str) -> Generator[Event, None, Round]:
    """One round of the checks on a host, judged with the node's own configuration and baseline."""
    from hpkit import past, runner, want
    from hpkit.checks import settings

    return (
        yield from runner.run(
            checks,
            host,
            want.resolve(where.config.want, where.config.slurm, host),
            past.begin(past.load(where.paths), host.now()),
            suite=suite,
            budget_s=budget_s(where.config, suite),
            options=settings(checks, where.config),
        )
    )


def selected(settings: config.Config, asked: Asked) -> tuple[Check, ...]:
    """The checks to run; raises ConfigError for any wrong setting of any check, UsageError when nothing is left."""
    from hpkit.checks import all_checks, select

    wrong = config.check_problems(settings, {row.name: row.options for row in all_checks()})
    if wrong:
        raise ConfigError(wrong)
    rows = select(catalog.suite(asked.suite, settings.suites), asked.only, asked.skip)
    if not rows:
        raise UsageError(f"no check of suite {asked.suite} is left", "see: hpkit check --list")
    return rows


def budget_s(settings: config.Config, suite: str) -> float:
    """The time for a suite: that of the hook that runs it, else what suits its kind."""
    hooks = (settings.hooks.prolog, settings.hooks.epilog, settings.hooks.health)
    return next((hook.budget_s for hook in hooks if hook.suite == suite), LONG_S.get(suite, LONGEST_S))


def listed(settings: config.Config) -> Result:
    """Every check in two lines."""
    from hpkit.checks import all_checks

    rows = [described(row, settings) for row in sorted(all_checks(), key=lambda row: row.name)]
    table = [
        (r["check"], ", ".join(r["suites"]), r["about"] + ("" if r["enabled"] else " (disabled)"))
        for r in rows
    ]
    width = max(len(name) for name, _, _ in table)
    lines = [
        line
        for name, suites, about in table
        for line in (f"{name.ljust(width)}  {about}", f"{'':{width}}  suites: {suites}")
    ]
    return Result({"schema": SCHEMA_LIST, "checks": rows}, lines)


def explained(settings: config.Config, name: str) -> Result:
    """One check at length."""
    from hpkit.checks import all_checks

    row = next((row for row in all_checks() if row.name == name), None)
    if row is None:
        raise UsageError(f"there is no check {name!r}", "see: hpkit check --list")
    about = described(row, settings)
    lines = [
        f"{name}: {about['about']}",
        f"suites: {', '.join(about['suites'])}",
        f"disturbs: {'nothing' if about['load'] == 'quiet' else about['load']}",
    ]
    if row.latch:
        lines.append(
            "a failure stays until the node's baseline is accepted anew (reboot, reset or a good deep run)"
        )
    lines += settings_lines(name, row, about["options"], about["enabled"])
    return Result({"schema": SCHEMA_EXPLAIN, **about}, lines)


def settings_lines(name: str, row: Check, options: Mapping[str, Any], on: bool) -> Sequence[str]:
    """A check's settings as its table of hpkit.toml, `on` when it is switched on."""
    defaults = config.to_tree(row.options())
    texts = [f'[checks."{name}"]', "enabled = true" if on else "enabled = false  # default: true"]
    for option, value in options.items():
        default = defaults[option]
        changed = "" if value == default else f"  # default: {json.dumps(default)}"
        texts.append(f"{option} = {json.dumps(value)}{changed}")
    return ["settings:", *(f"  {text}" for text in texts)]


def described(row: Check, settings: config.Config) -> dict[str, Any]:
    """A check as a document."""
    from fnmatch import fnmatchcase

    known = {**catalog.suites(), **settings.suites}
    suites = [name for name, patterns in known.items() if any(fnmatchcase(row.name, p) for p in patterns)]
    options = config.options_for(settings, {row.name: row.options})[row.name]
    return {
        "check": row.name,
        "about": row.about,
        "suites": suites,
        "load": row.load.value,
        "latch": row.latch,
        "enabled": config.enabled(settings, row.name),
        "options": config.to_tree(options),
    }
