"""`python -m hpkit`: the hpkit command, for a Python that has the package but no script."""

from __future__ import annotations

import sys

from hpkit.cli import main

if __name__ == "__main__":
    sys.exit(main())
