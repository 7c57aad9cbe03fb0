"""This machine, or a sandbox node: a bundle folder whose files are read and whose tools are run."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

from hpkit import proc
from hpkit.errors import HpkitError
from hpkit.hosts.space import space_from, statvfs
from hpkit.hosts.stuck import Stuck
from hpkit.hosts.tree import BOOT_ID, Tree
from hpkit.model import Clock, Space, Unread, View
from hpkit.paths import paths
from hpkit.proc import Ran
from hpkit.trust import find_tool

VENDOR_FOLDERS = ("/opt/aws/neuron/bin", "/opt/amazon/efa/bin", "/usr/local/cuda/bin", "/opt/slurm/bin")
"""Where the Neuron, EFA and CUDA installers and AWS ParallelCluster put their tools, outside the usual PATH."""

STEP_VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES", "SLURMD_NODENAME", "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS",
    "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_PROCID", "SLURM_STEP_GPUS",
    "SLURM_STEP_ID",
)  # fmt: skip


def nvml_child() -> tuple[str, ...]:
    """How the NVML child is started: without site, which may cost more than NVML, when we find pynvml ourselves."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    child = os.path.join(package, "probes", "nvml_child.py")
    prefix = os.path.dirname(os.path.dirname(sys.executable))
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for folder in (os.path.dirname(package), f"{prefix}/lib/{version}/site-packages"):
        if os.path.isfile(f"{folder}/pynvml.py"):
            return (sys.executable, "-I", "-S", child, folder)
    return (sys.executable, "-I", child)


class LiveHost:
    """The machine as it is now. `root` is empty, or a sandbox node's folder: then no file comes from elsewhere."""

    def __init__(self, root: str = "", view: View | None = None) -> None:
        self._root = os.path.abspath(root) if root else ""
        self._tree = Tree(f"{self._root}/root" if root else "")
        self._stuck = Stuck(f"{paths(self._root).run}/stuck.json")
        self.view = view or (View.STEP if os.environ.get("SLURM_JOB_ID") else View.NODE)
        self.uid = os.geteuid()
        self.node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
        self.env: Mapping[str, str] = {
            name: value for name in STEP_VARIABLES if (value := os.environ.get(name)) is not None
        }

    def now(self) -> Clock:
        """Wall time, uptime (CLOCK_BOOTTIME) and boot id."""
        found = self._tree.read(BOOT_ID, 256)
        boot_id = "" if isinstance(found, Unread) else found.decode("ascii", "replace").strip()
        return Clock(time.time(), time.clock_gettime(time.CLOCK_BOOTTIME), boot_id)

    def read(self, path: str, limit: int = 1 << 20) -> bytes | Unread:
        """See Host.read."""
        return self._tree.read(path, limit)

    def list(self, path: str) -> tuple[str, ...] | Unread:
        """See Host.list."""
        return self._tree.list(path)

    def link(self, path: str) -> str | Unread:
        """See Host.link."""
        return self._tree.link(path)

    def space(self, path: str, timeout_s: float) -> Space | Unread:
        """See Host.space. A sandbox node's answers/space.json overrides what is there; it may make us hang, too."""
        given = self._space_answer(path)
        if given is not None and "hang" not in given:
            return space_from(path, given)
        name = f"statvfs {path}"
        if self._stuck.answer((name,), name):
            return Unread(path, errno.ETIMEDOUT, "an earlier look at it still hangs")
        try:
            hang_s = float(given["hang"]) if given else 0.0
            ran = proc.apart(lambda: statvfs(lambda: self._tree.resolve(path), hang_s), timeout_s=timeout_s)
        except (OSError, TypeError, ValueError) as error:
            number = getattr(error, "errno", None) or errno.EINVAL
            return Unread(path, number, os.strerror(number))
        self._stuck.note(name, ran)
        if ran.failure:
            return Unread(path, errno.ETIMEDOUT, f"no answer in {timeout_s:g} s")
        return space_from(path, json.loads(ran.stdout) if ran.ok else {"errno": errno.EIO})

    def run(self, tool: str, *args: str, timeout_s: float) -> Ran:
        """See Host.run. As root, a tool that a non-root user could change is "denied", and stderr says why."""
        argv = (tool, *args)
        command = self._command(argv)
        if isinstance(command, Ran):
            return command
        ran = proc.run(command, timeout_s=timeout_s)._replace(argv=argv)
        self._stuck.note(tool, ran)
        return ran

    def stream(self, tool: str, *args: str, timeout_s: float) -> Generator[str, None, Ran]:
        """See Host.stream."""
        argv = (tool, *args)
        command = self._command(argv)
        if isinstance(command, Ran):
            return command
        ran = yield from proc.stream(command, timeout_s=timeout_s)
        ran = ran._replace(argv=argv)
        self._stuck.note(tool, ran)
        return ran

    def _space_answer(self, path: str) -> dict[str, Any] | None:
        """What answers/space.json of a sandbox node says about a path."""
        if not self._root:
            return None
        found = Tree(self._root).read("/answers/space.json", 1 << 20)
        try:
            answers = {} if isinstance(found, Unread) else json.loads(found)
            answer = answers.get(path)
        except (ValueError, AttributeError, RecursionError):
            return None
        return answer if isinstance(answer, dict) else None

    def _command(self, argv: tuple[str, ...]) -> Sequence[str] | Ran:
        """The command line of a tool, or, when it is not to be started, its result."""
        if ran := self._stuck.answer(argv, argv[0]):
            return ran
        try:
            program = self._program(argv[0])
        except HpkitError as error:
            return Ran(argv, proc.NO_STATUS, b"", error.message.encode(), 0.0, "denied")
        if not program:
            return Ran(argv, proc.NO_STATUS, b"", f"no tool {argv[0]} here".encode(), 0.0, "missing")
        return (*program, *argv[1:])

    def _program(self, tool: str) -> tuple[str, ...]:
        """How a tool is started, empty when there is none. Raises HpkitError for one that is not trusted.

        Where a sandbox lies is its owner's choice, so trust in its tools begins at its own folder.
        """
        as_root = self.uid == 0
        if self._root and (own := find_tool(tool, (f"{self._root}/bin",), as_root, self._root)):
            return (own,)
        if tool == "nvml":
            return nvml_child()
        found = find_tool(tool, (*proc.PATH.split(":"), *VENDOR_FOLDERS), as_root)
        return (found,) if found else ()
