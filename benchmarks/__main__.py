"""`make bench`: measure everything, print a table, keep the numbers in build/bench.json. Gates nothing."""

from __future__ import annotations

import json
import os
import platform
import sys
import time

from benchmarks import hooks, requeue
from benchmarks.measure import Figure

RESULT = "build/bench.json"


def main() -> int:
    """Measure, print, keep. A figure that cannot be measured is told and the rest goes on; the exit code is then 1."""
    figures: list[Figure] = []
    failed = 0
    print(f"{'figure':<56} {'value':>10} {'goal':>10}", flush=True)
    for make in (*hooks.figures(), *requeue.figures()):
        try:
            figure = make()
        except Exception as error:  # noqa: BLE001 - one figure that cannot be measured must not cost the others
            failed += 1
            print(f"not measured: {error}", file=sys.stderr, flush=True)
            continue
        figures.append(figure)
        mark = "" if figure.reached else "  missed"
        value, goal = f"{figure.value:.3g} {figure.unit}", f"<= {figure.goal:g} {figure.unit}"
        print(f"{figure.name:<56} {value:>10} {goal:>10}{mark}", flush=True)
    keep(figures)
    return 1 if failed else 0


def keep(figures: list[Figure]) -> None:
    """Write the numbers and where they come from."""
    os.makedirs(os.path.dirname(RESULT), exist_ok=True)
    document = {
        "schema": "hpkit.bench/1",
        "at": time.time(),
        "python": platform.python_version(),
        "machine": platform.platform(),
        "figures": [{**figure._asdict(), "reached": figure.reached} for figure in figures],
    }
    with open(RESULT, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
    print(f"kept in {RESULT}")


if __name__ == "__main__":
    sys.exit(main())
