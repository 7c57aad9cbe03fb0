"""srun's command line as data: which options take an argument.

Source: the option tables of the last Slurm release of each of 22.05, 23.02, 23.11, 24.05, 24.11, 25.05, 25.11 and 26.05
(src/common/slurm_opt.c, entries that srun accepts), united. An option that a release does not know is refused by its
srun, not by us. Plugins (SPANK) add more: `from_help` reads those that `srun --help` shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

NONE, OPTIONAL, REQUIRED = "none", "optional", "required"

_REQUIRED = """
    accel-bind account acctg-freq autocomplete bb bbf bcast-exclude begin chdir cluster
    cluster-constraint clusters comment constraint container container-id container-type context
    core-spec cores-per-socket cpu-bind cpu-freq cpu_bind cpus-per-gpu cpus-per-task deadline
    delay-boot dependency distribution epilog error exclude export extra extra-node-info gid
    gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags het-group
    hint ignore-signals input job-name jobid licenses mail-type mail-user mcs-label mem mem-bind
    mem-per-cpu mem-per-gpu mem-update mincpus mpi msg-timeout network nodefile nodelist nodes
    ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres
    open-mode output pack-group partition power prefer priority profile prolog qos relative
    reservation resources segment signal slurmd-debug sockets-per-node switches task-epilog
    task-prolog tasks-per-node thread-spec threads threads-per-core time time-min tmp treewidth
    tres-bind tres-per-task uid wait wckey
"""

_OPTIONAL = """
    bcast compress exclusive external-launcher immediate kill-on-bad-exit nice no-kill oom-kill-step
    overlap propagate pty resv-ports send-libs x11
"""

_NONE = """
    async consolidate-segments contiguous debugger-test disable-status exact help hold interactive
    label multi-prog no-allocate overcommit oversubscribe parsable preserve-env quiet
    quit-on-interrupt reboot spread-job spread-segments stepmgr test-only unbuffered usage
    use-min-nodes verbose version wait-for-children whole
"""

_SHORT = """
    A:account B:extra-node-info b:begin C:constraint c:cpus-per-task D:chdir d:dependency
    E:preserve-env e:error F:nodefile G:gpus H:hold h:help I:immediate i:input J:job-name
    K:kill-on-bad-exit k:no-kill L:licenses l:label M:clusters m:distribution N:nodes n:ntasks
    O:overcommit o:output p:partition Q:quiet q:qos r:relative S:core-spec s:oversubscribe T:threads
    t:time u:unbuffered V:version v:verbose W:wait w:nodelist X:disable-status x:exclude
    Z:no-allocate
"""


class Table(NamedTuple):
    """Options by name: `long` maps a name to "none", "optional" or "required"; `short` maps a letter to a name."""

    long: Mapping[str, str]
    short: Mapping[str, str]

    def letter(self, letter: str) -> str:
        """What the short option takes; "" when there is none of that letter."""
        return self.long.get(self.short.get(letter, ""), "")


def known() -> Table:
    """The united table of Slurm 22.05 to 26.05."""
    long = dict.fromkeys(_REQUIRED.split(), REQUIRED)
    long.update(dict.fromkeys(_OPTIONAL.split(), OPTIONAL))
    long.update(dict.fromkeys(_NONE.split(), NONE))
    return Table(long, dict(pair.split(":") for pair in _SHORT.split()))


_HELP_LINE = re.compile(r"\s{0,8}(?:-([A-Za-z]),?\s+)?--([A-Za-z0-9][\w-]*)(\[?=)?")


def from_help(text: str) -> Table:
    """The options that `srun --help` shows, plugins' own included.

    An option printed as `--name=…` takes an argument, `--name[=…]` an optional one, `--name` none; for the last kind
    srun's own help is not reliable (`--container` takes one), so the united table wins where it knows the name.
    """
    long: dict[str, str] = {}
    short: dict[str, str] = {}
    for line in text.splitlines():
        match = _HELP_LINE.match(line)
        if match:
            letter, name, mark = match.groups()
            long[name] = REQUIRED if mark == "=" else OPTIONAL if mark else NONE
            if letter:
                short[letter] = name
    return Table(long, short)
