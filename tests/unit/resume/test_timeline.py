"""`hpkit attempts`: the timeline of a run from its record, and the list of runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpkit.commands.attempts import show
from hpkit.errors import HpkitError
from hpkit.resume.attempts import Key, Record
from hpkit.resume.timeline import attempts, lines


def event(name: str, at: float, restart: int = 0, **facts: Any) -> dict[str, Any]:
    return {"event": name, "at": at, "job": "7", "restart": restart, **facts}


END = {"seconds": 90.0, "code": 9, "cause": "hardware", "nodes": ["n2"], "why": "n2: gpu.count: 7 of 8 GPUs"}
EVENTS = [
    event("run", 99.0, cluster="big"),
    event("start", 100.0, attempt=1, checkpoint="", step=None),
    event("end", 192.0, asked_s=2.0, **END),
    event("plan", 192.0, action="requeue", why=""),
    event("requeue", 192.1, state="asked", id="a"),
    event("start", 201.5, 1, attempt=2, checkpoint="/c/step-40", step=40),
    event("end", 300.0, 1, code=0, seconds=98.5),
]


def test_recovery_is_from_the_end_of_the_step_to_the_next_start() -> None:
    first, second = attempts(EVENTS)
    assert (first["ended"], first["code"], first["recovery_s"]) == (190.0, 9, None)
    assert (second["step"], second["recovery_s"], second["code"]) == (40, 11.5, 0)


def test_a_refused_requeue_and_an_attempt_without_an_end() -> None:
    refused = [*EVENTS[:5], event("requeue", 250.0, state="refused", of="a", why="Access denied"), EVENTS[5]]
    first, second = attempts(refused)
    assert (first["requeue"], first["refused"]) == ("refused", "Access denied")
    assert second["recovery_s"] is None and second["ended"] is None
    told = "\n".join(lines({"job": "7", "cluster": "big", "attempts": [first, second]}))
    assert "requeue refused: Access denied" in told and "no end is recorded" in told


def test_the_text_tells_the_story() -> None:
    told = lines({"job": "7", "cluster": "big", "attempts": attempts(EVENTS)})
    assert told[0] == "job 7 on big: 2 attempts"
    assert (
        "from the beginning" in told[1] and "cause hardware (n2)" in told[2] and told[3].strip() == "requeued"
    )
    assert "from step 40, running again after 11.5 s" in told[4] and told[5].endswith("finished")


def test_a_run_is_found_by_its_job(tmp_path: Path) -> None:
    for job in ("7", "17", "120_7"):
        one = Record(Key("big", job), [str(tmp_path)], 0)
        one.append("run", cluster="big")
        one.append("start", attempt=1, step=None, checkpoint="")
    assert show("7", [str(tmp_path)]).document["job"] == "7"
    assert show("120_7", [str(tmp_path)]).document["job"] == "120_7"
    assert {run["job"] for run in show("", [str(tmp_path)]).document["runs"]} == {"7", "17", "120_7"}
    with pytest.raises(HpkitError, match="no record of job 8"):
        show("8", [str(tmp_path), "/no/such/folder"])


def test_a_run_is_found_through_the_link_in_the_users_folder(tmp_path: Path) -> None:
    one = Record(Key("big", "7"), [str(tmp_path / "data")], 0)
    one.append("run", cluster="big")
    one.link(str(tmp_path / "home"))
    found = show("7", [str(tmp_path / "home")])
    assert found.document["record"] == os.path.realpath(one.path)


def test_a_record_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "big-7.jsonl").write_text("garbage\n")
    with pytest.raises(HpkitError, match="cannot be read"):
        show("7", [str(tmp_path)])
    assert show("", [str(tmp_path)]).lines == ["no runs are recorded"]
