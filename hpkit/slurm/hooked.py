"""What slurm.conf does with hpkit's hooks, and what in it would hurt. Pure: from `scontrol show config` to advice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hpkit.config import HookConfig, HooksConfig
from hpkit.slurm.abilities import Abilities, words

# HealthCheckProgram is killed then (slurmd.c), where HealthCheckTimeout does not say otherwise.
HEALTH_LIMIT_S = 60.0
NONE_FROM = 65533  # an unset PrologEpilogTimeout is shown as the highest 16-bit numbers
EXTRA_S = 60.0  # node/verdict.py: a verdict is valid for two intervals and this
ONCE = ("START_ONLY", "REBOOT_ONLY")  # 25.11 and 26.05; slurmctld then asks for no rounds (controller.c)
SCRIPTS = {"Prolog": "prolog/hpkit", "Epilog": "epilog/hpkit", "HealthCheckProgram": "prolog/hpkit-health"}


class Advice(NamedTuple):
    """One thing about slurm.conf: `status` is "ok", "warn" (works, could hurt) or "bad" (does not work as meant)."""

    status: str
    text: str
    hint: str = ""


def listed(config: Mapping[str, str], key: str) -> tuple[str, ...]:
    """All values of a key, whether Slurm shows it once (`Prolog`) or as a list (`Prolog[0]`, 24.05 and newer)."""
    pattern = re.compile(rf"{key}(\[\d+\])?\Z")
    return tuple(value for name, value in config.items() if pattern.match(name) and value)


def named(config: Mapping[str, str], key: str) -> bool:
    """Whether hpkit's own script stands behind this key."""
    name = SCRIPTS[key].rpartition("/")[2]
    return any(value.rpartition("/")[2] == name for value in listed(config, key))


def advice(config: Mapping[str, str], hooks: HooksConfig | None, able: Abilities) -> Iterator[Advice]:
    """Everything worth saying, in slurm.conf's words; `hooks` None where the nodes' settings are not known."""
    there = [key for key in SCRIPTS if named(config, key)]
    for key in SCRIPTS:
        yield _script(config, key, able)
    if "Prolog" in there:
        yield from _prolog(config)
    if hooks is not None:
        for key, hook in (("Prolog", hooks.prolog), ("Epilog", hooks.epilog)):
            if key in there:
                yield from _deadline(config, key, hook, able)
    if "HealthCheckProgram" in there:
        yield from _rounds(config)
        if hooks is not None:
            yield from _health(config, hooks)


def _script(config: Mapping[str, str], key: str, able: Abilities) -> Advice:
    if named(config, key):
        return Advice("ok", f"{key} is hpkit's")
    others = ", ".join(listed(config, key))
    if others:
        count = able.knows_expedited and key == "Epilog"
        but = ", but hp-srun cannot count on it for expedited requeue" if count else ""
        return Advice(
            "warn", f"{key} is {others}, not hpkit's: fine if it calls hpkit's{but}", _beside(key, able)
        )
    return Advice("warn", f"no {key} is set", f"add to slurm.conf: {key}=…/{SCRIPTS[key]}")


def _beside(key: str, able: Abilities) -> str:
    """How hpkit's script is added to one that is there."""
    if able.many_hooks and key != "HealthCheckProgram":
        return f"or add a line beside it: {key}=…/{SCRIPTS[key]}"
    return f"let it call …/{SCRIPTS[key]} and end with its exit code"


def _prolog(config: Mapping[str, str]) -> Iterator[Advice]:
    # Slurm shows Alloc with every flag that implies it (prolog_str2flags in read_config.c).
    if "alloc" not in words(config.get("PrologFlags", "")):
        yield Advice(
            "warn",
            "the prolog runs at a job's first step on a node, not when it gets the node",
            "add to slurm.conf: PrologFlags=Alloc",
        )
    if "nohold_on_prolog_fail" not in words(config.get("SchedulerParameters", "")):
        yield Advice(
            "warn",
            "a job that a prolog rejects is held",
            "add nohold_on_prolog_fail to SchedulerParameters; else hpkit releases such a job once",
        )


def _deadline(config: Mapping[str, str], key: str, hook: HookConfig, able: Abilities) -> Iterator[Advice]:
    """Slurm kills a hook past its time, and drains the node itself."""
    own = f"{key}Timeout"
    name = own if seconds(config.get(own, "")) else "PrologEpilogTimeout"
    limit_s = seconds(config.get(name, ""))
    if limit_s and limit_s <= hook.budget_s:
        cure = f"set {own}" if able.hook_timeouts else f"make {name}"
        yield Advice(
            "bad",
            f"{name} is {limit_s:g} s, hpkit's {key.lower()} may take {hook.budget_s:g} s: Slurm would drain the node",
            f"{cure} larger than hooks.{key.lower()}.budget_s",
        )


def _health(config: Mapping[str, str], hooks: HooksConfig) -> Iterator[Advice]:
    """Slurm's times against those of the site's hpkit.toml."""
    every_s = seconds(config.get("HealthCheckInterval", ""))
    if every_s and every_s != hooks.interval_s:
        valid_s = 2 * hooks.interval_s + EXTRA_S
        yield Advice(
            "bad" if every_s > valid_s else "warn",
            f"HealthCheckInterval is {every_s:g} s, hooks.interval_s in hpkit.toml {hooks.interval_s:g} s",
            f"make them equal: the prolog trusts a verdict for {valid_s:g} s",
        )
    limit_s = seconds(config.get("HealthCheckTimeout", "")) or HEALTH_LIMIT_S
    if limit_s <= hooks.health.budget_s:
        yield Advice(
            "bad",
            f"the health program is killed after {limit_s:g} s, hooks.health.budget_s is {hooks.health.budget_s:g}",
            "make the budget smaller",
        )


def _rounds(config: Mapping[str, str]) -> Iterator[Advice]:
    """Whether background rounds run at all, and on which nodes."""
    if not seconds(config.get("HealthCheckInterval", "")):
        yield Advice(
            "bad",
            "HealthCheckInterval is 0: no background rounds run",
            "set it to the value of hooks.interval_s in hpkit.toml",
        )
    states = config.get("HealthCheckNodeState", "") or "ANY"
    if states.upper() in ONCE:
        yield Advice(
            "bad",
            f"HealthCheckNodeState is {states}: no background rounds run",
            "set HealthCheckNodeState=ANY",
        )
    elif "ANY" not in states.upper().split(","):
        yield Advice(
            "warn",
            f"only nodes in state {states} are looked at",
            "set HealthCheckNodeState=ANY: nodes with jobs are those that matter",
        )


def seconds(text: str) -> float:
    """`60` or `60 sec` as 60.0; 0.0 for none."""
    word = text.partition(" ")[0]
    number = float(word) if word.isdecimal() else 0.0
    return 0.0 if number >= NONE_FROM else number
