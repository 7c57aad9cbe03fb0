"""A document across srun's output, in pieces and out of order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.resume.wire import MARK, PIECES_MAX, Joiner, lines

BIG = {"node": "n1", "text": "ä" * 5000, "list": list(range(300))}


def joined(*given: str) -> list[tuple[str, dict[str, Any]]]:
    joiner = Joiner()
    return [told for line in given if (told := joiner.feed(line))]


def test_no_line_is_longer_than_what_srun_passes_on_whole() -> None:
    assert all(len(line) < 1000 for line in lines("a-rather-long-node-name.example", BIG))


@settings(derandomize=True, max_examples=50, deadline=None)
@given(st.randoms(use_true_random=False))
def test_pieces_of_several_nodes_in_any_order(random: Any) -> None:
    sent = [line for n in ("n1", "n2", "n3") for line in lines(n, {**BIG, "node": n})]
    sent += ["noise", f"{MARK} tick", f"{MARK} n4 0 2 half"]
    random.shuffle(sent)
    assert sorted(joined(*sent)) == [(n, {**BIG, "node": n}) for n in ("n1", "n2", "n3")]


def test_what_is_no_piece_is_passed_over() -> None:
    bad = [
        "", MARK, f"{MARK} n1 0 1 not json", f"{MARK} n1 0 1 [1]", f"{MARK} n1 3 2 {{}}", f"{MARK} n1 x 1 {{}}",
        f"{MARK} n1 0 {PIECES_MAX + 1} {{}}", "other n1 0 1 {}",
    ]  # fmt: skip
    assert joined(*bad) == []
    assert joined(*bad, f"{MARK} n1 0 1 {{}}") == [("n1", {})]
