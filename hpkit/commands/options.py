"""The options that all commands share: -o, --json, --color."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hpkit.result import Output

F = TypeVar("F", bound=Callable[..., Any])


def output(*more: str) -> Callable[[F], F]:
    """Add -o/--output (table, json and `more`), --json and --color to a command; only the renderer reads them.

    Use below `@click.command()`: `@output()` or `@output("nagios")`.
    """

    def add(function: F) -> F:
        for option in (
            click.option("--color", type=click.Choice(["auto", "always", "never"]), **_kept("color"),
                         help="Colours: only on a terminal (auto), always, never."),
            click.option("--json", is_flag=True, **_kept("json"), help="The same as -o json."),
            click.option("-o", "--output", type=click.Choice(["table", "json", *more]), **_kept("format"),
                         help="How to print the result."),
        ):  # fmt: skip
            function = option(function)
        return function

    return add


def _kept(what: str) -> dict[str, Any]:
    """Settings of an option that goes to the context's Output and not to the command."""

    def keep(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
        kept = ctx.find_root().obj
        if not isinstance(kept, Output) or not value:
            return
        if what == "json":
            kept.format = "json"
        else:
            setattr(kept, what, value)

    return {"expose_value": False, "callback": keep, "is_eager": True}
