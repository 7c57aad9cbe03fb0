"""Slurm's daemons: started under one folder, watched until they are ready, told apart by their stamps."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from hpkit import proc
from hpkit.errors import HpkitError
from hpkit.pids import Child
from hpkit.sandbox.ground import path_with
from hpkit.sandbox.slurmconf import Ports
from hpkit.sandbox.state import State

TOKEN = "HPKIT_SANDBOX_TOKEN"
POLL_S = 0.1
START_S = 40.0
FIRST_PORT, LAST_PORT = 20000, 32000  # below the kernel's range for outgoing connections
LOG_LINES = 5


@contextmanager
def reserved(count: int) -> Iterator[Ports]:
    """Free ports for a controller and `count` nodes, held until the block ends, so that no other sandbox takes them."""
    with ExitStack() as stack:
        found: list[int] = []
        at = FIRST_PORT + int.from_bytes(os.urandom(2), "little") % (LAST_PORT - FIRST_PORT)
        for offset in range(LAST_PORT - FIRST_PORT):
            port = FIRST_PORT + (at - FIRST_PORT + offset) % (LAST_PORT - FIRST_PORT)
            held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                held.bind(("0.0.0.0", port))
            except OSError:
                held.close()
                continue
            stack.callback(held.close)
            found.append(port)
            if len(found) > count:
                yield Ports(found[0], tuple(found[1:]))
                return
    raise HpkitError(f"no {count + 1} free TCP ports between {FIRST_PORT} and {LAST_PORT}")


def daemon_env(state: State) -> dict[str, str]:
    """The environment of the daemons; the token is in nobody else's."""
    return {
        "PATH": path_with(state.tools),
        "LC_ALL": "C",
        "HOME": "/",
        "SLURM_CONF": state.conf,
        TOKEN: state.token,
    }


def argv_of(state: State, name: str) -> list[str]:
    """The command line of a daemon: "munged", "slurmctld", or a node's name."""
    munge = f"{state.folder}/munge"
    if name == "munged":
        return [
            state.tools["munged"],
            "--foreground",
            "--force",  # it grumbles about folders of other owners above its own
            "--num-threads=2",
            f"--key-file={munge}/key",
            f"--socket={munge}/socket",
            f"--pid-file={munge}/munged.pid",
            f"--seed-file={munge}/seed",
        ]
    if name == "slurmctld":
        return [state.tools["slurmctld"], "-D", "-f", state.conf]
    return [state.tools["slurmd"], "-D", "-f", state.conf, "-N", name]


def start(state: State, name: str) -> Child:
    """Start one daemon in a session of its own; what it says before its log is open goes to log/NAME.out."""
    return proc.foreground(
        argv_of(state, name), env=daemon_env(state), new_session=True, log=f"{state.folder}/log/{name}.out"
    )


def wait_until(
    state: State,
    what: str,
    ready: Callable[[], bool],
    children: Mapping[str, Child],
    timeout_s: float = START_S,
) -> None:
    """Poll until `ready`; raises HpkitError with the daemon's own words when one ends or the time is over."""
    until = time.monotonic() + timeout_s
    while not ready():
        for name, child in children.items():
            rc = child.poll()
            if rc is not None:
                raise HpkitError(f"{name} ended with status {rc}: {last_words(state, name)}")
        if time.monotonic() > until:
            words = last_words(state, list(children)[-1])
            raise HpkitError(
                f"{what} after {timeout_s:.0f} s: {words}", f"see the logs in {state.folder}/log"
            )
        time.sleep(POLL_S)


def last_words(state: State, name: str) -> str:
    """The last lines that a daemon wrote."""
    for file_name in (f"{name}.out", f"{name}.log", f"slurmd-{name}.log"):
        try:
            with open(f"{state.folder}/log/{file_name}", encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in file if line.strip()]
        except OSError:
            continue
        if lines:
            return " / ".join(lines[-LOG_LINES:])
    return "it wrote nothing"


def munge_answers(state: State) -> bool:
    """Whether munged's socket takes a connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(f"{state.folder}/munge/socket")
        except OSError:
            return False
    return True


def slurm(state: State, tool: str, *args: str, timeout_s: float = 10.0) -> proc.Ran:
    """Run one of Slurm's commands as root against this sandbox."""
    return proc.run([state.tools[tool], *args], timeout_s=timeout_s, env={"SLURM_CONF": state.conf})


def controller_answers(state: State) -> bool:
    """Whether slurmctld answers."""
    return slurm(state, "scontrol", "ping").ok


def all_idle(state: State) -> bool:
    """Whether every node has registered and is idle."""
    ran = slurm(state, "sinfo", "-h", "-N", "-o", "%T")
    states = ran.text.split()
    return ran.ok and len(states) == state.settings.nodes and set(states) == {"idle"}
