"""hpkit checkpoint: what goes to standard output and what does not, exit codes, names of any bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpkit.commands.checkpoint import latest, list_all
from tests.support import make_checkpoints as make

MAIN = "import sys; from hpkit.cli import main; sys.exit(main())"


def hpkit(*args: str | Path) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, so that its streams are real."""
    return subprocess.run([sys.executable, "-c", MAIN, "checkpoint", *args], capture_output=True, check=False)


def three(folder: Path) -> Path:
    """Steps 10, 20 and a torn 30."""
    for step in (10, 20, 30):
        make.dcp(folder / f"step_{step}")
    make.DCP_TEARS["no .metadata"](folder / "step_30")
    return folder


def test_latest_prints_the_path_and_nothing_else_on_standard_output(tmp_path: Path) -> None:
    ran = hpkit("latest", three(tmp_path))
    assert (ran.returncode, ran.stdout) == (0, f"{tmp_path}/step_20\n".encode())
    assert ran.stderr == b"passed over: step_30: no .metadata: the save did not end\n"


def test_latest_ends_the_path_with_nul_when_asked(tmp_path: Path) -> None:
    assert hpkit("latest", "--null", three(tmp_path)).stdout == f"{tmp_path}/step_20\0".encode()


@pytest.mark.parametrize("name", (b"step\n7", b"step 7", b"step_\xff_7", "step_\u00e9_7".encode()))
def test_names_of_any_bytes(tmp_path: Path, name: bytes) -> None:
    make.dcp(tmp_path / os.fsdecode(name))
    wanted = os.fsencode(tmp_path) + b"/" + name
    assert hpkit("latest", "-0", tmp_path).stdout == wanted + b"\0"
    ran = hpkit("latest", "--json", tmp_path)
    assert os.fsencode(json.loads(ran.stdout)["path"]) == wanted
    listed = hpkit("list", tmp_path)
    assert listed.returncode == 0
    assert len(listed.stdout.splitlines()) == 2


ANSWERS = {
    "bad": ("none complete", 1),
    "empty": ("nothing there", 1),
    "absent": ("nothing there", 1),
    "file": ("unreadable", 1),
    "good": ("found", 0),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("verb", ("latest", "list"))
def test_text_json_and_exit_codes_tell_the_answers_apart(tmp_path: Path, name: str, verb: str) -> None:
    answer, code = ANSWERS[name]
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad" / "step_1").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    three(tmp_path / "good")
    ran = hpkit(verb, "--json", tmp_path / name)
    document = json.loads(ran.stdout)
    assert ran.returncode == code
    assert (document["schema"], document["answer"]) == ("hpkit.checkpoints/1", answer)
    if code and verb == "latest":
        ran = hpkit(verb, tmp_path / name)
        assert (ran.returncode, ran.stdout) == (code, b"")
        assert ran.stderr.decode().startswith(f"{answer}: {tmp_path}/{name}: ")


@pytest.mark.parametrize(
    "args", (("latest", "--format", "gguf", "/tmp"), ("latest",), ("newest", "/tmp"), ("list", ""))
)
def test_wrong_usage_exits_3(args: tuple[str, ...]) -> None:
    ran = hpkit(*args)
    assert (ran.returncode, ran.stdout) == (3, b"")


def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    (three(tmp_path) / "latest").symlink_to("step_10")
    result = latest(str(tmp_path))
    assert list(result.lines) == [f"{tmp_path}/step_10"]
    assert result.notes[0].startswith(
        "warning: latest names step 10, which is taken, although step 20 is complete"
    )
    assert list_all(str(tmp_path)).notes == list(result.notes[:1])


def test_list_shows_each_candidate_and_marks_the_choice(tmp_path: Path) -> None:
    head, *rows = list_all(str(three(tmp_path))).lines
    assert head.split() == ["STEP", "FORMAT", "SIZE", "AGE", "VERDICT", "NAME", "AND", "REASON"]
    assert [row.split()[:2] for row in rows] == [["30", "dcp"], ["*", "20"], ["10", "dcp"]]
    assert rows[0].endswith("incomplete  step_30: no .metadata: the save did not end")
    assert rows[1].endswith("complete    step_20")
