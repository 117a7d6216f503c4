"""Trying again when another writer was faster."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

_ATTEMPTS = 8


def attempts() -> Iterator[bool]:
    """Whether each attempt is the last; eight, with growing pauses between them, about twenty seconds in all."""
    for attempt in range(1, _ATTEMPTS):
        yield False
        time.sleep(random.uniform(0.5, 1.0) * 0.1 * 2**attempt)
    yield True
