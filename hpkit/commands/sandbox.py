"""`hpkit sandbox`: a real Slurm cluster on this machine, with simulated GPU nodes that can be broken and mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpkit.commands.options import output
from hpkit.result import Result, Running

if TYPE_CHECKING:
    from hpkit.sandbox.cluster import Cluster

F = TypeVar("F", bound=Callable[..., Any])
SCHEMA = "hpkit.sandbox/1"


@click.group()
def command() -> None:
    """A real Slurm cluster on this machine, to try hpkit on.

    Real munged, slurmctld and slurmd, one per node, with simulated GPUs and hpkit's hooks. Needs root.
    """


def where(function: F) -> F:
    """Add --dir."""
    return click.option(
        "--dir",
        "folder",
        default="",
        help="The sandbox's folder [default: HPKIT_SANDBOX, /var/tmp/hpkit-sandbox-UID]",
    )(function)


@command.command()
@click.option("--nodes", default=4, show_default=True, help="How many nodes.")
@click.option("--gpus", default=8, show_default=True, help="How many GPUs each node has.")
@click.option("--user", default="", help="Whose jobs run [default: who called sudo, else a system account].")
@where
@output()
def up(nodes: int, gpus: int, user: str, folder: str) -> Running:
    """Start the cluster."""
    from hpkit.sandbox import cluster
    from hpkit.sandbox.ground import program
    from hpkit.sandbox.slurmconf import Settings
    from hpkit.sandbox.state import default_folder

    started = yield from cluster.starting(folder, Settings(nodes=nodes, gpus=gpus, user=user))
    state = started.state
    account, env = state.account, started.env()
    typed = program()
    dir_ = "" if state.folder == default_folder() else f" --dir {state.folder}"
    lines = [
        f"The sandbox is in {state.folder}. To use it as {account.name}, an ordinary user:",
        f"  setpriv --reuid={account.uid} --regid={account.gid} --init-groups bash",
        f"  export SLURM_CONF={env['SLURM_CONF']} HPKIT_ROOT={env['HPKIT_ROOT']} PATH={state.folder}/bin:$PATH",
        f"  export HOME={env['HOME']}; cd",
        f"  srun -w {started.names[-1]} hpkit check; srun -w {started.names[-1]} hpkit doctor",
        f"As root: {typed} sandbox break {started.names[0]} gpu-lost{dir_}, then status, heal {started.names[0]}, down",
        f"  SLURM_CONF={env['SLURM_CONF']} {typed} status",
    ]
    return Result({"schema": SCHEMA, "folder": state.folder, "env": env, "nodes": list(started.names)}, lines)


@command.command()
@where
@output()
def status(folder: str) -> Result:
    """Show the nodes, what is broken, and whether the daemons live."""
    from hpkit import pids

    cluster = attached(folder)
    daemons = {name: pids.alive(stamp) for name, stamp in cluster.state.processes.items()}
    dead = [name for name, alive in daemons.items() if not alive]
    rows = node_rows(cluster) if daemons.get("slurmctld") else []
    table = [("NODE", "STATE", "BROKEN", "REASON")]
    table += [(r["node"], r["state"], " ".join(r["faults"]) or "-", r["reason"] or "-") for r in rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)] + [0]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in table]
    notes = [f"not running: {', '.join(dead)}"] if dead else []
    document = {
        "schema": "hpkit.sandbox.status/1",
        "folder": cluster.folder,
        "daemons": daemons,
        "nodes": rows,
    }
    return Result(document, lines, 1 if dead else 0, notes)


def node_rows(cluster: Cluster) -> list[dict[str, Any]]:
    """One row per node: Slurm's state and reason, and the faults it was given."""
    return [
        {
            "node": node.name,
            "state": "+".join(sorted(node.flags)),
            "reason": node.reason,
            "faults": list(cluster.state_of(node.name).faults),
        }
        for node in cluster.client.nodes()
    ]


def fault_list() -> str:
    """The faults for the help text of break, one a line."""
    from hpkit.sandbox.faults import FAULTS

    rows = []
    for name, row in FAULTS.items():
        form = f"{name}:{(row.default or row.takes.upper()) if row.takes else ''}".rstrip(":")
        rows.append(f"  {form:<20} {row.about}")
    return "\n".join(rows)


class BreakHelp(click.Command):
    """Shows the table of faults below the help, read from the rows themselves."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The faults."""
        formatter.write_paragraph()
        formatter.write("Faults:\n" + fault_list() + "\n")


@command.command("break", cls=BreakHelp)
@click.argument("node")
@click.argument("fault")
@where
@output()
def break_(node: str, fault: str, folder: str) -> Result:
    """Break something on NODE: gpu-lost, xid:79, mount-dead …

    A running job goes on until its program fails; the node is drained all the same.
    """
    cluster = attached(folder, "to break a simulated node")
    cluster.brk(node, fault)
    faults = list(cluster.state_of(node).faults)
    return Result(
        {"schema": SCHEMA, "node": node, "faults": faults}, [f"{node} is broken: {' '.join(faults)}"]
    )


@command.command()
@click.argument("node")
@click.option("--no-reboot", is_flag=True, help="Mend it without a simulated reboot.")
@where
@output()
def heal(node: str, no_reboot: bool, folder: str) -> Result:
    """Mend NODE and let it boot again: new boot id, empty kernel log."""
    cluster = attached(folder, "to mend a simulated node")
    cluster.heal(node, reboot=not no_reboot)
    how = "mended" if no_reboot else "mended and has booted again"
    return Result(
        {"schema": SCHEMA, "node": node, "faults": [], "rebooted": not no_reboot}, [f"{node} is {how}"]
    )


@command.command()
@click.option("--keep", is_flag=True, help="Keep the folder with its logs.")
@where
@output()
def down(keep: bool, folder: str) -> Result:
    """End the cluster and remove its folder.

    Ended are exactly its own processes, and what came from them.
    """
    cluster = attached(folder, "to end the daemons")
    cluster.down(keep)
    return Result(
        {"schema": SCHEMA, "folder": cluster.folder}, ["the sandbox is down; nothing of it runs any more"]
    )


@command.command()
@where
@output()
def demo(folder: str) -> Running:
    """Watch hpkit save a training run.

    A GPU is lost, the job goes on elsewhere from its checkpoint.
    """
    from hpkit.sandbox.demo import play

    return (yield from play(folder))


def attached(folder: str, root_for: str = "") -> Cluster:
    """The sandbox that is up; raises HpkitError when only root may do what `root_for` says."""
    from hpkit.sandbox.cluster import attach
    from hpkit.sandbox.ground import need_root

    cluster = attach(folder)
    if root_for:
        need_root(f"you must be root {root_for}")
    return cluster
