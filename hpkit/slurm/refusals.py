"""What Slurm's complaints mean: the kinds of SlurmError, told from Slurm's own texts."""

from __future__ import annotations

from hpkit.errors import SlurmError

# Texts of slurm_errno.c and of the commands, in the order in which they are looked for.
_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "unreachable",
        (
            "unable to contact slurm controller",
            "zero bytes were transmitted",
            "unexpected message received",  # all that a requeue tells when it got no answer
            "communication connection failure",
            "message send failure",
            "message receive failure",
            "insane message length",
            "header lengths are longer",
            "incompatible versions",
            "standby mode",
            "timed out",
            "rate limit exceeded",
            "connection refused",
            "connection forced closed",
            "connection reset",  # it died while it was asked
            "not connected",
            "connection abort",
            "broken pipe",
            "no route to host",
            "network is unreachable",
            "authentication",
            "munge",
        ),
    ),
    (
        "missing",
        (
            "unable to process configuration file",
            "could not establish a configuration source",
            "cannot stat file",
        ),
    ),
    ("denied", ("access/permission denied", "invalid user id", "permission denied")),
    ("unknown", ("invalid node name", "invalid job id", "not found")),
)
_KEYS = "is munged up here, with the cluster's key and the right time? try: munge -n | unmunge"
_HINTS = {
    "presently disabled": "submit with: sbatch --requeue",
    "only batch jobs": "only jobs started with sbatch can be requeued",
    "configuration source": "say where slurm.conf is: [slurm] conf in hpkit.toml, or SLURM_CONF",
    "cannot stat file": "name the slurm.conf that is there: [slurm] conf in hpkit.toml, or SLURM_CONF",
    "process configuration file": "mend slurm.conf, or name the right one: [slurm] conf in hpkit.toml, or SLURM_CONF",
    "authentication": _KEYS,
    "zero bytes": _KEYS,
    "invalid user id": "only root and an operator of the cluster may do that",
    "permission denied": "only root, an operator of the cluster, or the job's owner may do that",
    "heterogeneous job leader": "requeue the leader of the heterogeneous job",
}


def kind_of(told: str) -> str:
    """The SlurmError kind of a complaint; "refused" when Slurm simply said no."""
    plain = told.lower()
    return next((kind for kind, texts in _KINDS if any(text in plain for text in texts)), "refused")


def refusal(told: str) -> SlurmError:
    """The error that says what Slurm said, with what to do about it where we know."""
    hint = next((hint for text, hint in _HINTS.items() if text in told.lower()), "")
    return SlurmError(kind_of(told), told, hint)
