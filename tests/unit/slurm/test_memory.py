"""An answer about 10,000 nodes is read node by node: what a process needs for it is bounded by the answer's size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hpkit.slurm import parse
from tests.support import slurm_texts as texts
from tests.support.slurm_tools import Tools

NODES = 10_000
# The answer held once as bytes and once as text would be 2 alone; see docs/reference/slurm.md for what was measured.
TIMES = 1.5
TOP = Path(__file__).resolve().parents[3]
CHILD = """
import re, sys
sys.path.insert(0, sys.argv[1])
from hpkit.config import SlurmConfig
from hpkit.slurm.commands import Commands
def peak():
    with open("/proc/self/status") as file:
        return int(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1])
client = Commands(SlurmConfig(bin=sys.argv[2], timeout_s=60), trusted_only=False)
assert len(client.nodes(["one"])) == 1
before = peak()
found = client.nodes()
print(peak() - before, len(found), found[-1].reason)
"""


def test_ten_thousand_nodes(tools: Tools) -> None:
    many = "".join(
        texts.node(
            f"p5-node-{number}",
            state="IDLE+DRAIN" if number % 10 == 0 else "MIXED",
            reason=f"hpkit: gpu.xid: gpu3: Xid 79 of {number}" if number % 10 == 0 else "",
            host=f"p5-node-{number}",
            addr=f"10.1.{number // 250}.{number % 250}",
        )
        for number in range(1, NODES + 1)
    )
    (tools.folder / "one").write_text(texts.node("one"))
    tools.say("scontrol", many, then=f'case "$*" in *" one") cat {tools.folder}/one; exit 0;; esac')
    ran = subprocess.run(
        [sys.executable, "-I", "-c", CHILD, str(TOP), str(tools.folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    grown, count, reason = ran.stdout.split(" ", 2)
    assert (int(count), reason.strip()) == (NODES, f"hpkit: gpu.xid: gpu3: Xid 79 of {NODES}")
    assert int(grown) * 1024 < TIMES * len(many), f"{int(grown) >> 10} MiB for {len(many) >> 20} MiB"


def test_what_nodes_have_in_common_is_there_once() -> None:
    first, second = parse.nodes(texts.node("t1") + texts.node("t2"))
    for field in ("flags", "partitions", "gres", "features"):
        assert getattr(first, field) is getattr(second, field)
