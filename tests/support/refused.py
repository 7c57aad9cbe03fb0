"""What Slurm refuses, caught for a test to look at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpkit.errors import SlurmError


def refusal(call: Callable[..., object], *args: object, **more: object) -> SlurmError:
    """The SlurmError of a call that must raise one."""
    with pytest.raises(SlurmError) as caught:
        call(*args, **more)
    return caught.value
