"""The site's configuration: TOML files, merged key by key, validated strictly, every problem at once.

Read are `hpkit.toml` (or the file that HPKIT_CONFIG names instead) and then `conf.d/*.toml` in name order; a later file
wins key by key, tables are merged, lists are replaced. No file at all means the defaults below.

The options of checks are validated against the checks' own option tuples. A hook validates those of the checks it
is about to run (`options_for`), so that it need not import all checks; `hpkit config check` and the commands validate
every name and option (`check_problems`).
"""

# No `from __future__ import annotations`: NamedTuple would compile each field's text anew at every start of a hook.

import os
import stat
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from hpkit.errors import ConfigError
from hpkit.structure import key, structure

FILE_LIMIT = 1 << 20
NOTHING: Mapping[str, Any] = MappingProxyType({})


class WantConfig(NamedTuple):
    """What every node should have; a key that is absent is resolved from the catalogue or gres.conf."""

    gpus: int | None = None
    mounts: tuple[str, ...] = ()
    instance_type: str = ""


class HookConfig(NamedTuple):
    """Which suite a hook runs and how many seconds it may take."""

    suite: str
    budget_s: float


class HooksConfig(NamedTuple):
    """The hooks on the node.

    `interval_s` is the site's HealthCheckInterval: a verdict is valid for 2 * interval_s + 60 seconds of uptime. At
    most one note-triggered round runs per `note_interval_s` and node. `watcher` is "helper" (our own background
    process) or "none" (a systemd path unit, or nothing). `release_held` and `start_requeued` allow what the
    two detached root helpers do.
    """

    prolog: HookConfig = HookConfig("prolog", 10.0)
    epilog: HookConfig = HookConfig("epilog", 20.0)
    health: HookConfig = HookConfig("health", 50.0)
    interval_s: float = 60.0
    note_interval_s: float = 60.0
    watcher: str = "helper"
    release_held: bool = True
    start_requeued: bool = True


class SlurmConfig(NamedTuple):
    """How Slurm is reached: slurm.conf, folder of its commands, gres.conf (empty: found), seconds for one call.

    `backend` is "commands", "pyslurm" (the commands where that is not possible) or "auto": pyslurm where it fits.
    """

    conf: str = ""
    bin: str = ""
    gres_conf: str = ""
    timeout_s: float = 5.0
    backend: str = "auto"


class DrainConfig(NamedTuple):
    """The drain budget: at most max(max_nodes, max_share of the nodes) per window_s seconds, never more than half.

    `diskless`: the node's own files are lost at a reboot, so its drain reason carries what its return needs.
    """

    max_nodes: int = 5
    max_share: float = 0.1
    window_s: float = 1800.0
    jitter_s: float = 3.0
    diskless: bool = False


class ResumeConfig(NamedTuple):
    """The defaults of hp-srun's --hp-* options; `max_restarts` 0 means no limit, empty folders mean the default."""

    checkpoint_dir: str = ""
    checkpoint_format: str = "auto"
    resume_on: str = "hardware"
    max_restarts: int = 0
    answer_s: float = 15.0
    state_dir: str = ""
    begin_in_s: int = 8
    give_up_code: int | None = None


class LogConfig(NamedTuple):
    """Where the hooks log."""

    syslog: bool = True


class Config(NamedTuple):
    """The whole configuration.

    `checks` maps a check's name to its thresholds, plus "enabled"; `suites` overrides or adds suites as lists of
    check-name patterns.
    """

    mode: str = "observe"
    want: WantConfig = WantConfig()
    hooks: HooksConfig = HooksConfig()
    slurm: SlurmConfig = SlurmConfig()
    drain: DrainConfig = DrainConfig()
    resume: ResumeConfig = ResumeConfig()
    log: LogConfig = LogConfig()
    checks: Mapping[str, Mapping[str, Any]] = NOTHING
    suites: Mapping[str, tuple[str, ...]] = NOTHING


_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mode": ("observe", "enforce"),
        "hooks.watcher": ("helper", "none"),
        "slurm.backend": ("auto", "commands", "pyslurm"),
        "resume.resume_on": ("hardware", "any"),
    }
)
_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "want.gpus": (0, 1024),
        "hooks.prolog.budget_s": (0.5, 86400),
        "hooks.epilog.budget_s": (0.5, 86400),
        "hooks.health.budget_s": (0.5, 59),  # slurmd kills HealthCheckProgram at 60 s
        "hooks.interval_s": (1, 86400),
        "hooks.note_interval_s": (0, 86400),
        "slurm.timeout_s": (0.1, 60),
        "drain.max_nodes": (0, 1 << 20),
        "drain.max_share": (0, 1),
        "drain.window_s": (0, 30 * 86400),
        "drain.jitter_s": (0, 60),
        "resume.max_restarts": (0, 1 << 20),
        "resume.answer_s": (0, 600),
        "resume.begin_in_s": (0, 3600),
        "resume.give_up_code": (1, 255),
    }
)


class Sources(NamedTuple):
    """The merged files before validation: the tree, which file set each key (dotted path), what could not be read."""

    tree: Mapping[str, Any]
    origins: Mapping[str, str]
    problems: tuple[str, ...]
    files: tuple[str, ...]


def load(etc: str, *, explicit: str = "", trusted_only: bool) -> Config:
    """The configuration below the folder `etc`; `explicit` replaces its hpkit.toml.

    With `trusted_only` a file that a non-root user could change is refused. Raises ConfigError with every problem.
    """
    sources = read_sources(etc, explicit=explicit, trusted_only=trusted_only)
    config, problems = from_tree(sources.tree)
    told = tuple(with_origin(p, sources.origins) for p in problems)
    if sources.problems or told:
        raise ConfigError(sources.problems + told)
    return config


def from_tree(tree: Mapping[str, Any]) -> tuple[Config, tuple[str, ...]]:
    """A configuration from a tree of plain values (TOML or the JSON of `to_tree`), and every problem found in it."""
    config, problems = structure(Config, tree, "", Config())
    enabled = tuple(
        f"{key(key('checks', name), 'enabled')}: expected bool, found {type(table['enabled']).__name__}"
        for name, table in config.checks.items()
        if not isinstance(table.get("enabled", True), bool)
    )
    return config, problems + _value_problems(config) + enabled


def to_tree(config: Any) -> Any:
    """The configuration as plain dicts and lists, ready for JSON; `from_tree` takes it back."""
    if hasattr(config, "_asdict"):
        return {name: to_tree(value) for name, value in config._asdict().items()}
    if isinstance(config, Mapping):
        return {name: to_tree(value) for name, value in config.items()}
    if isinstance(config, (tuple, list)):
        return [to_tree(value) for value in config]
    return config


def read_sources(etc: str, *, explicit: str = "", trusted_only: bool) -> Sources:
    """Read and merge the files; a file that is absent is no problem unless it was named by `explicit`."""
    tree: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems: list[str] = []
    files: list[str] = []
    if trusted_only:
        problems.extend(_loose_folders(etc))
    for path, required in _files(etc, explicit, problems):
        found, problem = _read(path, required, trusted_only)
        if problem:
            problems.append(f"{path}: {problem}")
        elif found is not None:
            files.append(path)
            _merge(tree, found, path, "", origins)
    return Sources(tree, origins, tuple(problems), tuple(files))


def options_for(config: Config, options: Mapping[str, type]) -> dict[str, Any]:
    """The option tuple of each check in `options` (name → its options class); raises ConfigError with all problems."""
    made: dict[str, Any] = {}
    problems: list[str] = []
    for name, cls in options.items():
        given = {k: v for k, v in config.checks.get(name, NOTHING).items() if k != "enabled"}
        made[name], found = structure(cls, given, key("checks", name))
        problems.extend(found)
    if problems:
        raise ConfigError(tuple(problems))
    return made


def enabled(config: Config, check: str) -> bool:
    """Whether the site left this check on."""
    return bool(config.checks.get(check, NOTHING).get("enabled", True))


def check_problems(config: Config, known: Mapping[str, type]) -> tuple[str, ...]:
    """Every problem in `checks` against all known checks (name → options class): unknown names, wrong options."""
    from fnmatch import fnmatchcase

    problems = [f"{key('checks', n)}: no such check" for n in config.checks if n not in known]
    for suite, patterns in config.suites.items():
        problems.extend(
            f"{key('suites', suite)}: no check matches {pattern!r}"
            for pattern in patterns
            if not any(fnmatchcase(name, pattern) for name in known)
        )
    try:
        options_for(config, known)
    except ConfigError as error:
        problems.extend(error.problems)
    return tuple(problems)


def _files(etc: str, explicit: str, problems: list[str]) -> list[tuple[str, bool]]:
    """The files to read in order, each with whether it must exist."""
    files = [(explicit, True) if explicit else (os.path.join(etc, "hpkit.toml"), False)]
    folder = os.path.join(etc, "conf.d")
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        names = []
    except OSError as error:
        problems.append(f"{folder}: {error.strerror}")
        names = []
    files += [
        (os.path.join(folder, n), False) for n in names if n.endswith(".toml") and not n.startswith(".")
    ]
    return files


def _loose_folders(etc: str) -> list[str]:
    """The folders in which a non-root user could remove a file, or add one: what is missing there counts as well."""
    from hpkit.trust import untrusted

    folders = (path for path in (etc, os.path.join(etc, "conf.d")) if os.path.lexists(path))
    return [f"{path}: {why}" for path in folders if (why := untrusted(path))]


def _read(path: str, required: bool, trusted_only: bool) -> tuple[dict[str, Any] | None, str]:
    """One file's tree (None when it is absent and may be) and what is wrong with it."""
    try:
        what = os.stat(path)
    except FileNotFoundError:
        return None, "no such file" if required else ""
    except OSError as error:
        return None, str(error.strerror)
    if not stat.S_ISREG(what.st_mode):
        return None, "not a regular file"
    if what.st_size > FILE_LIMIT:
        return None, f"larger than {FILE_LIMIT} bytes"
    if trusted_only:
        from hpkit.trust import untrusted

        why = untrusted(path)
        if why:
            return None, why
    return _parse(path)


def _parse(path: str) -> tuple[dict[str, Any] | None, str]:
    from hpkit import toml

    try:
        with open(path, "rb") as file:
            return toml.load(file), ""
    except OSError as error:
        return None, str(error.strerror)
    except ValueError as error:
        return None, f"not valid TOML: {error}"
    except ImportError as error:
        return None, f"this Python has no TOML parser: {error}"


def _merge(
    tree: dict[str, Any], new: Mapping[str, Any], file: str, path: str, origins: dict[str, str]
) -> None:
    """Lay `new` over `tree`: tables merge, everything else is replaced; `origins` remembers who set each key."""
    for name, value in new.items():
        where = key(path, name)
        if isinstance(value, dict):
            table = tree.get(name)
            if not isinstance(table, dict):
                table = tree[name] = {}
            origins.setdefault(where, file)
            _merge(table, value, file, where, origins)
        else:
            tree[name] = value
            origins[where] = file


def with_origin(problem: str, origins: Mapping[str, str]) -> str:
    """The problem with the file that set the key it speaks of, when it is known."""
    where = problem.split(": ", 1)[0]
    origin = origins.get(where) or origins.get(where.rpartition("[")[0], "")
    return f"{problem} (in {origin})" if origin else problem


def _value_problems(config: Config) -> tuple[str, ...]:
    """Values of the right type that mean nothing: outside the choices or the range of their key."""
    problems = []
    for path, choices in _CHOICES.items():
        word = _at(config, path)
        if word not in choices:
            problems.append(f"{path}: expected one of {', '.join(choices)}, found {word!r}")
    for path, (low, high) in _RANGES.items():
        number = _at(config, path)
        if number is not None and not low <= number <= high:
            problems.append(f"{path}: expected {low:g} to {high:g}, found {str(number)[:20]}")
    return tuple(problems)


def _at(config: Config, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value
