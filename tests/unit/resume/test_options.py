"""hp-srun's command line: ours out, srun's untouched and in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.errors import UsageError
from hpkit.resume.options import Command, parse
from hpkit.resume.srun_options import NONE, OPTIONAL, REQUIRED, Table, known

PLUGIN = Table({"container-image": REQUIRED, "container-mount-home": NONE, "odd": NONE}, {"y": "odd"})


def plugin() -> Table:
    return PLUGIN


def split(line: str) -> Command:
    return parse(line.split(), plugin)


@pytest.mark.parametrize(
    ("line", "words", "ours"),
    [
        ("-N2 python t.py", "-N2 python t.py", []),
        ("--auto-resume=1 -N 2 python", "-N 2 python", [("auto-resume", "1")]),
        ("-N 2 --auto-resume python", "-N 2 python", [("auto-resume", "1")]),
        ("--auto-resume=0 python", "python", [("auto-resume", "0")]),
        ("-l --hp-state-dir /s -n4 --hp-answer=3 p", "-l -n4 p", [("state-dir", "/s"), ("answer", "3")]),
        ("--hp-dry-run p", "p", [("dry-run", "1")]),
        ("--hp-dry-run=0 p", "p", [("dry-run", "0")]),
        ("python --auto-resume=1 --hp-answer 3", "python --auto-resume=1 --hp-answer 3", []),
        ("-- --auto-resume", "-- --auto-resume", []),
        ("--comment --auto-resume p", "--comment --auto-resume p", []),
        ("-J --hp-dry-run p", "-J --hp-dry-run p", []),
        ("--comment=x --hp-dry-run p", "--comment=x p", [("dry-run", "1")]),
        ("-lN 2 --auto-resume p", "-lN 2 p", [("auto-resume", "1")]),
        ("-lN2 --auto-resume p", "-lN2 p", [("auto-resume", "1")]),
        ("-K p --auto-resume", "-K p --auto-resume", []),
        ("-lK1 --auto-resume p", "-lK1 p", [("auto-resume", "1")]),
        ("--overlap p --hp-dry-run", "--overlap p --hp-dry-run", []),
        ("--parti main --auto-resume p", "--parti main p", [("auto-resume", "1")]),
        ("--container-image img --auto-resume p", "--container-image img p", [("auto-resume", "1")]),
        ("--container-mount-home --auto-resume p", "--container-mount-home p", [("auto-resume", "1")]),
        ("--never-heard-of p --auto-resume", "--never-heard-of p --auto-resume", []),
        ("-yl --auto-resume p", "-yl p", [("auto-resume", "1")]),
        ("-N1 a x : --auto-resume -N2 b y", "-N1 a x : -N2 b y", [("auto-resume", "1")]),
        ("-", "-", []),
        ("", "", []),
        ("-N", "-N", []),
    ],
)
def test_ours_are_taken_out(line: str, words: str, ours: list[tuple[str, str]]) -> None:
    found = split(line)
    assert found.words == tuple(words.split())
    assert found.ours == tuple(ours)


def test_components_and_what_they_were_given() -> None:
    found = split("-lK0 --nodes 2 a x : --jobid=7 b")
    first, second = found.components
    assert (first.start, first.program, first.end) == (0, 3, 5)
    assert (second.start, second.program, second.end) == (6, 7, 8)
    assert dict(first.given) == {"label": "", "kill-on-bad-exit": "0", "nodes": "2"}
    assert dict(second.given) == {"jobid": "7"}
    assert found.gives("jobid") and not found.gives("pty")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("--hp-resumeon=any p", "--hp-resume-on"),
        ("--hp-nothing-like-it p", "known:"),
        ("--hp-answer", "needs a value"),
    ],
)
def test_faults_of_ours_are_usage_errors(line: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        split(line)
    assert part in caught.value.message + caught.value.hint
    assert caught.value.code == 3


def test_the_installed_srun_is_asked_once_and_only_for_unknown_options() -> None:
    asked: list[int] = []

    def more() -> Table:
        asked.append(1)
        return PLUGIN

    parse("-N2 --label --kill-on-bad-exit=1 p".split(), more)
    assert asked == []
    parse("--container-image a --strange --stranger p".split(), more)
    assert asked == [1]


_TABLE = known()
_TEXT = st.text("ab{}:=-_/.0 '\"\n", max_size=6)
_BY_KIND = {k: sorted(n for n, t in _TABLE.long.items() if t == k) for k in (NONE, OPTIONAL, REQUIRED)}
_SHORT = {k: sorted(c for c in _TABLE.short if _TABLE.letter(c) == k) for k in (NONE, OPTIONAL, REQUIRED)}
_SRUN = st.one_of(
    st.sampled_from(_BY_KIND[NONE]).map(lambda n: [f"--{n}"]),
    st.builds(lambda n, v: [f"--{n}={v}"], st.sampled_from(_BY_KIND[OPTIONAL] + _BY_KIND[REQUIRED]), _TEXT),
    st.builds(lambda n, v: [f"--{n}", v], st.sampled_from(_BY_KIND[REQUIRED]), _TEXT),
    st.builds(lambda c, v: [f"-{c}", v], st.sampled_from(_SHORT[REQUIRED]), _TEXT),
    st.builds(
        lambda f, c, v: ["-" + "".join(f) + c + v],
        st.lists(st.sampled_from(_SHORT[NONE]), max_size=3),
        st.sampled_from(_SHORT[REQUIRED] + _SHORT[OPTIONAL]),
        st.text("abc019:,", min_size=1, max_size=4),
    ),
)
_OURS = st.one_of(
    st.sampled_from(["", "=0", "=1"]).map(lambda v: ([f"--auto-resume{v}"], ("auto-resume", v[1:] or "1"))),
    st.builds(lambda v: ([f"--hp-state-dir={v}"], ("state-dir", v)), _TEXT),
    st.builds(lambda v: (["--hp-state-dir", v], ("state-dir", v)), _TEXT),
    st.just((["--hp-dry-run"], ("dry-run", "1"))),
)
_PROGRAM = st.text("abc/.", min_size=1, max_size=5)
_ARGUMENT = st.one_of(_TEXT, st.sampled_from(["--auto-resume=1", "--hp-dry-run", "--", "-N"])).filter(
    lambda w: w != ":"
)
_COMPONENT = st.tuples(
    st.lists(st.one_of(_SRUN, _OURS), max_size=6), _PROGRAM, st.lists(_ARGUMENT, max_size=4)
)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(st.lists(_COMPONENT, min_size=1, max_size=3))
def test_ours_vanish_and_everything_else_stays_in_order(
    components: list[tuple[list[object], str, list[str]]],
) -> None:
    argv: list[str] = []
    expected: list[str] = []
    ours: list[tuple[str, str]] = []
    programs: list[int] = []
    for number, (options, program, arguments) in enumerate(components):
        if number:
            argv.append(":")
            expected.append(":")
        for option in options:
            if isinstance(option, tuple):
                argv += option[0]
                ours.append(option[1])
            else:
                assert isinstance(option, list)
                argv += option
                expected += option
        programs.append(len(expected))
        argv += [program, *arguments]
        expected += [program, *arguments]
    found = parse(argv, plugin)
    assert found.words == tuple(expected)
    assert found.ours == tuple(ours)
    assert [c.program for c in found.components] == programs


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.lists(st.text("-abcNKlw=:{} ", max_size=8), max_size=8))
def test_a_command_line_without_ours_comes_out_as_it_went_in(argv: list[str]) -> None:
    assert parse(argv, plugin).words == tuple(argv)
