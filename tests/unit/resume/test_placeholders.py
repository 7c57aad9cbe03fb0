"""{checkpoint} and {step}: filled in, or dropped with the flag that announced them."""

from __future__ import annotations

import pytest

from hpkit.resume.options import parse
from hpkit.resume.placeholders import Source, fill, variables, wanted
from hpkit.resume.srun_options import Table

FOUND = Source("/ckpt/step 7", 7)
NOTHING = Source()


def filled(words: list[str], source: Source) -> list[str]:
    return list(fill(parse(words, lambda: Table({}, {})), source).words)


@pytest.mark.parametrize(
    ("words", "with_one", "without"),
    [
        (
            ["p", "--ckpt", "{checkpoint}", "--lr", "1"],
            ["p", "--ckpt", "/ckpt/step 7", "--lr", "1"],
            ["p", "--lr", "1"],
        ),
        (["p", "--ckpt={checkpoint}"], ["p", "--ckpt=/ckpt/step 7"], ["p"]),
        (["p", "--bf16", "--ckpt={checkpoint}"], ["p", "--bf16", "--ckpt=/ckpt/step 7"], ["p", "--bf16"]),
        (["p", "--lr=1", "{checkpoint}"], ["p", "--lr=1", "/ckpt/step 7"], ["p", "--lr=1"]),
        (["p", "a", "{checkpoint}", "b"], ["p", "a", "/ckpt/step 7", "b"], ["p", "a", "b"]),
        (["p", "-r", "{step}"], ["p", "-r", "7"], ["p"]),
        (["p", "ckpt.dir={checkpoint}"], ["p", "ckpt.dir=/ckpt/step 7"], ["p"]),
        (["p", "--", "{checkpoint}"], ["p", "--", "/ckpt/step 7"], ["p", "--"]),
        (["p", "{other}", "{}"], ["p", "{other}", "{}"], ["p", "{other}", "{}"]),
        (
            ["p", "--filename", "{epoch}-{step}", "-x"],
            ["p", "--filename", "{epoch}-{step}", "-x"],
            ["p", "--filename", "{epoch}-{step}", "-x"],
        ),
        (["p", "{step}-{val_loss:.2f}"], ["p", "{step}-{val_loss:.2f}"], ["p", "{step}-{val_loss:.2f}"]),
        (
            ["sh", "-c", "t -f {epoch}-{step} -c ${D}/{step}"],
            ["sh", "-c", "t -f {epoch}-{step} -c ${D}/7"],
            ["sh", "-c", "t -f {epoch}-{step}"],
        ),
        (["p", '{"from":"{checkpoint}"}'], ["p", '{"from":"/ckpt/step 7"}'], ["p"]),
        (["-o", "{step}.log", "p"], ["-o", "{step}.log", "p"], ["-o", "{step}.log", "p"]),
        (["{checkpoint}", "x"], ["{checkpoint}", "x"], ["{checkpoint}", "x"]),
        (
            ["bash", "-c", "python t.py --ckpt {checkpoint} --lr 1"],
            ["bash", "-c", "python t.py --ckpt /ckpt/step 7 --lr 1"],
            ["bash", "-c", "python t.py --lr 1"],
        ),
        (
            ["bash", "-c", "t \\\n  --bf16 --ckpt={checkpoint} \\\n  --lr 1"],
            ["bash", "-c", "t \\\n  --bf16 --ckpt=/ckpt/step 7 \\\n  --lr 1"],
            ["bash", "-c", "t \\\n  --bf16 \\\n  --lr 1"],
        ),
        (
            ["a", "{step}", ":", "-N1", "b", "{step}"],
            ["a", "7", ":", "-N1", "b", "7"],
            ["a", ":", "-N1", "b"],
        ),
    ],
)
def test_filled_or_dropped(words: list[str], with_one: list[str], without: list[str]) -> None:
    assert filled(words, FOUND) == with_one
    assert filled(words, NOTHING) == without


def test_a_checkpoint_without_a_step_fills_the_path_only() -> None:
    assert filled(["p", "--c", "{checkpoint}", "--s", "{step}"], Source("/c", None)) == ["p", "--c", "/c"]


def test_components_stay_right_after_filling() -> None:
    done = fill(parse(["-N1", "a", "-x", "{step}", ":", "-N2", "b"], lambda: Table({}, {})), NOTHING)
    assert [(c.start, c.program, c.end) for c in done.components] == [(0, 1, 2), (3, 4, 5)]


def test_whether_a_placeholder_is_there() -> None:
    def asks(*words: str) -> bool:
        return wanted(parse(words, lambda: Table({}, {})))

    assert not asks("p", "x{step}") and asks("a", ":", "b", "{checkpoint}")
    assert not asks("p", "{nodes}") and not asks("-o", "{step}", "p")


def test_variables() -> None:
    assert variables(FOUND, 2) == {
        "HPKIT_CHECKPOINT": "/ckpt/step 7",
        "HPKIT_CHECKPOINT_STEP": "7",
        "HPKIT_ATTEMPT": "2",
    }
    assert variables(NOTHING, 1) == {
        "HPKIT_CHECKPOINT": "",
        "HPKIT_CHECKPOINT_STEP": "",
        "HPKIT_ATTEMPT": "1",
    }
