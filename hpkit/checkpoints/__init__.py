"""Finds the newest checkpoint that proves complete. Knows nothing of Slurm, and imports no framework.

`choose` proves candidates from the highest step down until one is complete; `listing` proves them all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from hpkit.checkpoints import registry
from hpkit.checkpoints.model import Candidate, Choice
from hpkit.checkpoints.search import Search
from hpkit.checkpoints.tree import Tree
from hpkit.errors import UsageError

__all__ = ["BUDGET_S", "Candidate", "Choice", "choose", "listing"]

BUDGET_S = 60.0
_GRACE_S = 0.5
"""Seconds beyond the budget before a search that does not come back is given up."""


def choose(folder: str, format: str = registry.AUTO, budget_s: float = BUDGET_S) -> Choice:
    """The complete checkpoint with the highest step in `folder`, within `budget_s` seconds.

    A tracker or `latest` link whose target is complete is obeyed, with a warning when a higher step is complete too.
    Raises UsageError for an unknown format or an empty path, and nothing for what the folder holds.
    """
    return _search(folder, format, budget_s, everything=False)


def listing(folder: str, format: str = registry.AUTO, budget_s: float = BUDGET_S) -> Choice:
    """Like `choose`, with every candidate proven."""
    return _search(folder, format, budget_s, everything=True)


def absolute(folder: str) -> str:
    """An absolute path with the user's own spelling: links and `..` stay."""
    path = os.path.join(os.getcwd(), folder)
    path = path[: -len("/.")] if path.endswith("/.") else path
    return path.rstrip("/") or "/"


def _search(folder: str, format: str, budget_s: float, *, everything: bool) -> Choice:
    if not folder or "\0" in folder:
        raise UsageError(
            "no folder to search for checkpoints", "give the folder that the training saves into"
        )
    formats = registry.select(format)
    explicit = format != registry.AUTO
    return guarded(
        Search(absolute(folder), formats, everything=everything, explicit=explicit), folder, budget_s
    )


def guarded(
    search: Search, folder: str, budget_s: float, make_tree: Callable[[str, float], Tree] = Tree
) -> Choice:
    """Run a search in a thread of its own, and conclude without it when a dead file system holds it in the kernel."""
    problems: list[BaseException] = []

    def work() -> None:
        try:
            search.run(make_tree(folder, budget_s))
        except BaseException as error:  # noqa: BLE001 - raised again where the caller can see it
            problems.append(error)

    worker = threading.Thread(target=work, name="checkpoints", daemon=True)
    worker.start()
    worker.join(max(budget_s, 0.0) + _GRACE_S)
    if problems:
        raise problems[0]
    late = f"the file system did not answer within {budget_s:g} s" if worker.is_alive() else ""
    return search.conclude(late)
