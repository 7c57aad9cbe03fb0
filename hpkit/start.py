"""Starts a hook: `PYTHON -I -S LIB/hpkit/start.py KIND --root ROOT`; what it does is hook.py's.

A file of its own because Python compiles a script anew at each start, but keeps the bytecode of what it imports.
"""

from __future__ import annotations

import gc
import os
import sys

if __name__ == "__main__":  # -I -S: nothing but the standard library is on the path yet
    gc.disable()  # a hook makes no garbage worth looking for; the watcher's does not grow either
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from hpkit.hook import run

    # Nothing is buffered, and taking the interpreter down costs as much as a check.
    os._exit(run(sys.argv[1:]))
