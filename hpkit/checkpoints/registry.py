"""Which layouts there are: a new one is a module with NAME, recognise and prove (model.Format), and a line here."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from hpkit.checkpoints.model import Format
from hpkit.errors import UsageError

FORMATS: dict[str, str] = {
    "hf": "hpkit.checkpoints.hf",
    "dcp": "hpkit.checkpoints.dcp",
    "safetensors": "hpkit.checkpoints.safetensors",
    "torch": "hpkit.checkpoints.torch_files",
}
"""Module by name, in the order in which `auto` tries them: those with an end marker of their own come first."""

AUTO = "auto"


def select(name: str) -> tuple[Format, ...]:
    """The layout of that name, or all for "auto"; raises UsageError for a name that is none."""
    if name == AUTO:
        return tuple(load(known) for known in FORMATS)
    if name not in FORMATS:
        raise UsageError(f"no checkpoint format {name!r}", f"one of: {', '.join([AUTO, *FORMATS])}")
    return (load(name),)


def load(name: str) -> Format:
    """The module of a layout, imported now."""
    return cast(Format, import_module(FORMATS[name]))
