"""The errors that hpkit raises on purpose, and the exit codes of the documented table."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 3
EXIT_PARTLY = 4
EXIT_DEADLINE = 124
EXIT_INTERRUPTED = 130


class HpkitError(Exception):
    """Something a person can act on: one clear sentence and what to do next.

    `message` says what happened, `hint` what to do next (may be empty), `code` is the exit code of the command.
    """

    code = EXIT_FAILED

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HpkitError):
    """The command line or a bundle path makes no sense (exit 3)."""

    code = EXIT_USAGE


class ConfigError(HpkitError):
    """The configuration is wrong; `problems` holds every fault at once, each with its path (exit 3)."""

    code = EXIT_USAGE

    def __init__(self, problems: tuple[str, ...], hint: str = "run: hpkit config check") -> None:
        super().__init__("configuration is not usable: " + "; ".join(problems), hint)
        self.problems = problems


class DeadlineError(HpkitError):
    """hpkit's own deadline passed (exit 124)."""

    code = EXIT_DEADLINE


class CannotTell(HpkitError):
    """A probe could not read its source: the runner turns it into one `error` finding per check that needs it."""


class SlurmError(HpkitError):
    """A query or update of Slurm did not succeed.

    `kind` is one of: "unreachable" (controller down or slow), "timeout", "unknown" (no such node or job), "denied",
    "refused" (Slurm said no; the text is in the message), "missing" (no scontrol here), "garbled" (not understood).
    A failed query is never an empty answer.
    """

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.kind = kind
