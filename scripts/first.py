"""The first process in a root (scripts/release.sh): runs a command in a folder and ends with its exit code.

It buries the processes whose parents are gone, as somebody must. And the kernel keeps signals from a first process
that does not handle them, so the command cannot be it: ^C would not end it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    """The folder, then the command; gives its exit code, or 128 and the number of the signal that ended it."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background has it ignored
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        try:
            os.chdir(words[0])
            os.execvp(words[1], list(words[1:]))
        except OSError as error:
            print(f"{words[1]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(127)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal tells the command itself
    while True:
        gone, status = os.wait()
        if gone == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
