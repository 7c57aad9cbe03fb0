"""Where a setting comes from, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hpkit.config import ResumeConfig
from hpkit.errors import UsageError
from hpkit.resume.settings import NAMES, Settings, resolve, variable


@pytest.mark.parametrize(
    ("ours", "env", "config", "expected"),
    [
        ([], {}, ResumeConfig(), 15.0),
        ([], {}, ResumeConfig(answer_s=3.0), 3.0),
        ([], {"HPKIT_ANSWER": "4"}, ResumeConfig(answer_s=3.0), 4.0),
        ([("answer", "5.5")], {"HPKIT_ANSWER": "4"}, ResumeConfig(answer_s=3.0), 5.5),
        ([("answer", "5"), ("answer", "6")], {}, ResumeConfig(), 6.0),
        ([], {"HPKIT_ANSWER": ""}, ResumeConfig(), 15.0),
    ],
)
def test_command_line_then_environment_then_configuration(
    ours: list[tuple[str, str]], env: Mapping[str, str], config: ResumeConfig, expected: float
) -> None:
    assert resolve(ours, env, config).answer_s == expected


def test_every_option_arrives_in_its_field() -> None:
    ours = [
        ("checkpoint-dir", "/c"), ("checkpoint-format", "hf"), ("resume-on", "any"), ("max-restarts", "3"),
        ("answer", "2"), ("state-dir", "/s"), ("begin-in", "5"), ("give-up-code", "9"), ("dry-run", "1"),
        ("auto-resume", "1"),
    ]  # fmt: skip
    assert resolve(ours, {}, ResumeConfig()) == Settings(True, True, "/c", "hf", "any", 3, 2.0, "/s", 5, 9)
    assert {name for name, _ in ours} == {*NAMES, "auto-resume"}


def test_every_option_has_a_variable() -> None:
    assert [variable(n) for n in ("checkpoint-dir", "max-restarts")] == [
        "HPKIT_CHECKPOINT_DIR",
        "HPKIT_MAX_RESTARTS",
    ]
    assert resolve((), {"HPKIT_DRY_RUN": "1"}, ResumeConfig()).dry_run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("resume-on", "software"), ("max-restarts", "-1"), ("max-restarts", "many"), ("answer", "1e3"), ("answer", "-1"),
        ("answer", "nan"), ("give-up-code", "0"), ("give-up-code", "256"), ("checkpoint-format", "zip"),
        ("checkpoint-dir", ""), ("begin-in", "1.5"), ("dry-run", "yes"), ("auto-resume", "2"), ("max-restarts", "²"),
        ("max-restarts", "9" * 5000), ("answer", "9" * 5000), ("begin-in", "0" * 5000),
    ],
)  # fmt: skip
def test_a_bad_value_is_refused_with_its_place(name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve([(name, value)], {}, ResumeConfig())
    assert name in caught.value.message and repr(value) in caught.value.message


def test_all_bad_values_are_told_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        resolve([("answer", "x")], {"HPKIT_MAX_RESTARTS": "y"}, ResumeConfig())
    assert "--hp-answer" in caught.value.message and "HPKIT_MAX_RESTARTS" in caught.value.message
