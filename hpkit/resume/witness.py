"""The witness: runs once on every node of the job after a failed step, as the user, and says what the node is like.

It leaves a suspect note first, so that root looks at the node at once; looks itself, in the step's view, meanwhile;
then waits for root's answer to the note. It prints one document in the lines of `wire`:
`{"schema":"hpkit.witness/1","node","note":bool,"root":answer or null,"report":report or null,"trouble":text,
"enforce":bool}`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from hpkit import files
from hpkit.host import Host, live
from hpkit.model import Clock, Report, View, report_document
from hpkit.paths import Paths, node_root, paths
from hpkit.resume import wire

SCHEMA = "hpkit.witness/1"
ANSWER = "hpkit.answer/1"
ANSWER_LIMIT = 1 << 20
POLL_S = 0.1
TICK_S = 1.0
OWN_LOOK_S = 10.0
TICKERS = 8  # so many ranks keep the supervisor's clock going; all of them would be too loud on a big job


def main() -> int:
    """Be the witness of this node for as many seconds as the last argument says.

    Always 0: what went wrong is in the document.
    """
    budget_s = float(sys.argv[-1])
    until = time.monotonic() + budget_s
    root = node_root()
    host, place = live(root, view=View.STEP), paths(root)
    began = host.now()
    noted, trouble = leave_note(place, os.environ.get("SLURM_JOB_ID", ""), began)
    report: Report | None = None
    enforce = False
    try:
        enforce = enforcing(place)
        report = look(host, place, min(OWN_LOOK_S, budget_s))
    except Exception as error:  # noqa: BLE001  # whatever breaks our own look, root's answer is still worth waiting for
        trouble = f"{type(error).__name__}: {error}"
    answer = wait_for_root(place, began, until) if noted else None
    document = {
        "schema": SCHEMA,
        "node": host.node,
        "note": noted,
        "root": answer,
        "report": report_document(report) if report else None,
        "trouble": trouble,
        "enforce": enforce,
    }
    for line in wire.lines(host.node, document):
        print(line)
    sys.stdout.flush()
    return 0


def leave_note(place: Paths, job: str, now: Clock) -> tuple[bool, str]:
    """Leave a suspect note; whether that worked, and why not when the folder is there and refuses it."""
    name = f"{place.suspects}/job-{job}-{os.urandom(6).hex()}"
    text = json.dumps({"job": job, "uptime": round(now.uptime, 3)}) + "\n"
    try:
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        return False, ""
    except OSError as error:
        return False, f"no note could be left: {error.strerror}"
    try:
        os.write(fd, text.encode())
    except OSError as error:  # an empty note counts like any other
        return True, f"the note is incomplete: {error.strerror}"
    finally:
        os.close(fd)
    return True, ""


def enforcing(place: Paths) -> bool:
    """Whether root's hooks act on this node by its configuration; what a user cannot read counts as no."""
    from hpkit import config
    from hpkit.errors import ConfigError

    try:
        return config.load(place.etc, trusted_only=False).mode == "enforce"
    except ConfigError:
        return False


def look(host: Host, place: Paths, budget_s: float) -> Report:
    """The suite of the background round, in the step's view; raises what its parts raise."""
    from hpkit import catalog, checks, config, past, runner
    from hpkit.errors import ConfigError
    from hpkit.want import resolve

    try:
        site = config.load(place.etc, trusted_only=False)
    except ConfigError:
        site = config.Config()
    suite = site.hooks.health.suite
    rows = checks.select(catalog.suite(suite, site.suites))
    want = resolve(site.want, site.slurm, host)
    events = runner.run(
        rows,
        host,
        want,
        past.load(place),
        suite=suite,
        budget_s=budget_s,
        options=checks.settings(rows, site),
        jobs_here=True,
    )
    return runner.collect(events).report


def wait_for_root(place: Paths, began: Clock, until: float) -> Mapping[str, Any] | None:
    """Root's answer by a round that began after the note; None when none came before `until` (monotonic seconds)."""
    loud = int(os.environ.get("SLURM_PROCID") or 0) < TICKERS
    tick = time.monotonic() + TICK_S
    while True:
        answer = read_answer(place, began)
        if answer is not None:
            return answer
        now = time.monotonic()
        if now >= until:
            return None
        if loud and now >= tick:
            print(f"{wire.MARK} tick", flush=True)
            tick = now + TICK_S
        time.sleep(min(POLL_S, until - now))


def read_answer(place: Paths, began: Clock) -> Mapping[str, Any] | None:
    """The answer file when root wrote it, in this boot, in a round that began after `began`."""
    found = files.read_owned(f"{place.run}/answer.json", ANSWER_LIMIT)
    if found is None or found.uid != 0:
        return None
    try:
        answer = json.loads(found.data)
    except ValueError:
        return None
    if (
        not isinstance(answer, dict)
        or answer.get("schema") != ANSWER
        or answer.get("boot_id") != began.boot_id
    ):
        return None
    written = answer.get("written")
    return answer if isinstance(written, (int, float)) and written > began.uptime else None
