"""What `hpkit drain` and `hpkit undrain` share: names to nodes, one step for each node, one result for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hpkit import hostlist
from hpkit.commands.site import Site
from hpkit.errors import EXIT_DONE, EXIT_FAILED, EXIT_PARTLY, HpkitError, SlurmError, UsageError
from hpkit.policy import budget
from hpkit.result import Result
from hpkit.slurm import connect
from hpkit.slurm.client import Client, Node


class Step(NamedTuple):
    """What came of one node: `outcome` is one word, `text` says more; `good` when the node is as it was asked to be."""

    node: str
    outcome: str
    text: str
    good: bool


SILENT = ("unreachable", "timeout", "missing")
Act = Callable[[Client, Node, bool], Step]


def client_of(where: Site) -> Client:
    """The cluster of the configuration, else that of SLURM_CONF: a person at a shell chose it, root or not."""
    return connect(where.config.slurm, trusted_only=False)


def names_of(words: Sequence[str]) -> tuple[str, ...]:
    """The nodes that NODES means, each once; raises UsageError."""
    try:
        names = hostlist.expand(",".join(words))
    except (ValueError, HpkitError) as error:
        raise UsageError(str(error), "write node names as n1,n[3-5]") from error
    if not names:
        raise UsageError("no node named", "write node names as n1,n[3-5]")
    return names


def for_each(client: Client, names: Sequence[str], act: Act, dry_run: bool) -> list[Step]:
    """Do one thing to each node, each read just before; an unknown node or a refusal costs that node only.

    When Slurm falls silent the nodes that are left are not asked for. Raises SlurmError when it did not answer at all.
    """
    steps: list[Step] = []
    for at, name in enumerate(names):
        try:
            steps.append(act(client, client.node(name), dry_run))
        except SlurmError as error:
            silent = error.kind in SILENT
            if silent and not steps:
                raise
            steps.append(Step(name, error.kind, "; ".join(filter(None, (error.message, error.hint))), False))
            if silent:
                left = names[at + 1 :]
                return [*steps, *(Step(n, "not-asked", "Slurm does not answer", False) for n in left)]
    return steps


def read_back(client: Client, name: str) -> tuple[Node | None, str]:
    """The node after a write that Slurm accepted; when it is silent now, None and a remark: the write stands."""
    try:
        return client.node(name), ""
    except SlurmError as error:
        return None, f" (not read back: {error.message})"


def result(schema: str, steps: Sequence[Step], dry_run: bool, **more: Any) -> Result:
    """Exit code 0 when every node is as asked, 4 when some are, 1 when none is."""
    good = sum(step.good for step in steps)
    code = EXIT_DONE if good == len(steps) else EXIT_PARTLY if good else EXIT_FAILED
    width = max(len(step.node) for step in steps)
    mark = "would be " if dry_run else ""
    lines = [
        f"{s.node.ljust(width)}  {mark if s.outcome in ('drained', 'returned') else ''}{s.outcome}: {s.text}"
        for s in steps
    ]
    document = {"schema": schema, "dry_run": dry_run, "nodes": [step._asdict() for step in steps], **more}
    return Result(document, lines, code)


def budget_documents(uses: Sequence[budget.Use]) -> list[dict[str, Any]]:
    """The budget's use as the JSON documents hold it; the cluster's group is the empty name."""
    return [
        {"group": u.group, "nodes": u.size, "limit": u.limit, "used": list(u.drained), "left": u.left}
        for u in uses
    ]
