"""hp-srun's own settings: command line, then HPKIT_* in the environment, then [resume] in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hpkit.config import ResumeConfig
from hpkit.errors import UsageError


class Settings(NamedTuple):
    """What hp-srun shall do; the fields of `ResumeConfig` and two of its own. Times in seconds."""

    auto_resume: bool = False
    dry_run: bool = False
    checkpoint_dir: str = ""
    checkpoint_format: str = "auto"
    resume_on: str = "hardware"
    max_restarts: int = 0
    answer_s: float = 15.0
    state_dir: str = ""
    begin_in_s: int = 8
    give_up_code: int | None = None


class _Bad(ValueError):
    """A value that means nothing; the text says what was expected."""


class _Row(NamedTuple):
    field: str
    parse: Callable[[str], Any]


def _text(value: str) -> str:
    if not value:
        raise _Bad("a value")
    return value


def _format(value: str) -> str:
    from hpkit.checkpoints.registry import AUTO, FORMATS

    return _choice(AUTO, *FORMATS)(value)


def _choice(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in words:
            raise _Bad("one of " + ", ".join(words))
        return value

    return parse


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        digits = value.isascii() and value.isdecimal() and len(value) <= len(str(high))
        if not digits or not low <= int(value) <= high:
            raise _Bad(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(value: str) -> float:
        whole, _, part = value.partition(".")
        digits = whole + part
        if not (digits.isascii() and digits.isdecimal()) or not low <= float(value) <= high:
            raise _Bad(f"seconds from {low:g} to {high:g}")
        return float(value)

    return parse


def _switch(value: str) -> bool:
    if value not in ("0", "1"):
        raise _Bad("0 or 1")
    return value == "1"


_ROWS: Mapping[str, _Row] = {
    "checkpoint-dir": _Row("checkpoint_dir", _text),
    "checkpoint-format": _Row("checkpoint_format", _format),
    "resume-on": _Row("resume_on", _choice("hardware", "any")),
    "max-restarts": _Row("max_restarts", _whole(0, 1 << 20)),
    "answer": _Row("answer_s", _seconds(0, 600)),
    "state-dir": _Row("state_dir", _text),
    "begin-in": _Row("begin_in_s", _whole(0, 3600)),
    "give-up-code": _Row("give_up_code", _whole(1, 255)),
    "dry-run": _Row("dry_run", _switch),
}
NAMES = tuple(_ROWS)
FLAGS = frozenset({"dry-run"})


def variable(name: str) -> str:
    """The environment variable of an option: `max-restarts` is HPKIT_MAX_RESTARTS."""
    return "HPKIT_" + name.upper().replace("-", "_")


def resolve(ours: Sequence[tuple[str, str]], env: Mapping[str, str], config: ResumeConfig) -> Settings:
    """The settings in force; the last of repeated options wins. An empty variable counts as not set.

    Raises UsageError that names every faulty value, where it came from, and what was expected.
    """
    shared = {f: getattr(config, f) for f in ResumeConfig._fields if f in Settings._fields}
    found = Settings()._replace(**shared)
    given = dict(ours)
    problems: list[str] = []
    for name, row in _ROWS.items():
        source, text = f"--hp-{name}", given.get(name)
        if text is None:
            source, text = variable(name), env.get(variable(name)) or None
        if text is not None:
            found = _put(found, row, source, text, problems)
    if "auto-resume" in given:
        row = _Row("auto_resume", _switch)
        found = _put(found, row, "--auto-resume", given["auto-resume"], problems)
    if problems:
        raise UsageError("; ".join(problems), "hp-srun changed nothing and started nothing")
    return found


def _put(found: Settings, row: _Row, source: str, text: str, problems: list[str]) -> Settings:
    try:
        return found._replace(**{row.field: row.parse(text)})
    except _Bad as bad:
        problems.append(f"{source}: expected {bad}, found {text!r}")
        return found
