"""Every fault of the sandbox, seen by the real checks on a node folder, and mended again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpkit import catalog, checks, host, past, runner, want
from hpkit.config import Config, WantConfig
from hpkit.errors import UsageError
from hpkit.model import Finding, Status, View
from hpkit.sandbox import faults, nodes
from hpkit.sandbox.faults import FAULTS
from hpkit.sandbox.nodes import NodeState

SITE = Config(want=WantConfig(gpus=8, mounts=("/fsx",)))
OPTIONAL = {"gpu.ecc"}  # may turn to error beside the finding that is looked for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A healthy node with eight GPUs."""
    nodes.create(str(tmp_path / "n1"), nodes.boot("n1", 8), "")
    return tmp_path / "n1"


def look(folder: Path, budget_s: float = 20.0) -> tuple[Finding, ...]:
    """One health round of the real checks."""
    machine = host.live(str(folder), view=View.NODE)
    selected = checks.select(catalog.suites()["health"])
    events = runner.run(
        selected,
        machine,
        want.resolve(SITE.want, SITE.slurm, machine),
        past.begin(past.Past(), machine.now()),
        suite="health",
        budget_s=budget_s,
        options=checks.settings(selected, SITE),
    )
    while True:
        try:
            next(events)
        except StopIteration as stop:
            found: tuple[Finding, ...] = stop.value.report.findings
            return found


def bad(found: tuple[Finding, ...]) -> dict[str, Status]:
    """What is neither passed nor skipped, by check."""
    return {f.check: f.status for f in reversed(found) if f.status not in (Status.PASS, Status.SKIP)}


def brk(folder: Path, *given: str) -> NodeState:
    for fault in given:
        nodes.save(str(folder), faults.inject(str(folder), nodes.load(str(folder)), fault))
    return nodes.load(str(folder))


def test_a_healthy_node_passes_everything(folder: Path) -> None:
    found = look(folder)
    assert bad(found) == {}
    assert {"host.disk", "host.mounts", "host.memory", "gpu.count", "gpu.ecc"} <= {f.check for f in found}


CASES = [
    ("gpu-lost", "gpu.count", Status.FAIL),
    ("gpu-lost:7", "gpu.count", Status.FAIL),
    ("gpu-off-bus", "gpu.xid", Status.FAIL),
    ("gpu-gone", "gpu.count", Status.FAIL),
    ("ecc", "gpu.ecc", Status.FAIL),
    ("remap", "gpu.ecc", Status.FAIL),
    ("xid:79", "gpu.xid", Status.FAIL),
    ("xid:48@6", "gpu.xid", Status.FAIL),
    ("garbled", "gpu.count", Status.ERROR),
    ("mount-gone", "host.mounts", Status.FAIL),
    ("mount-dead", "host.mounts", Status.FAIL),
    ("disk-full", "host.disk", Status.FAIL),
    ("disk-readonly:/", "host.disk", Status.FAIL),
    ("hang", "gpu.count", Status.ERROR),
]


@pytest.mark.parametrize(("fault", "check", "status"), CASES, ids=lambda value: str(value))
def test_the_checks_see_a_fault(folder: Path, fault: str, check: str, status: Status) -> None:
    brk(folder, fault)
    found = bad(look(folder, 3.0))
    assert found.get(check) is status, found


@pytest.mark.parametrize("reboot", [True, False])
def test_a_mended_node_passes_again(folder: Path, reboot: bool) -> None:
    state = brk(folder, "gpu-lost", "ecc:1", "mount-gone", "disk-full:/scratch")
    nodes.save(str(folder), nodes.boot("n1", 8) if reboot else state._replace(faults=()))
    assert bad(look(folder)) == {}


def test_scrolling_takes_the_xid_out_of_the_log(folder: Path) -> None:
    brk(folder, "xid:79", "scroll")
    assert "Xid" not in (folder / "root/dev/kmsg").read_text()
    assert "gpu.xid" not in bad(look(folder))


def test_the_kernel_log_is_closed_to_users_and_in_order(folder: Path) -> None:
    brk(folder, "xid:13", "xid:79@2")
    log = folder / "root/dev/kmsg"
    assert log.stat().st_mode & 0o777 == 0o600
    numbers = [int(line.split(",")[1]) for line in log.read_text().splitlines()]
    assert numbers == list(range(len(numbers)))
    assert "NVRM: Xid (PCI:0000:75:00): 79, pid=" in log.read_text()


@pytest.mark.parametrize(
    "fault",
    [
        "",
        "nonsense",
        "gpu-lost:8",
        "gpu-lost:x",
        "xid:",
        "xid:x",
        "xid:79@y",
        "scroll:1",
        "bundle",
        "bundle:/none",
    ],
)
def test_what_is_no_fault_changes_nothing(folder: Path, fault: str) -> None:
    before = nodes.load(str(folder))
    if fault == "xid:":
        brk(folder, fault)  # the row's default
        return
    with pytest.raises(UsageError):
        brk(folder, fault)
    assert nodes.load(str(folder)) == before


def test_a_recorded_bundle_is_a_fault(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "bundle"
    nodes.create(str(other), nodes.boot("far", 8), "")
    state = nodes.load(str(other))._replace(
        log=("3,0,5000000,-;NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",)
    )
    nodes.save(str(other), state)
    meta = json.loads((other / "meta.json").read_text())
    (other / "meta.json").write_text(json.dumps({**meta, "uptime": 10.0}))
    (other / "root/proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
    ours = brk(folder, f"bundle:{other}")
    assert bad(look(folder)).get("gpu.xid") is Status.FAIL
    assert (folder / "root/proc/meminfo").read_text().startswith("MemTotal: 1000 kB")
    assert (folder / "root/proc/sys/kernel/random/boot_id").read_text().strip() == ours.boot_id
    nodes.save(str(folder), nodes.boot("n1", 8))
    assert bad(look(folder)) == {}


def test_a_bundle_is_placed_in_the_nodes_own_time() -> None:
    now = nodes.uptime()
    moved = faults.shifted("3,1,5000000,-;old\n3,2,900000000000,-;late\n continued\n", 100.0).splitlines()
    assert moved[0] == "3,1,105000000,-;old"
    assert now * 1e6 - 1 <= int(moved[1].split(",")[2]) <= nodes.uptime() * 1e6
    assert moved[2] == " continued"


def test_applying_twice_touches_nothing(folder: Path) -> None:
    state = brk(folder, "gpu-lost")
    wanted = {**faults.broken_files(state), "meta.json": nodes.meta(state)}
    nodes.apply(str(folder), wanted)
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    time.sleep(0.01)
    nodes.apply(str(folder), wanted)
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_boot_forgets_hpkits_state_of_this_boot_only(folder: Path) -> None:
    (folder / "root/run/hpkit/verdict").write_text("x")
    (folder / "root/var/lib/hpkit/record.json").write_text("{}")
    nodes.fresh_run(str(folder))
    assert [path.name for path in (folder / "root/run/hpkit").iterdir()] == ["suspects"]
    assert (folder / "root/run/hpkit/suspects").stat().st_mode & 0o7777 == 0o1733
    assert (folder / "root/var/lib/hpkit/record.json").exists()


def test_every_fault_says_what_it_is() -> None:
    assert all(row.about and (bool(row.takes) or not row.default) for row in FAULTS.values())
    assert {name.split(":")[0] for name, _, _ in CASES} | {"scroll", "bundle", "memory-low"} == set(FAULTS)
