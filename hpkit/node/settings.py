"""The configuration as a hook sees it: a bad one never stops a hook, the last good copy is used instead.

Reading TOML costs a tenth of a whole round, so what was read is kept for the next hook until a file changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hpkit import __version__, catalog, config, files, log
from hpkit.errors import ConfigError
from hpkit.paths import Paths

LIMIT = 1 << 20

T = TypeVar("T")
Suites = Mapping[str, Sequence[str]]
Use = Callable[[config.Config, Suites], T]


def load(paths: Paths, use: Use[T], *, keep: bool) -> tuple[config.Config, T]:
    """The site's configuration and what `use` makes of it and of all suites; `use` raises ConfigError when it cannot.

    A configuration that is not usable is replaced by the last good copy, and that by the defaults (which only observe).
    As root, files that a non-root user could change are not usable. With `keep` a usable one becomes the good copy.
    """
    try:
        found, suites = _current(paths)
        made = use(found, suites)
    except ConfigError as error:
        return _last_good(paths, use, error)
    if keep:
        _keep(paths, found)
    return found, made


def copy_path(paths: Paths) -> str:
    """Where the last good copy is."""
    return f"{paths.lib}/config.json"


def _current(paths: Paths) -> tuple[config.Config, Suites]:
    """The configuration as the files have it, and all suites; raises ConfigError."""
    stamp = _stamp(paths)
    if (kept := _kept(paths, stamp)) is not None:
        return kept
    found = config.load(paths.etc, trusted_only=os.geteuid() == 0)
    suites: Suites = {**catalog.suites(), **found.suites}
    if _stamp(paths) == stamp:
        _put(
            f"{paths.run}/config.json",
            {"stamp": stamp, "config": config.to_tree(found), "suites": suites},
        )
    return found, suites


def _kept(paths: Paths, stamp: list[list[Any]]) -> tuple[config.Config, Suites] | None:
    """What was read for this stamp before, when it was kept as we write it."""
    document = _document(f"{paths.run}/config.json")
    if document.get("stamp") != stamp:
        return None
    try:
        found, problems = config.from_tree(document["config"])
        suites = {str(name): tuple(patterns) for name, patterns in document["suites"].items()}
    except files.BROKEN:
        return None
    whole = suites and all(isinstance(p, str) for patterns in suites.values() for p in patterns)
    return (found, suites) if whole and not problems else None


def _stamp(paths: Paths) -> list[list[Any]]:
    """What changes when any file of the configuration does. Whoever may replace a file changes its inode or times."""
    folder = f"{paths.etc}/conf.d"
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        names = []
    own = os.path.join(os.path.dirname(catalog.__file__), "suites.toml")
    listed = (paths.etc, folder, f"{paths.etc}/hpkit.toml", *(f"{folder}/{name}" for name in names), own)
    return [[__version__, os.geteuid()], *(_file_stamp(path) for path in listed)]


def _file_stamp(path: str) -> list[Any]:
    try:
        found = os.stat(path)
    except OSError as error:
        return [path, error.errno]
    return [path, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _last_good(paths: Paths, use: Use[T], error: ConfigError) -> tuple[config.Config, T]:
    document = _document(copy_path(paths))
    using = "last good copy" if document else "defaults"
    log.error("config-bad", problems="; ".join(error.problems), using=using)
    try:
        if document:
            found, problems = config.from_tree(document)
            if problems:
                raise ConfigError(problems)
            return found, use(found, {**catalog.suites(), **found.suites})
    except ConfigError as worse:
        log.error("config-copy-bad", problems="; ".join(worse.problems), using="defaults")
    return config.Config(), use(config.Config(), catalog.suites())


def _keep(paths: Paths, found: config.Config) -> None:
    tree = config.to_tree(found)
    if _document(copy_path(paths)) != tree:
        _put(copy_path(paths), tree, durable=True)


def _document(path: str) -> dict[str, Any]:
    """A JSON table of ours; empty when there is none."""
    document = files.read_json(path, LIMIT)
    return document if isinstance(document, dict) else {}


def _put(path: str, document: Mapping[str, Any], *, durable: bool = False) -> None:
    """Keep a copy for root alone: the site's own files may be closed to users."""
    try:
        files.ensure_dir(os.path.dirname(path))
        text = json.dumps(document, indent=1, sort_keys=True) + "\n"
        files.write_atomic(path, text, 0o600, durable=durable)
    except OSError as error:
        log.error("not-kept", what=path, why=error)
