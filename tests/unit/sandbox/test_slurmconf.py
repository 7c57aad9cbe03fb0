"""slurm.conf and its companions as text, for what different machines and releases need."""

from __future__ import annotations

from typing import Any

import pytest

from hpkit.sandbox import slurmconf
from hpkit.sandbox.ground import Account, Ground
from hpkit.sandbox.slurmconf import Ports, Settings

PORTS = Ports(23001, (23002, 23003))


def ground(**more: Any) -> Ground:
    base = Ground({}, (22, 5), "host", Account("daemon", 1, 1), "slurm", "/usr/bin/python3", "v1", False)
    return base._replace(**more)


def rows(**more: Any) -> dict[str, str]:
    text = slurmconf.slurm_conf("/s", Settings(nodes=2, **more), ground(), PORTS, "cgroup")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and " " not in line)


def test_hooks_are_named_where_an_installation_has_them() -> None:
    found = rows()
    assert found["Prolog"] == "/s/hooks/prolog/hpkit"
    assert found["Epilog"] == "/s/hooks/epilog/hpkit"
    assert found["HealthCheckProgram"] == "/s/hooks/prolog/hpkit-health"
    assert not {"Prolog", "Epilog", "HealthCheckProgram"} & set(rows(hooks=False))


@pytest.mark.parametrize(("nohold", "there"), [(True, True), (False, False)])
def test_nohold_on_prolog_fail_is_a_setting(nohold: bool, there: bool) -> None:
    assert ("nohold_on_prolog_fail" in rows(nohold=nohold)["SchedulerParameters"].split(",")) is there


def test_each_node_has_a_port_of_its_own_and_its_gpus() -> None:
    lines = slurmconf.node_lines(Settings(nodes=2, gpus=3), ground(), PORTS)
    assert [line.split()[0] for line in lines] == ["NodeName=n1", "NodeName=n2", "PartitionName=train"]
    assert ["Port=23002" in lines[0], "Port=23003" in lines[1], "Gres=gpu:3" in lines[0]] == [True] * 3
    assert "Gres" not in slurmconf.node_lines(Settings(nodes=2, gpus=0), ground(), PORTS)[0]


@pytest.mark.parametrize(("gpus", "span"), [(1, "nvidia0"), (8, "nvidia[0-7]")])
def test_gpus_have_device_files(gpus: int, span: str) -> None:
    text = slurmconf.gres_conf("/s", Settings(nodes=2, gpus=gpus))
    assert f"NodeName=n2 Name=gpu File=/s/nodes/n2/root/dev/{span}" in text


def test_no_gpus_means_no_gres() -> None:
    assert "Name=" not in slurmconf.gres_conf("/s", Settings(gpus=0))


@pytest.mark.parametrize(
    ("version", "cgroup", "systemd", "proctrack", "expected"),
    [
        ((21, 8), "v1", True, "cgroup", "ConstrainCores=no\n"),
        ((22, 5), "v1", False, "cgroup", "CgroupPlugin=cgroup/v1\n"),
        ((23, 2), "v2", False, "cgroup", "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"),
        ((24, 11), "v2", True, "cgroup", "CgroupPlugin=cgroup/v2\n"),
        ((24, 11), "v2", True, "linuxproc", "CgroupPlugin=disabled\n"),
        ((24, 5), "", False, "linuxproc", "CgroupPlugin=disabled\n"),
        ((23, 11), "v2", True, "linuxproc", "CgroupPlugin=cgroup/v1\n"),
        ((22, 5), "", False, "linuxproc", "CgroupPlugin=cgroup/v1\n"),
    ],
)
def test_cgroup_conf(
    version: tuple[int, int], cgroup: str, systemd: bool, proctrack: str, expected: str
) -> None:
    assert (
        slurmconf.cgroup_conf(ground(version=version, cgroup=cgroup, systemd=systemd), proctrack) == expected
    )


def test_two_sandboxes_number_their_jobs_apart() -> None:
    first, second = (slurmconf.first_job(Ports(port, ())) for port in (23001, 23002))
    assert abs(first - second) >= 1000
    assert 0 < max(slurmconf.first_job(Ports(port, ())) for port in (20000, 29999, 31999)) < 0x03FF0000 - 1000
