"""The NVML child with the real pynvml over a library that this test compiles."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import hpkit.probes.nvml
from hpkit import proc
from hpkit.hosts.live import nvml_child
from hpkit.probes.nvml import Nvml
from hpkit.want import Want
from tests.support.machine import Machine

SOURCE = Path(__file__).parents[2] / "support" / "nvml_stub" / "nvml_stub.c"
CHILD = os.path.join(os.path.dirname(hpkit.probes.nvml.__file__), "nvml_child.py")


def built(folder: Path, *flags: str) -> Path:
    """The stub as libnvidia-ml.so.1 in a folder of its own."""
    folder.mkdir()
    library = folder / "libnvidia-ml.so.1"
    argv = ["gcc", "-Wall", "-Werror", "-shared", "-fPIC", *flags, "-o", str(library), str(SOURCE)]
    ran = proc.run(argv, timeout_s=60)
    assert ran.ok, ran.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("nvml") / "new")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("nvml") / "old", "-DOLD")


def child(library: Path, settings: Path, timeout_s: float = 30.0) -> proc.Ran:
    env = {"LD_LIBRARY_PATH": str(library), "NVML_STUB": str(settings)}
    argv = nvml_child()
    assert argv[-1] != CHILD, "started without site, for pynvml was found"
    return proc.run(argv, timeout_s=timeout_s, env=env, grace_s=0.5)


def answer(library: Path, settings: Path, text: str) -> tuple[dict[str, Any], Nvml]:
    """The child's document for these settings, and the facts that the probe makes of it."""
    settings.write_text(text)
    ran = child(library, settings)
    assert (ran.rc, ran.failure) == (0, ""), ran
    facts = hpkit.probes.nvml.probe(Machine(tools={"nvml": ran}), Want(gpus=8))
    return json.loads(ran.stdout), facts


def test_eight_gpus(new: Path, tmp_path: Path) -> None:
    _, facts = answer(
        new, tmp_path / "s", "count=8\n5.volatile_uncorrected=2\n6.mig=1\n7.remap_pending=1\n2.domain=43981\n"
    )
    assert facts.state == "ok"
    assert facts.driver == "570.86.15"
    assert [g.number for g in facts.answering] == list(range(8))
    assert facts.gpus[0].pci == "0000:18:00.0"
    assert facts.gpus[2].pci == "abcd:3a:00.0"
    assert facts.gpus[5].ecc.volatile_uncorrected == 2
    assert facts.gpus[5].ecc.aggregate_uncorrected == 0
    assert [g.mig for g in facts.gpus[5:]] == ["off", "on", "off"]
    assert facts.gpus[7].remap is not None and facts.gpus[7].remap.pending
    assert not any(g.errors for g in facts.gpus)


def test_one_lost_others_told(new: Path, tmp_path: Path) -> None:
    document, facts = answer(new, tmp_path / "s", "3.handle=15\n")
    assert document["gpus"][3] == {"index": 3, "error": "GPU is lost", "code": 15}
    assert [g.number for g in facts.answering] == [0, 1, 2, 4, 5, 6, 7]


def test_lost_after_the_handle_was_given(new: Path, tmp_path: Path) -> None:
    _, facts = answer(new, tmp_path / "s", "3.all=15\n")
    assert (facts.gpus[3].error, facts.gpus[3].code) == ("GPU is lost", 15)
    assert len(facts.answering) == 7


@pytest.mark.parametrize(
    ("settings", "field", "value", "error"),
    [
        ("0.volatile_uncorrected=-999\n", "ecc", None, ("volatile_uncorrected", "Unknown Error")),
        ("0.ecc_mode=-3\n", "ecc", 0, ("ecc_mode", "Not Supported")),
        ("0.remap=-3\n", "remap", None, ("remap", "Not Supported")),
        ("0.mig=-3\n", "mig", "N/A", ("mig", "Not Supported")),
        ("0.broken_serial=1\n", "serial", "", ("serial", "decode")),
        ("0.mig=-4242\n", "mig", "N/A", ("mig", "A new error")),
    ],
)
def test_one_field_unread(
    new: Path, tmp_path: Path, settings: str, field: str, value: Any, error: tuple[str, str]
) -> None:
    _, facts = answer(new, tmp_path / "s", settings)
    found: Any = getattr(facts.gpus[0], field)
    assert (found.volatile_uncorrected if field == "ecc" else found) == value
    assert error[1] in facts.gpus[0].errors[error[0]]
    assert len(facts.answering) == 8
    assert not facts.gpus[1].errors


def test_old_library_lacks_functions(old: Path, tmp_path: Path) -> None:
    _, facts = answer(old, tmp_path / "s", "count=2\n1.volatile_uncorrected=4\n")
    assert facts.state == "ok"
    assert facts.gpus[1].ecc.volatile_uncorrected == 4
    assert facts.gpus[0].remap is None
    assert facts.gpus[0].errors == dict.fromkeys(("pci", "mig", "remap"), "Function Not Found")


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ("init=9\n", "no driver"),
        ("init=18\n", "mismatch"),
        ("init=999\n", "failed"),
        ("count_error=15\n", "failed"),
    ],
)
def test_not_started(new: Path, tmp_path: Path, settings: str, state: str) -> None:
    assert answer(new, tmp_path / "s", settings)[1].state == state


def test_library_missing(tmp_path: Path) -> None:
    document, facts = answer(tmp_path, tmp_path / "s", "")
    assert document["code"] == 12
    assert (facts.state, facts.gpus) == ("no library", ())


@pytest.mark.parametrize("settings", ["hang=nvmlInitWithFlags\n", "4.hang=nvmlDeviceGetEccMode\n"])
def test_hung_call_ends_at_its_deadline(new: Path, tmp_path: Path, settings: str) -> None:
    (tmp_path / "s").write_text(settings)
    ran = child(new, tmp_path / "s", timeout_s=1.5)
    assert ran.failure == "timeout"
    facts = hpkit.probes.nvml.probe(Machine(tools={"nvml": ran}), Want(gpus=8))
    assert (facts.state, facts.gpus) == ("failed", ())
    assert "did not answer" in facts.why


def test_where_only_site_knows_pynvml_site_is_loaded(
    new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean, _ = answer(new, tmp_path / "s", "count=2\n")
    env = {"LD_LIBRARY_PATH": str(new), "NVML_STUB": str(tmp_path / "s")}
    assert json.loads(proc.run([sys.executable, "-I", CHILD], timeout_s=30, env=env).stdout) == lean
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))
    assert nvml_child() == (sys.executable, "-I", CHILD)


def test_what_pynvml_was_spared_is_there_when_it_is_called() -> None:
    text = f"""
import sys
sys.path += [{os.path.dirname(CHILD)!r}, {nvml_child()[-1]!r}]
import nvml_child
assert "ctypes.util" not in sys.modules and "subprocess" not in sys.modules
found = nvml_child.pynvml.find_library("c")
import ctypes.util
assert found == ctypes.util.find_library("c")
"""
    ran = proc.run([sys.executable, "-I", "-S", "-c", text], timeout_s=30)
    assert ran.ok, ran.stderr.decode()
