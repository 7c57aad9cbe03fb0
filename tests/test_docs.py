"""The documentation speaks of what is there: every key, check, verb and option, and links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from hpkit import cli
from hpkit.checks import all_checks
from hpkit.config import Config
from hpkit.resume import settings

TOP = Path(__file__).resolve().parent.parent
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")])
COMMON = {"--json", "--output", "--color", "--help"}


def page(name: str) -> str:
    return (TOP / "docs/reference" / name).read_text()


def leaves(value: Any, path: str = "") -> Iterator[str]:
    for name, part in value._asdict().items():
        where = f"{path}.{name}" if path else name
        if hasattr(part, "_asdict"):
            yield from leaves(part, where)
        elif where not in ("checks", "suites"):
            yield where


def commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix} {name}")


def test_every_key_of_the_configuration_is_described_and_no_other() -> None:
    rows = [line.split("|")[1] for line in page("config.md").splitlines() if line.startswith("| `")]
    described = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    patterns = {'checks."NAME".enabled', 'checks."NAME".OPTION', "suites.NAME"}
    assert described - patterns == set(leaves(Config()))


def test_every_check_has_its_section_with_all_settings() -> None:
    sections = dict(re.findall(r"^## (\S+)\n(.*?)(?=^## |\Z)", page("checks.md"), re.M | re.S))
    checks = {check.name: check for check in all_checks()}
    assert set(sections) == set(checks)
    for name, text in sections.items():
        for part in ("**What.**", "**Why.**", "**By hand.**", "**Remedy.**"):
            assert part in text, f"{name} lacks {part}"
        described = dict(re.findall(r"^\| `(\w+)` \| `?([^`|]+?)`? \|", text, re.M))
        options = checks[name].options()
        defaults = {key: getattr(options, key) for key in checks[name].options._fields}  # type: ignore[attr-defined]  # a NamedTuple
        assert described == {k: str(list(v) if isinstance(v, tuple) else v) for k, v in defaults.items()}, (
            name
        )


def test_every_verb_and_option_is_described() -> None:
    text = page("commands.md")
    for name, command in commands(cli.group, "hpkit"):
        assert all(word in text for word in name.split()), name
        long = {o for p in command.params for o in p.opts if o.startswith("--")} - COMMON
        assert not [option for option in long if option not in text], f"{name}: {long}"


def test_every_option_of_hp_srun_is_described() -> None:
    text = page("hp-srun.md")
    described = set(re.findall(r"`--hp-([a-z-]+)", text)) - {"help", "NAME"}
    assert described == set(settings.NAMES)
    for name in settings.NAMES:
        assert f"`{settings.variable(name)}`" in text


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(TOP)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{path.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", there.read_text(), re.M)
            heads = [
                re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in titles
            ]  # as GitHub makes them
            assert anchor in heads, f"{path.name}: {target}"


def test_the_readme_is_short() -> None:
    assert len((TOP / "README.md").read_text().splitlines()) < 150
