"""`hpkit bundle`: one recorded round on this node, for `hpkit check --replay` elsewhere."""

from __future__ import annotations

import os

import click

from hpkit.commands.check import Asked, round_of, selected
from hpkit.commands.options import output
from hpkit.commands.site import explicit_file, site
from hpkit.model import Report, report_document
from hpkit.result import Result, Running

SCHEMA = "hpkit.bundle-made/1"


@click.command()
@click.argument("path")
@click.option("--suite", default="health", show_default=True, metavar="NAME", help="Which suite to record.")
@output()
def command(path: str, suite: str) -> Running:
    """Record a round on this node into the new folder PATH.

    It holds what the checks read: files, listings, outputs of tools, the kernel log, hpkit's configuration and state.
    Whoever gets the folder can run `hpkit check --replay PATH`.
    """
    from hpkit import bundle
    from hpkit import host as hosts

    where = site()
    asked = Asked(suite, (), ())
    checks = selected(where.config, asked)
    recording = bundle.start(path, hosts.live(where.root))
    keep_explicit(path)
    report: Report = (yield from round_of(where, checks, recording, suite)).report
    bundle.finish(recording)
    document = {"schema": SCHEMA, "path": os.path.abspath(path), "report": report_document(report)}
    lines = [
        f"{path}: {len(report.findings)} findings, the node is {report.verdict.value}",
        f"look at it anywhere with: hpkit check --replay {path}",
    ]
    return Result(document, lines)


def keep_explicit(path: str) -> None:
    """The file that HPKIT_CONFIG names stands in the bundle where hpkit.toml would."""
    explicit = explicit_file()
    if not explicit:
        return
    from hpkit.files import ensure_dir, write_atomic

    with open(explicit, "rb") as file:
        data = file.read()
    folder = os.path.join(path, "root/etc/hpkit")
    ensure_dir(folder)
    write_atomic(os.path.join(folder, "hpkit.toml"), data)
