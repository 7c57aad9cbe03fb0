"""What a node should have: the site's word first, then the catalogue, then gres.conf."""

from __future__ import annotations

import pytest

from hpkit import catalog, checks
from hpkit.config import SlurmConfig, WantConfig
from hpkit.errors import UsageError
from hpkit.want import Want, resolve
from tests.support.machine import Machine

EC2 = {"/sys/class/dmi/id/sys_vendor": "Amazon EC2\n", "/sys/class/dmi/id/product_name": "p5.48xlarge\n"}
GRES = {"/etc/slurm/gres.conf": "Name=gpu File=/dev/nvidia[0-3]\n"}


@pytest.mark.parametrize(
    ("config", "files", "gpus", "source", "kind"),
    [
        (WantConfig(gpus=2), {**EC2, **GRES}, 2, "config", "p5.48xlarge"),
        (WantConfig(gpus=0), EC2, 0, "config", "p5.48xlarge"),
        (WantConfig(), {**EC2, **GRES}, 8, "instance type p5.48xlarge", "p5.48xlarge"),
        (WantConfig(instance_type="g5.12xlarge"), EC2, 4, "instance type g5.12xlarge", "g5.12xlarge"),
        (WantConfig(), GRES, 4, "gres.conf", ""),
        (
            WantConfig(),
            {**EC2, "/sys/class/dmi/id/product_name": "m7i.large\n", **GRES},
            4,
            "gres.conf",
            "m7i.large",
        ),
        (WantConfig(), {**EC2, "/sys/class/dmi/id/sys_vendor": "QEMU\n"}, None, "", ""),
        (WantConfig(), {}, None, "", ""),
    ],
)
def test_order_of_sources(
    config: WantConfig, files: dict[str, str], gpus: int | None, source: str, kind: str
) -> None:
    found = resolve(config, SlurmConfig(), Machine(files))
    assert (found.gpus, found.gpus_source, found.instance_type) == (gpus, source, kind)


def test_mounts_and_memory() -> None:
    found = resolve(WantConfig(mounts=("/fsx",)), SlurmConfig(), Machine(EC2))
    assert found == Want(8, "instance type p5.48xlarge", ("/fsx",), "p5.48xlarge", 2048)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("Name=gpu File=/dev/nvidia0\n", 1),
        ("Name=gpu Type=h100 File=/dev/nvidia[0-7] Cores=0-95\n", 8),
        ("Name=gpu Type=a File=/dev/nvidia0\nName=gpu Type=b File=/dev/nvidia[1-2] # spare\n", 3),
        ("NodeName=n[1-4] Name=gpu File=/dev/nvidia[0-7]\nNodeName=m1 Name=gpu File=/dev/nvidia[0-1]\n", 8),
        ("NodeName=m[1-4] Name=gpu File=/dev/nvidia[0-7]\n", None),
        ("name=GPU count=6\n", 6),
        ("Name=gpu \\\n  File=/dev/nvidia[0-3]\n", 4),
        ("Name=gpu Count=many\n", None),
        ("AutoDetect=nvml\n", None),
        ("AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-3]\n", 4),
        ("Name=gpu AutoDetect=rsmi File=/dev/x[0-3]\n", None),
        ("Name=gpu Type=mi300 File=/dev/dri/renderD[128-135]\n", None),
        ("Name=gpu File=/dev/nvidia-caps/nvidia-cap[1-2]\n", None),
        ("Name=gpu MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap1\n", None),
        ("Name=gpu\n", None),
        ("Name=gpu File=/dev/nvidia[0-\n", None),
        ("Name=shard Count=32\n", None),
        ("# Name=gpu File=/dev/nvidia0\n\n= ==\n", None),
        ("", None),
    ],
)
def test_gres_conf(text: str, gpus: int | None) -> None:
    assert resolve(WantConfig(), SlurmConfig(), Machine({"/etc/slurm/gres.conf": text})).gpus == gpus


def test_gres_conf_is_looked_for_where_slurm_has_it() -> None:
    files = {
        "/opt/slurm/etc/gres.conf": "Name=gpu Count=2\n",
        "/site/gres.conf": "Name=gpu Count=3\n",
        **GRES,
    }
    beside = SlurmConfig(conf="/opt/slurm/etc/slurm.conf")
    assert resolve(WantConfig(), beside, Machine(files)).gpus == 2
    assert resolve(WantConfig(), beside._replace(gres_conf="/site/gres.conf"), Machine(files)).gpus == 3
    assert resolve(WantConfig(), SlurmConfig(), Machine(files)).gpus == 4


def test_every_suite_names_checks_that_exist() -> None:
    suites = catalog.suites()
    assert set(suites) == {"prolog", "epilog", "health", "basic", "deep", "burnin"}
    for patterns in suites.values():
        for pattern in patterns:
            assert checks.select((pattern,)), pattern


def test_suite_of_the_site_wins() -> None:
    assert catalog.suite("prolog", {"prolog": ("gpu.xid",)}) == ("gpu.xid",)
    assert catalog.suite("mine", {"mine": ("gpu.*",)}) == ("gpu.*",)
    with pytest.raises(UsageError, match="prolg"):
        catalog.suite("prolg")


@pytest.mark.parametrize("kind", ["p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge", "g5.xlarge"])
def test_instances(kind: str) -> None:
    row = catalog.instance(kind)
    assert set(row) == {"gpus", "memory_gib"}
    assert catalog.instance("t3.nano") == {}
