"""`hpkit config`: what holds, who said so, and every problem."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpkit import cli


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration folder of a node of our own."""
    monkeypatch.setenv("HPKIT_ROOT", str(tmp_path))
    folder = tmp_path / "root/etc/hpkit"
    (folder / "conf.d").mkdir(parents=True)
    return folder


def test_show_names_the_file_that_set_a_key(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (etc / "hpkit.toml").write_text('[want]\ngpus = 8\nmounts = ["/a"]\n[checks."gpu.ecc"]\nx = 1\n')
    (etc / "conf.d/20.toml").write_text("[want]\ngpus = 4\n")
    assert cli.main(["config", "show"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["want.gpus", "=", "4", "#", f"{etc}/conf.d/20.toml"] in lines
    assert ["want.mounts", "=", '["/a"]', "#", f"{etc}/hpkit.toml"] in lines
    assert ["mode", "=", '"observe"', "#", "default"] in lines
    assert ['checks."gpu.ecc".x', "=", "1", "#", f"{etc}/hpkit.toml"] in lines
    assert ["resume.give_up_code", "=", "(not", "set)", "#", "default"] in lines


def test_show_as_json_holds_the_whole_configuration(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (etc / "hpkit.toml").write_text('mode = "enforce"\n')
    assert cli.main(["config", "show", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "hpkit.config/1"
    assert document["config"]["mode"] == "enforce"
    assert document["config"]["hooks"]["prolog"] == {"suite": "prolog", "budget_s": 10.0}
    assert document["origins"] == {"mode": f"{etc}/hpkit.toml"}


def test_show_refuses_a_bad_configuration(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (etc / "hpkit.toml").write_text("mode = 3\n[want]\ngpu = 1\n")
    assert cli.main(["config", "show"]) == 3
    told = capsys.readouterr().err
    assert "want.gpu: unknown key (did you mean gpus?)" in told
    assert "mode: expected str, found int" in told


def test_check_without_files(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["config", "check"]) == 0
    assert capsys.readouterr().out == "no file: the defaults are used\n"


def test_check_tells_all_problems_of_all_kinds(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (etc / "hpkit.toml").write_text(
        'mode = 3\n[checks."gpu.ec"]\nenabled = true\n[checks."gpu.ecc"]\nno_such_option = 1\n'
        '[suites]\nmine = ["nic.*"]\n'
    )
    (etc / "conf.d/bad.toml").write_text("=")
    assert cli.main(["config", "check", "--json"]) == 3
    problems = json.loads(capsys.readouterr().out)["problems"]
    file = f"{etc}/hpkit.toml"
    assert problems[0].startswith(f"{etc}/conf.d/bad.toml: not valid TOML")
    assert problems[1:] == [
        f"mode: expected str, found int (in {file})",
        f'checks."gpu.ec": no such check (in {file})',
        f"suites.mine: no check matches 'nic.*' (in {file})",
        f'checks."gpu.ecc".no_such_option: unknown key (in {file})',
    ]


def test_a_good_file_is_counted(etc: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (etc / "hpkit.toml").write_text('mode = "enforce"\n[suites]\nmine = ["gpu.*"]\n')
    assert cli.main(["config", "check"]) == 0
    assert capsys.readouterr().out == "1 file read, no problem found\n"


def test_a_hook_whose_suite_does_not_exist_is_a_problem(
    etc: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (etc / "hpkit.toml").write_text(
        '[suites]\nmine = ["gpu.*"]\n[hooks.prolog]\nsuite = "mine"\nbudget_s = 9.0\n'
        '[hooks.epilog]\nsuite = "epilogue"\nbudget_s = 9.0\n'
    )
    assert cli.main(["config", "check", "--json"]) == 3
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert len(problems) == 1
    assert problems[0].startswith("hooks.epilog.suite: there is no suite 'epilogue' (there are basic, ")
    assert problems[0].endswith(f"(in {etc}/hpkit.toml)")
