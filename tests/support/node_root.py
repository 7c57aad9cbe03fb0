"""A node root in a temporary folder: the files that the checks of a hook's suite read, and a scontrol of its own.

Hooks run against it as Slurm runs them: a process of their own, in a bare environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpkit import hook, proc

BOOT = "5f0c2f7e-boot-one"

# Plays `scontrol show node` and `scontrol update` on a table in slurm.json; "hang" in it makes every call wait.
SCONTROL = """#!{python} -IS
import json, sys, time
path = {state!r}
state = json.load(open(path))
with open(path + ".calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if state.get("hang"):
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(300)
if state.get("down"):
    sys.exit("slurm_load_node error: Unable to contact slurm controller (connect failure)")
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
if "update" in sys.argv:
    node = state["nodes"][words["nodename"]]
    if words["state"] == "drain":
        node["state"], node["reason"] = "IDLE+DRAIN", words["reason"]
        node["at"] = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    else:
        node["state"], node["reason"] = "IDLE", ""
    json.dump(state, open(path, "w"))
elif "node" in sys.argv:
    for name, node in state["nodes"].items():
        print(f"NodeName={{name}} Arch=x86_64 CoresPerSocket=1 ")
        print("   Gres=gpu:8")
        print(f"   NodeAddr={{name}} NodeHostName={{name}} Version=22.05.8")
        print(f"   State={{node['state']}} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A")
        print("   Partitions=all ")
        print("   BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:00")
        if node["reason"]:
            print(f"   Reason={{node['reason']}} [root@{{node.get('at', '2026-01-01T00:00:00')}}]")
        print()
elif "job" in sys.argv:
    if state["job"]:
        print(state["job"])
        sys.exit(0)
    sys.exit("slurm_load_jobs error: Invalid job id specified")
else:
    sys.exit("invalid entity")
"""


class NodeRoot:
    """One node named n1, without GPUs and with one file system, healthy at first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = folder / "root"
        self.run_dir = self.base / "run" / "hpkit"
        self.lib_dir = self.base / "var" / "lib" / "hpkit"
        self.put("proc/sys/kernel/random/boot_id", BOOT + "\n")
        self.put("proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 9 kB\nMemAvailable:   15000000 kB\n")
        self.put("proc/self/mountinfo", "22 1 0:21 / / rw - ext4 /dev/root rw\n")
        self.put("dev/kmsg", "")
        (folder / "answers").mkdir()
        (folder / "bin").mkdir()
        self.disk(used=10)
        self.configure()
        self.slurm(n1={"state": "IDLE", "reason": ""}, n2={"state": "IDLE", "reason": ""})

    def put(self, path: str, text: str) -> None:
        """A file of the machine."""
        target = self.base / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def disk(self, *, used: int) -> None:
        """The root file system's use in percent: full means that host.disk fails."""
        space = {
            "total": 1 << 40,
            "avail": (1 << 40) * (100 - used) // 100,
            "inodes": 1000,
            "inodes_free": 900,
        }
        text = json.dumps({"/": {**space, "read_only": used >= 100}})
        (self.folder / "answers" / "space.json").write_text(text)

    def configure(self, mode: str = "enforce", more: str = "") -> None:
        """The site's hpkit.toml; `more` begins with its tables' headers."""
        self.put(
            "etc/hpkit/hpkit.toml",
            f'mode = "{mode}"\n[want]\ngpus = 0\n[slurm]\nbin = "{self.folder}/bin"\ntimeout_s = 5.0\n'
            f"[drain]\njitter_s = 0.0\n{more}",
        )

    def slurm(
        self, *, hang: bool = False, down: bool = False, job: str = "", **nodes: Mapping[str, str]
    ) -> None:
        """What the fake controller knows; `job` is scontrol's text about the only job, "" for none."""
        state = self.folder / "slurm.json"
        state.write_text(json.dumps({"nodes": nodes, "hang": hang, "down": down, "job": job}))
        self.tool("scontrol", SCONTROL.format(python=sys.executable, state=str(state)))

    def tool(self, name: str, text: str) -> None:
        """An executable of this node."""
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def node(self, name: str = "n1") -> dict[str, str]:
        """A node as the fake controller has it now."""
        found: dict[str, str] = json.loads((self.folder / "slurm.json").read_text())["nodes"][name]
        return found

    def slurm_calls(self) -> list[str]:
        """Every command line that scontrol got."""
        path = self.folder / "slurm.json.calls"
        return path.read_text().splitlines() if path.exists() else []

    def argv(self, kind: str, *words: str) -> tuple[str, ...]:
        """How the sh hook starts a hook."""
        return (sys.executable, "-I", "-S", hook.SCRIPT, kind, *words, "--root", str(self.folder))

    def hook(self, kind: str, *words: str, timeout_s: float = 60.0, **env: str) -> proc.Ran:
        """Run a hook to its end."""
        return proc.run(self.argv(kind, *words), timeout_s=timeout_s, env={"SLURMD_NODENAME": "n1", **env})

    def state(self, name: str) -> Any:
        """A JSON file of the run folder; None when there is none."""
        path = self.run_dir / name
        return json.loads(path.read_text()) if path.exists() else None

    def log(self) -> str:
        """What was logged."""
        path = self.folder / "hpkit.log"
        return path.read_text() if path.exists() else ""
