"""`hpkit doctor`: what it says of a Slurm, and that a silent one is no crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpkit.commands import doctor
from hpkit.commands.doctor import Setup
from hpkit.config import Config, SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm import abilities
from hpkit.slurm.backend import Choice
from tests.support.fake_slurm import FakeSlurm

SETTINGS = {
    "SLURM_VERSION": "26.05.5",
    "ClusterName": "blue",
    "Prolog[0]": "/opt/hpkit/hooks/prolog/hpkit",
    "Epilog[0]": "/opt/hpkit/hooks/epilog/hpkit",
    "HealthCheckProgram": "/opt/hpkit/hooks/prolog/hpkit-health",
    "HealthCheckInterval": "60 sec",
    "PrologFlags": "Alloc",
    "SchedulerParameters": "nohold_on_prolog_fail",
    "SlurmctldParameters": "enable_expedited_requeue",
}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    made = FakeSlurm.of(2)
    made.settings = dict(SETTINGS)
    made.able = abilities.look(SETTINGS)
    monkeypatch.setattr(doctor, "connect", lambda config, trusted_only: made)
    monkeypatch.setattr(doctor, "choose", lambda config, trusted_only: Choice("commands", "because"))
    return made


def node(config: Config = Config(mode="enforce")) -> Setup:
    return Setup(config, ("/etc/hpkit/hpkit.toml",))


def texts(result: doctor.Result, topic: str) -> list[str]:
    rows = json.loads(json.dumps(result.document))["rows"]
    return [f"{row['status']} {row['text']}" for row in rows if row["topic"].startswith(topic)]


def test_release_backend_and_ways(slurm: FakeSlurm) -> None:
    result = doctor.report(node())
    assert result.code == 0
    assert texts(result, "Slurm") == ["ok 26.05.5, cluster blue"]
    assert texts(result, "backend") == ["ok commands: because"]
    assert [text[:2] for text in texts(result, "restart")] == ["ok"] * 4
    assert texts(result, "slurm.conf") == [
        f"ok {name} is hpkit's" for name in ("Prolog", "Epilog", "HealthCheckProgram")
    ]
    assert result.document["slurm"] == "26.05.5"


def test_a_backend_that_was_demanded_in_vain_is_a_warning(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "choose", lambda config, trusted_only: Choice("commands", "no", refused=True))
    assert texts(doctor.report(node()), "backend") == ["warn commands: no"]


def test_what_does_not_work_as_meant_is_exit_code_1(slurm: FakeSlurm) -> None:
    slurm.settings["HealthCheckInterval"] = "0 sec"
    result = doctor.report(node())
    assert result.code == 1
    line = next(text for text in result.lines if "HealthCheckInterval" in text)
    assert line.split()[:2] == ["slurm.conf", "bad"]
    assert result.lines[result.lines.index(line) + 1].split()[0] == "->"


def test_without_settings_nothing_is_said_about_the_nodes(slurm: FakeSlurm) -> None:
    slurm.settings["HealthCheckInterval"] = "5 sec"
    result = doctor.report(Setup())
    assert "no hpkit.toml here" in texts(result, "hpkit")[0]
    assert [text[:2] for text in texts(result, "restart")] == ["? ", "? ", "ok", "ok"]
    assert any("run hpkit doctor on a node" in line for line in result.lines)
    assert not any("interval_s" in line for line in result.lines), "that would be a default's, not the nodes'"


def test_settings_that_equal_the_defaults_are_settings(slurm: FakeSlurm) -> None:
    result = doctor.report(node(Config()))
    assert "mode observe (from /etc/hpkit/hpkit.toml)" in texts(result, "hpkit")[0]
    assert [text[:2] for text in texts(result, "restart")] == ["no", "no", "ok", "ok"]


def test_a_bad_file_is_told_and_the_rest_goes_on(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = tmp_path / "hpkit.toml"
    bad.write_text('mode = "enforced"\n[hooks]\ninterval_s = 5.0\n')
    bad.chmod(0o644)
    monkeypatch.setenv("HPKIT_CONFIG", str(bad))
    monkeypatch.setattr(doctor, "trusted_only", lambda: False)
    result = doctor.report(doctor.setup())
    assert result.code == 1
    assert [text for text in texts(result, "hpkit") if text.startswith("bad") and "mode" in text]
    assert texts(result, "Slurm") == ["ok 26.05.5, cluster blue"]


def test_a_shell_on_no_node_of_the_sandbox(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPKIT_ROOT", "/x/nodes/%n")
    assert doctor.setup() == Setup()
    assert "/x/nodes" not in str(doctor.report(doctor.setup()).document)


def test_commands_that_find_no_slurm_conf(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(config: SlurmConfig, trusted_only: bool) -> FakeSlurm:
        raise SlurmError("missing", "scontrol: error: resolve; Could not establish a configuration source")

    monkeypatch.setattr(doctor, "connect", fails)
    assert texts(doctor.report(node()), "Slurm") == ["bad its commands find no slurm.conf"]


@pytest.mark.parametrize("kind", ["unreachable", "timeout", "missing", "garbled"])
def test_a_silent_slurm(slurm: FakeSlurm, kind: str) -> None:
    slurm.down = kind
    result = doctor.report(node())
    assert result.code == 1
    assert texts(result, "Slurm")[0].startswith("bad no answer: ")
    assert texts(result, "restart") == []
    assert result.document["slurm"] == ""


@pytest.mark.parametrize(
    "conf, given, says",
    [
        ("", "", "[slurm] conf in hpkit.toml, or SLURM_CONF"),
        ("/no/such", "/other", "[slurm] conf is /no/such, and there is no such file"),
        ("", "/no/such", "SLURM_CONF is /no/such, and there is no such file"),
        ("", "", "is slurmctld up? try: scontrol ping; slurm.conf is the one that Slurm finds"),
    ],
)
def test_what_to_look_at(
    slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch, conf: str, given: str, says: str
) -> None:
    monkeypatch.setenv("SLURM_CONF", given)

    def fails(config: SlurmConfig, trusted_only: bool) -> FakeSlurm:
        raise SlurmError("timeout", "no word")

    monkeypatch.setattr(doctor, "connect", fails)
    result = doctor.report(node(Config(slurm=SlurmConfig(conf=conf))))
    assert any(says in line for line in result.lines), result.lines
