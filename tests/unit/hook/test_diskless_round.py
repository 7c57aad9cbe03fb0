"""The background round of a node that loses its files at a reboot, run as Slurm runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.node_root import NodeRoot

MORE = 'diskless = true\n[hooks]\nwatcher = "none"\n'


@pytest.fixture
def node(tmp_path: Path) -> NodeRoot:
    found = NodeRoot(tmp_path)
    found.configure(more=MORE)
    return found


def full(node: NodeRoot) -> None:
    space = {"total": 1 << 40, "avail": 0, "inodes": 1000, "inodes_free": 900, "read_only": False}
    (node.folder / "answers" / "space.json").write_text(json.dumps({"/": space}))


def reboot(node: NodeRoot, boot_id: str) -> None:
    for folder in (node.run_dir, node.lib_dir):
        shutil.rmtree(folder, ignore_errors=True)
    node.put("proc/sys/kernel/random/boot_id", boot_id + "\n")


def test_it_returns_after_a_reboot_that_took_its_record(node: NodeRoot) -> None:
    full(node)
    node.hook("health")
    reason = node.node()["reason"]
    assert reason.startswith("hpkit: host.disk: ") and " (retest " in reason and reason.endswith(")")
    node.disk(used=10)
    reboot(node, "boot-two")
    node.hook("health")
    record = json.loads((node.lib_dir / "record.json").read_text())
    assert (record["reason"], record["state"], record["passes"]) == (reason, "rebuilt", 1)
    assert node.node() == {**node.node(), "state": "IDLE+DRAIN", "reason": reason}
    node.hook("health")
    assert node.node()["state"] == "IDLE"
    assert not (node.lib_dir / "record.json").exists()


def test_a_healthy_round_asks_slurm_once_in_a_boot(node: NodeRoot) -> None:
    for _ in range(3):
        node.hook("health")
    assert len(node.slurm_calls()) == 1
    reboot(node, "boot-two")
    for _ in range(3):
        node.hook("health")
    assert len(node.slurm_calls()) == 2


def test_the_prolog_and_epilog_never_ask(node: NodeRoot) -> None:
    node.hook("prolog")
    node.hook("epilog")
    assert node.slurm_calls() == []


def test_a_controller_that_is_down_stops_nothing(node: NodeRoot) -> None:
    node.slurm(down=True)
    assert node.hook("health").rc == 0
    assert "event=record-not-rebuilt" in node.log()
    assert (node.run_dir / "verdict").exists()
