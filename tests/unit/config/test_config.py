"""Files in order, merged by key, refused when a user could write them; options of checks checked when they are used."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

import pytest

from hpkit import config as c
from hpkit.errors import ConfigError


def site(folder: Path, **files: str) -> str:
    """A configuration folder: `hpkit` is hpkit.toml, every other name lies in conf.d."""
    (folder / "conf.d").mkdir(parents=True)
    for name, text in files.items():
        path = folder / "hpkit.toml" if name == "hpkit" else folder / "conf.d" / f"{name}.toml"
        path.write_text(text)
    return str(folder)


def problems_of(etc: str, **settings: object) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        c.load(etc, trusted_only=False, **settings)  # type: ignore[arg-type]  # only "explicit" is passed
    return caught.value.problems


def test_no_file_at_all_is_the_defaults(tmp_path: Path) -> None:
    config = c.load(str(tmp_path / "none"), trusted_only=False)
    assert config == c.Config()
    assert config.mode == "observe"
    assert config.hooks.prolog == c.HookConfig("prolog", 10.0)


def test_later_files_win_key_by_key(tmp_path: Path) -> None:
    etc = site(
        tmp_path / "etc",
        hpkit='mode = "enforce"\n[want]\ngpus = 8\nmounts = ["/a", "/b"]\n[checks."gpu.ecc"]\nx = 1\ny = 2\n',
        b20='[want]\nmounts = ["/c"]\n[checks."gpu.ecc"]\ny = 4\n',
        b10='[want]\nmounts = ["/z"]\ngpus = 4\n[hooks.prolog]\nsuite = "deep"\n',
    )
    config = c.load(etc, trusted_only=False)
    assert config.mode == "enforce"
    assert config.want == c.WantConfig(gpus=4, mounts=("/c",))
    assert config.checks == {"gpu.ecc": {"x": 1, "y": 4}}
    assert config.hooks.prolog == c.HookConfig("deep", 10.0)


def test_an_explicit_file_replaces_the_first_one_only(tmp_path: Path) -> None:
    etc = site(tmp_path / "etc", hpkit="[want]\ngpus = 8\n", more="[drain]\nmax_nodes = 1\n")
    other = tmp_path / "other.toml"
    other.write_text('mode = "enforce"\n')
    config = c.load(etc, explicit=str(other), trusted_only=False)
    assert (config.want.gpus, config.mode, config.drain.max_nodes) == (None, "enforce", 1)
    gone = str(tmp_path / "gone.toml")
    assert problems_of(etc, explicit=gone) == (f"{gone}: no such file",)


def test_all_problems_at_once_each_with_its_file(tmp_path: Path) -> None:
    etc = site(
        tmp_path / "etc",
        hpkit='mode = "on"\n[hooks.prolg]\nsuite = "x"\n[slurm]\ntimeout_s = "5"\n',
        two='[checks."gpu.ecc"]\nenabled = 1\n[want]\nmounts = ["/a", 3]\ngpus = -1\n',
        bad="mode = \n",
    )
    first, second, broken = f"{etc}/hpkit.toml", f"{etc}/conf.d/two.toml", f"{etc}/conf.d/bad.toml"
    found = problems_of(etc)
    assert found[0].startswith(f"{broken}: not valid TOML: ")
    assert set(found[1:]) == {
        f"hooks.prolg: unknown key (did you mean prolog?) (in {first})",
        f"slurm.timeout_s: expected float, found str (in {first})",
        f"mode: expected one of observe, enforce, found 'on' (in {first})",
        f'checks."gpu.ecc".enabled: expected bool, found int (in {second})',
        f"want.mounts[1]: expected str, found int (in {second})",
        f"want.gpus: expected 0 to 1024, found -1 (in {second})",
    }


def test_what_is_no_readable_file_is_a_problem(tmp_path: Path) -> None:
    etc = site(tmp_path / "etc")
    os.mkfifo(f"{etc}/hpkit.toml")
    (tmp_path / "etc" / "conf.d" / "big.toml").write_text("#" * (c.FILE_LIMIT + 1))
    assert problems_of(etc) == (
        f"{etc}/hpkit.toml: not a regular file",
        f"{etc}/conf.d/big.toml: larger than {c.FILE_LIMIT} bytes",
    )


def test_hidden_and_other_files_are_not_read(tmp_path: Path) -> None:
    etc = site(tmp_path / "etc")
    for name in (".swp.toml", "old.toml~", "README"):
        (tmp_path / "etc" / "conf.d" / name).write_text("not toml")
    assert c.load(etc, trusted_only=False) == c.Config()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own a trusted file")
def test_a_file_that_a_user_could_write_is_refused(tmp_path: Path) -> None:
    etc = site(tmp_path / "etc", hpkit='mode = "enforce"\n')
    assert c.load(etc, trusted_only=True).mode == "enforce"
    os.chmod(f"{etc}/hpkit.toml", 0o666)
    with pytest.raises(ConfigError, match=r"hpkit\.toml"):
        c.load(etc, trusted_only=True)
    assert c.load(etc, trusted_only=False).mode == "enforce"
    os.chmod(f"{etc}/hpkit.toml", 0o644)
    os.chown(etc, 65534, 65534)
    with pytest.raises(ConfigError, match=r"hpkit\.toml"):
        c.load(etc, trusted_only=True)


def test_a_configuration_survives_json() -> None:
    config = c.Config(
        mode="enforce",
        checks={"gpu.ecc": {"x": 1}},
        suites={"mine": ("gpu.*",)},
        want=c.WantConfig(8, ("/a",)),
    )
    assert c.from_tree(json.loads(json.dumps(c.to_tree(config)))) == (config, ())


class Thresholds(NamedTuple):
    corrected_warn: int = 10
    share: float = 0.9


KNOWN = {"gpu.ecc": Thresholds, "gpu.count": Thresholds}


def test_options_of_checks_are_structured_when_asked_for() -> None:
    config = c.Config(checks={"gpu.ecc": {"corrected_warn": 3, "enabled": False}, "elsewhere": {"x": "y"}})
    assert c.options_for(config, KNOWN) == {"gpu.ecc": Thresholds(3), "gpu.count": Thresholds()}
    assert (c.enabled(config, "gpu.ecc"), c.enabled(config, "gpu.count")) == (False, True)


def test_a_wrong_option_names_its_path() -> None:
    config = c.Config(checks={"gpu.ecc": {"corrected_warn": "3", "sharre": 1}})
    with pytest.raises(ConfigError) as caught:
        c.options_for(config, KNOWN)
    assert caught.value.problems == (
        'checks."gpu.ecc".sharre: unknown key (did you mean share?)',
        'checks."gpu.ecc".corrected_warn: expected int, found str',
    )


def test_unknown_checks_and_dead_patterns_are_found_by_the_full_check() -> None:
    config = c.Config(checks={"gpu.ec": {}}, suites={"mine": ("gpu.*", "nic.*")})
    assert c.check_problems(config, KNOWN) == (
        'checks."gpu.ec": no such check',
        "suites.mine: no check matches 'nic.*'",
    )


def test_sources_tell_who_set_a_key(tmp_path: Path) -> None:
    etc = site(
        tmp_path / "etc", hpkit="[want]\ngpus = 8\n[drain]\nmax_nodes = 1\n", more="[want]\ngpus = 4\n"
    )
    sources = c.read_sources(etc, trusted_only=False)
    assert sources.origins["want.gpus"] == f"{etc}/conf.d/more.toml"
    assert sources.origins["drain.max_nodes"] == f"{etc}/hpkit.toml"
    assert sources.files == (f"{etc}/hpkit.toml", f"{etc}/conf.d/more.toml")
