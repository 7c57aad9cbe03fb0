"""`hpkit check` and `hpkit bundle` on simulated nodes: real probes, real judges, real tools in child processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hpkit import cli
from hpkit.sandbox import faults, nodes

CONFIG = '[want]\ngpus = 8\nmounts = ["/fsx"]\n'


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A healthy node with 8 GPUs, where the commands look for this machine."""
    if os.geteuid() != 0:
        pytest.skip("device files can be made by root only")
    folder = tmp_path / "n1"
    nodes.create(str(folder), nodes.boot("n1", 8), CONFIG)
    monkeypatch.setenv("HPKIT_ROOT", str(folder))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    return folder


def break_it(folder: Path, fault: str) -> None:
    nodes.save(str(folder), faults.inject(str(folder), nodes.load(str(folder)), fault))


def checked(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `hpkit check --json`."""
    capsys.readouterr()
    code = cli.main(["check", "--json", *args])
    return code, json.loads(capsys.readouterr().out)


def statuses(document: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for finding in document["findings"]:
        found.setdefault(finding["check"], set()).add(finding["status"])
    return found


def test_the_report_keeps_its_keys(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = checked(capsys)
    assert (code, document["verdict"], document["action"]) == (0, "healthy", "none")
    assert (document["schema"], document["node"]) == ("hpkit.report/1", "n1")
    assert (document["suite"], document["view"]) == ("health", "node")
    wanted = {
        "schema",
        "hpkit",
        "node",
        "suite",
        "view",
        "started",
        "seconds",
        "verdict",
        "action",
        "findings",
    }
    assert wanted <= set(document)
    keys = {"check", "subject", "status", "action", "message", "hint", "seconds", "data"}
    for finding in document["findings"]:
        assert keys <= set(finding)
        assert finding["message"]
    assert {type(document[name]) for name in ("started", "seconds")} == {float}


@pytest.mark.parametrize(
    ("fault", "code", "verdict", "check", "status"),
    [
        ("gpu-lost:3", 2, "unhealthy", "gpu.count", "fail"),
        ("xid:79", 2, "unhealthy", "gpu.xid", "fail"),
        ("ecc:2", 2, "unhealthy", "gpu.ecc", "fail"),
        ("mount-gone", 2, "unhealthy", "host.mounts", "fail"),
        ("memory-low", 1, "degraded", "host.memory", "warn"),
        ("garbled", 3, "unknown", "gpu.ecc", "error"),
    ],
)
def test_each_ending_has_its_code(
    node: Path,
    capsys: pytest.CaptureFixture[str],
    fault: str,
    code: int,
    verdict: str,
    check: str,
    status: str,
) -> None:
    break_it(node, fault)
    got, document = checked(capsys)
    assert (got, document["verdict"]) == (code, verdict)
    assert status in statuses(document)[check]


def test_what_is_selected(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(statuses(checked(capsys, "--only", "gpu.*", "--skip", "gpu.xid")[1])) == {
        "gpu.count",
        "gpu.ecc",
    }
    (node / "root/etc/hpkit/hpkit.toml").write_text(CONFIG + '[suites]\nmine = ["host.disk"]\n')
    assert set(statuses(checked(capsys, "--suite", "mine")[1])) == {"host.disk"}
    (node / "root/etc/hpkit/hpkit.toml").write_text(CONFIG + '[checks."gpu.ecc"]\nenabled = false\n')
    break_it(node, "ecc")
    assert statuses(checked(capsys)[1])["gpu.ecc"] == {"skip"}


def test_a_check_moves_no_state(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = [node / "root/run/hpkit", node / "root/var/lib/hpkit"]
    break_it(node, "xid:79")
    before = [sorted(p.name for p in folder.iterdir()) for folder in own]
    checked(capsys)
    assert [sorted(p.name for p in folder.iterdir()) for folder in own] == before


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--suite", "nonsense"], "there is no suite 'nonsense'"),
        (["--only", "nic.*"], "no check matches 'nic.*'"),
        (["--skip", "*"], "no check of suite health is left"),
        (["--deep", "--suite", "basic"], "--deep is --suite deep"),
        (["--explain", "nic.count"], "there is no check 'nic.count'"),
        (["--replay", "/nowhere"], "is no bundle"),
        (["--nonsense"], "No such option"),
    ],
)
def test_wrong_usage_is_3(
    node: Path, capsys: pytest.CaptureFixture[str], args: list[str], words: str
) -> None:
    assert cli.main(["check", *args]) == 3
    assert words in capsys.readouterr().err


def test_a_bad_configuration_is_3_and_tells_everything(
    node: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (node / "root/etc/hpkit/hpkit.toml").write_text(
        '[checks."gpu.ecc"]\nno_such = 1\n[checks."gpu.ec"]\nx = 1\n'
    )
    assert cli.main(["check"]) == 3
    told = capsys.readouterr().err
    assert 'checks."gpu.ec": no such check' in told
    assert 'checks."gpu.ecc".no_such: unknown key' in told


def test_list_and_explain(node: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"host.disk", "host.mounts", "host.memory", "gpu.count", "gpu.ecc", "gpu.xid"} <= set(names)
    (node / "root/etc/hpkit/hpkit.toml").write_text('[checks."gpu.ecc"]\ncorrected_warn = 7\n')
    assert cli.main(["check", "--explain", "gpu.ecc"]) == 0
    told = capsys.readouterr().out
    assert '[checks."gpu.ecc"]' in told
    assert "corrected_warn = 7  # default: " in told
    assert cli.main(["check", "--explain", "gpu.xid", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["check"], document["load"]) == ("hpkit.check/1", "gpu.xid", "quiet")


def test_a_bundle_judges_as_its_node_did(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_it(node, "gpu-lost:5")
    break_it(node, "mount-dead")
    live = checked(capsys)[1]
    folder = str(tmp_path / "bundle")
    assert cli.main(["bundle", folder]) == 0
    assert "hpkit check --replay" in capsys.readouterr().out
    monkeypatch.delenv("HPKIT_ROOT")
    monkeypatch.delenv("SLURMD_NODENAME")
    code, replayed = checked(capsys, "--replay", folder)
    assert (code, replayed["node"], replayed["boot_id"]) == (2, "n1", live["boot_id"])
    told = [
        [(f["check"], f["subject"], f["status"], f["message"]) for f in d["findings"]]
        for d in (live, replayed)
    ]
    assert told[0] == told[1]


def test_a_bundle_goes_into_a_new_folder_only(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert cli.main(["bundle", str(tmp_path / "full")]) == 3
    assert sorted(os.listdir(tmp_path / "full")) == ["file"]


def test_an_explicit_configuration_is_part_of_the_bundle(
    node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.toml"
    other.write_text("[want]\ngpus = 9\n")
    monkeypatch.setenv("HPKIT_CONFIG", str(other))
    assert cli.main(["bundle", str(tmp_path / "b")]) == 0
    monkeypatch.delenv("HPKIT_CONFIG")
    code, document = checked(capsys, "--replay", str(tmp_path / "b"), "--only", "gpu.count")
    assert code == 2
    assert "9" in document["findings"][0]["message"]


def test_a_bundle_whose_configuration_leads_elsewhere_is_refused(
    node: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "b"
    assert cli.main(["bundle", str(bundle)]) == 0
    outside = tmp_path / "outside.toml"
    outside.write_text("[want]\ngpus = 2\n")
    inside = bundle / "root/etc/hpkit/hpkit.toml"
    inside.unlink()
    inside.symlink_to(outside)
    assert cli.main(["check", "--replay", str(bundle)]) == 3
    assert "leads out of the bundle" in capsys.readouterr().err
