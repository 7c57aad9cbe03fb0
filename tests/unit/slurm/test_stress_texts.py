"""What Slurm's commands print when something is wrong, as each release printed it, and the kind that it is.

All but those marked were seen on clusters of 22.05.8, 24.11.5 and 26.05.5; "source" ones stand in slurm_errno.c only.
"""

from __future__ import annotations

import pytest

from hpkit.errors import SlurmError
from hpkit.slurm.refusals import kind_of, refusal

SEEN = [
    # nobody listens, or nobody answers
    ("slurm_load_node error: Unable to contact slurm controller (connect failure)", "unreachable"),
    ("slurm_load_jobs error: Socket timed out on send/recv operation", "unreachable"),
    # a requeue does not tell why it had no answer
    ("Unexpected message received for job 5", "unreachable"),
    # another munge key: 22.05, then 24.11, then 26.05
    ("slurm_load_node error: Zero Bytes were transmitted or received", "unreachable"),
    ("Protocol authentication error for job 5", "unreachable"),
    ("slurm_load_ctl_conf error:Protocol authentication error", "unreachable"),
    # munged is down
    (
        'scontrol: error: If munged is up, restart with --num-threads=10; scontrol: error: Munge encode failed: Failed to '
        'access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?); slurm_update error: '
        "Protocol authentication error",
        "unreachable",
    ),
    # slurm.conf: an unknown key, a value, nothing in it, no such file, none to be found
    (
        "scontrol: error: _parse_next_key: Parsing error at unrecognized key: Frobnicate; scontrol: fatal: Unable to "
        "process configuration file",
        "missing",
    ),
    ("squeue: fatal: Unable to process configuration file", "missing"),
    (
        "scontrol: error: s_p_parse_file: cannot stat file /nonexistent/slurm.conf: No such file or directory, retrying in "
        "1sec up to 60sec",
        "missing",
    ),
    (
        "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host; scontrol: error: fetch_config: DNS "
        "SRV lookup failed; scontrol: error: _establish_config_source: failed to fetch config; scontrol: fatal: Could not "
        "establish a configuration source",
        "missing",
    ),
    # another daemon's port instead of slurmctld's
    ("slurm_load_node error: Invalid argument", "refused"),
]
SOURCE = [
    ("Rate limit exceeded, please retry momentarily", "unreachable"),
    ("Rate limit exceeded, please retry later", "unreachable"),
    ("Slurm backup controller in standby mode", "unreachable"),
    ("Controller is in standby mode, try a different controller", "unreachable"),
    ("Communication connection failure", "unreachable"),
    ("Message send failure", "unreachable"),
    ("Message receive failure", "unreachable"),
    ("Insane message length", "unreachable"),
    ("Header lengths are longer than data received", "unreachable"),
    ("Incompatible versions of client and server code", "unreachable"),
    ("Connection timed out establishing", "unreachable"),
    ("Unable to contact slurm controller (shutdown failure)", "unreachable"),
]


@pytest.mark.parametrize(("told", "kind"), SEEN + SOURCE)
def test_kinds(told: str, kind: str) -> None:
    assert kind_of(told) == kind


@pytest.mark.parametrize(
    ("told", "kind", "hint"),
    [
        ("slurm_update error: Invalid user id", "denied", "an operator"),
        ("Access/permission denied for job 41", "denied", "owner"),
        ("scontrol: fatal: Unable to process configuration file", "missing", "slurm.conf"),
        ("scontrol: error: s_p_parse_file: cannot stat file /x: No such file or directory", "missing", "[slurm] conf"),
        ("scontrol: fatal: Could not establish a configuration source", "missing", "SLURM_CONF"),
        ("slurm_load_node error: Protocol authentication error", "unreachable", "munge"),
        ("slurm_load_node error: Zero Bytes were transmitted or received", "unreachable", "munge"),
        ("Rate limit exceeded, please retry later", "unreachable", ""),
    ],
)  # fmt: skip
def test_hints(told: str, kind: str, hint: str) -> None:
    error = refusal(told)
    assert isinstance(error, SlurmError)
    assert (error.kind, hint in error.hint) == (kind, True), error.hint
