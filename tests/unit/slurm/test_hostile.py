"""Texts that somebody made up: no traceback, nothing taken for what it is not, nobody else's job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError, UsageError
from hpkit.slurm import documents, parse
from hpkit.slurm.commands import Commands
from hpkit.slurm.names import WRITABLE_JOB, job_name
from tests.support import slurm_texts as texts

HUGE = "9" * 5000  # Python itself refuses to read more than 4300 digits
ROOT = "x\n   UserId=root(0) GroupId=root(0) MCS_label=x\n   Priority=1 Nice=0"
# str.splitlines and \\s take all of these for ends of lines or blanks, Slurm none of them.
MARKS = (
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1d",
    "\x1e",
    "\x85",
    "\xa0",
    "\u2028",
    "\u2029",
    "\ufffd",
    "\x00",
    "\t",
    "\r",
)


def garbled(call: Any, *args: Any) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        call(*args)
    assert caught.value.kind == "garbled"
    return caught.value


def labelled(label: str, name: str = "train") -> str:
    """A job with a label of the plugin mcs/label (26.05), which takes any text that a user gives."""
    return texts.job(name=name).replace("MCS_label=N/A", f"MCS_label={label}")


@pytest.mark.parametrize(
    "text",
    [
        labelled("a b", ROOT),  # its real line is passed over, so that the forged one is the only one
        labelled("a\n   b", ROOT),
        labelled("a\n   Priority=7 "),
        labelled("a UserId=root(0) GroupId=root(0) MCS_label=b\n   Priority=7 "),
    ],
)
def test_a_label_of_the_users_own(text: str) -> None:
    garbled(parse.job, text, "41")


def test_an_honest_label() -> None:
    assert parse.job(labelled("team-a"), "41") == parse.job(texts.job(), "41")


@pytest.mark.parametrize("mark", MARKS, ids=ascii)
def test_marks_that_are_no_ends_of_lines(mark: str) -> None:
    said = f"x{mark}NodeName=t9{mark}State=DOWN{mark}ThreadsPerCore=1 "
    for field in ("name", "comment", "workdir", "features"):
        assert parse.job(texts.job(**{field: f"a{mark}b"}), "41").user_id == 2001
    (found,) = parse.nodes(texts.node(state="IDLE", reason=said, comment=said))
    assert (found.name, found.flags, found.reason) == ("t1", {"IDLE"}, said)


def test_a_million_letters() -> None:
    assert parse.job(texts.job(name="x=" * (1 << 19), comment="y " * (1 << 19)), "41").id == "41"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NumNodes=2", "NumNodes=1.2.3"),
        ("NumNodes=2", "NumNodes=" + HUGE),
        ("ada(2001)", f"ada({HUGE})"),
        ("Restarts=3", f"Restarts={HUGE}"),
    ],
)
def test_numbers_that_are_none(old: str, new: str) -> None:
    garbled(parse.job, texts.job().replace(old, new), "41")


@pytest.mark.parametrize(
    "line",
    [
        "0|N/A|²|0|RUNNING|p|n|h|1",
        f"0|N/A|{HUGE}|0|RUNNING|p|n|h|1",
        "0|N/A|1|٣|RUNNING|p|n|h|1",
        "0|N/A|1",
        "",
    ],
    ids=lambda line: line[:12],
)
def test_lines_of_the_queue_that_are_none(line: str) -> None:
    garbled(parse.queue_line, line)


@pytest.mark.parametrize("errors", [5, True, "boom", {"error": "boom"}], ids=str)
def test_errors_that_are_no_list(errors: object) -> None:
    garbled(documents.job, texts.document(texts.record(), errors=errors), "41")


@pytest.mark.parametrize("number", [10**400, 1 << 64, 1e300])
def test_numbers_beyond_slurms(number: float) -> None:
    for key in ("start_time", "priority", "user_id"):
        garbled(documents.job, texts.document({**texts.record(), key: number}), "41")


@pytest.mark.parametrize("name", [HUGE, f"1_{HUGE}", f"1_[{HUGE}]", f"1_[0-{HUGE}]", f"1+{HUGE}", "١٢", "1²"])
def test_names_that_no_job_has(name: str) -> None:
    assert not WRITABLE_JOB.match(name)
    with pytest.raises(UsageError):
        job_name(name)


def tools(folder: Path, script: str, timeout_s: float = 5.0) -> Commands:
    for name in ("scontrol", "squeue"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return Commands(SlurmConfig(bin=str(folder), timeout_s=timeout_s), trusted_only=False)


@pytest.mark.parametrize("cut", ["Reason=", "\n\n"])
def test_half_a_node_is_none(tmp_path: Path, cut: str) -> None:
    """Where the text breaks off a reason may have stood."""
    whole = texts.node("t1", state="IDLE+DRAIN", reason="psu swap")
    for asked in (("t1",), None):
        (tmp_path / "said").write_text(whole[: whole.index(cut)].rstrip())
        garbled(tools(tmp_path, f"cat {tmp_path}/said").nodes, asked)
    (tmp_path / "said").write_text(whole)
    assert tools(tmp_path, f"cat {tmp_path}/said").node("t1").reason == "psu swap"


def test_half_a_job_is_none(tmp_path: Path) -> None:
    whole = texts.job(flags="ExpeditedRequeue=Yes")
    (tmp_path / "said").write_text(whole[: whole.index("OverSubscribe")])
    garbled(tools(tmp_path, f'case "$*" in *--json*) exit 1;; esac; cat {tmp_path}/said').job, "41")


@pytest.mark.parametrize(
    "script", ["exec yes", "exec yes NodeName=t1", "exec cat /dev/zero", "exec sleep 60"]
)
def test_answers_without_an_end(tmp_path: Path, script: str) -> None:
    slurm = tools(tmp_path, script, timeout_s=0.5)
    for call, args in ((slurm.nodes, ()), (slurm.job, ("41",)), (slurm.jobs_on, ("t1",)), (slurm.config, ())):
        with pytest.raises(SlurmError) as caught:
            call(*args)  # type: ignore[operator]
        assert caught.value.kind in ("garbled", "timeout")
