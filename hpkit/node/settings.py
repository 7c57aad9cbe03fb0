"""The configuration as a hook sees it: a bad one never stops a hook, the last good copy is used instead."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import TypeVar

from hpkit import config, files, log
from hpkit.errors import ConfigError
from hpkit.paths import Paths

COPY_LIMIT = 1 << 20

T = TypeVar("T")


def load(paths: Paths, use: Callable[[config.Config], T], *, keep: bool) -> tuple[config.Config, T]:
    """The site's configuration and what `use` makes of it; `use` raises ConfigError when it cannot use it.

    A configuration that is not usable is replaced by the last good copy, and that by the defaults (which only observe).
    As root, files that a non-root user could change are not usable. With `keep` a usable one becomes the good copy.
    """
    try:
        found = config.load(paths.etc, trusted_only=os.geteuid() == 0)
        made = use(found)
    except ConfigError as error:
        return _last_good(paths, use, error)
    if keep:
        _keep(paths, found)
    return found, made


def copy_path(paths: Paths) -> str:
    """Where the last good copy is."""
    return f"{paths.lib}/config.json"


def _last_good(
    paths: Paths, use: Callable[[config.Config], T], error: ConfigError
) -> tuple[config.Config, T]:
    text = files.read_small(copy_path(paths), COPY_LIMIT)
    using = "defaults" if text is None else "last good copy"
    log.error("config-bad", problems="; ".join(error.problems), using=using)
    if text is not None:
        try:
            found = _decoded(text)
            return found, use(found)
        except ConfigError as worse:
            log.error("config-copy-bad", problems="; ".join(worse.problems), using="defaults")
    return config.Config(), use(config.Config())


def _decoded(text: bytes) -> config.Config:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError((f"not valid JSON: {error}",)) from error
    if not isinstance(document, dict):
        raise ConfigError(("not a table",))
    found, problems = config.from_tree(document)
    if problems:
        raise ConfigError(problems)
    return found


def _keep(paths: Paths, found: config.Config) -> None:
    text = json.dumps(config.to_tree(found), indent=1, sort_keys=True).encode()
    if files.read_small(copy_path(paths), COPY_LIMIT) == text:
        return
    try:
        files.ensure_dir(paths.lib)
        files.write_atomic(copy_path(paths), text)
    except OSError as error:
        log.error("config-copy-not-kept", why=error)
