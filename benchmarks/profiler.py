"""Profile the driver: `python -m benchmarks.profiler REPORT ARGUMENTS…` runs the connector with a sampling profiler.

The profiler samples the stack of every thread 100 times per second. For each thread, the report lists the innermost
functions of the connector, and the functions that they called. cProfile would see only one thread, and would slow this
thread down.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

PERIOD_SECONDS = 0.01
PLACES_PER_THREAD = 8
PACKAGE = "destination_datalake"


def main(report: Path) -> int:
    """Run the connector's command line under the profiler, and return its exit code. Always writes the report."""
    started = time.perf_counter()
    places: dict[str, Counter[str]] = {}
    finished = threading.Event()
    looking = threading.Thread(target=_look, args=(places, finished), name="sampler", daemon=True)
    looking.start()
    try:
        from destination_datalake.cli import run

        os._exit = sys.exit  # type: ignore[assignment]  # With os._exit, the process would end before the report.
        return run()
    finally:
        finished.set()
        looking.join()
        report.write_text(_render(places, time.perf_counter() - started))


def _look(places: dict[str, Counter[str]], finished: threading.Event) -> None:
    while not finished.wait(PERIOD_SECONDS):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            name = names.get(ident, str(ident))
            place = _place(frame)
            if name != "sampler" and place is not None:
                places.setdefault(name, Counter())[place] += 1


def _place(frame: FrameType) -> str | None:
    """Return the innermost function of the connector on a stack, and the innermost function of the whole stack.

    Returns None if the stack contains no function of the connector.
    """
    outer: FrameType | None = frame
    while outer is not None and PACKAGE not in outer.f_globals.get("__name__", ""):
        outer = outer.f_back
    if outer is None:
        return None
    place = f"{_function(outer)}:{outer.f_lineno}"
    if outer is frame:
        return place
    importing = frame.f_globals.get("__name__", "").startswith("importlib.")
    return f"{place} → {'importing' if importing else _function(frame)}"


def _function(frame: FrameType) -> str:
    return f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_qualname}"


def _render(places: dict[str, Counter[str]], seconds: float) -> str:
    lines = []
    for thread, counts in sorted(places.items(), key=lambda item: -item[1].total()):
        lines.append(f"{thread}: seen in {counts.total()} samples of {seconds:.1f} s")
        lines += [f"  {n / counts.total():5.0%}  {place}" for place, n in counts.most_common(PLACES_PER_THREAD)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv.pop(1))
    sys.argv[0] = "destination-datalake"
    sys.exit(main(target))
