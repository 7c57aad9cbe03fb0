"""`hpkit attempts [JOBID]`: the timeline of a training run across its requeues, or the list of runs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from hpkit.commands.options import output
from hpkit.errors import HpkitError
from hpkit.result import Result
from hpkit.resume import attempts, timeline

SCHEMA_RUNS = "hpkit.runs/1"
LISTED_MAX = 20


@click.command()
@click.argument("job", required=False, metavar="[JOBID]")
@click.option(
    "--state-dir", default="", metavar="DIR", help="Where hp-srun kept the record (--hp-state-dir)."
)
@output()
def command(job: str | None, state_dir: str) -> Result:
    """Show the attempts of a training run and why each ended; without JOBID (or A_T of an array) list the runs."""
    return show(job or attempts.key_of(os.environ).job, _folders(state_dir, os.environ))


def show(job: str, folders: Sequence[str]) -> Result:
    """The run of a job, or with "" the latest runs; raises HpkitError when there is no record of the job."""
    known = _records(folders)
    if not job:
        return _listing(known[:LISTED_MAX])
    for path in known:
        if path.endswith(f"-{job}.jsonl"):
            return _one(path)
    where = ", ".join(folders)
    raise HpkitError(
        f"no record of job {job} in {where}", "name the folder: hpkit attempts JOBID --state-dir DIR"
    )


def _one(path: str) -> Result:
    found = attempts.read(path)
    if found.trouble:
        raise HpkitError(f"the record cannot be read: {found.trouble}")
    shown = timeline.document(found.events, os.path.realpath(path))
    return Result(shown, timeline.lines(shown), notes=[f"record: {shown['record']}"])


def _listing(known: Sequence[str]) -> Result:
    rows: list[dict[str, Any]] = []
    for path in known:
        events = attempts.read(path).events
        if events:
            one = timeline.document(events, os.path.realpath(path))
            rows.append({**one, "attempts": len(one["attempts"]), "last": events[-1]["at"]})
    lines = [
        f"{row['job']:>12}  {row['cluster']:12}  {row['attempts']:>3} attempt{' ' if row['attempts'] == 1 else 's'}  "
        + time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row["last"]))
        for row in rows
    ]
    return Result({"schema": SCHEMA_RUNS, "runs": rows}, lines or ["no runs are recorded"])


def _records(folders: Sequence[str]) -> list[str]:
    """The records in these folders, the one written last first; what cannot be listed holds none."""
    found: dict[str, float] = {}
    for folder in folders:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(".jsonl") and os.path.isfile(path):
                found[path] = os.path.getmtime(path)
    return sorted(found, key=lambda path: found[path], reverse=True)


def _folders(state_dir: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Where records may be: as hp-srun would look, given this environment and the configuration."""
    from hpkit import config
    from hpkit.errors import ConfigError
    from hpkit.paths import node_root, paths

    try:
        site = config.load(
            paths(node_root()).etc, explicit=env.get("HPKIT_CONFIG", ""), trusted_only=False
        ).resume
    except ConfigError:
        site = config.ResumeConfig()
    chosen = state_dir or env.get("HPKIT_STATE_DIR", "") or site.state_dir
    beside = env.get("HPKIT_CHECKPOINT_DIR", "") or site.checkpoint_dir
    places = (*attempts.folders(chosen, beside, env), attempts.home_folder(env))
    return tuple(dict.fromkeys(places))
