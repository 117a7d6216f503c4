"""Load the native library, which is compiled from `native/*.c` when the connector is installed.

The library contains fast versions of some Python functions. If the library cannot be loaded, callers use the Python
functions instead.
"""

from __future__ import annotations

import ctypes
import logging
import platform
from functools import cache
from pathlib import Path

logger = logging.getLogger(__name__)

PATH = Path(__file__).with_name(f"_native.{platform.machine()}.so")


@cache
def library() -> ctypes.CDLL | None:
    """Return the native library, or None after a warning if it cannot be loaded. The result is cached."""
    try:
        return ctypes.CDLL(str(PATH))
    except OSError as error:
        logger.warning(
            "Cannot load the native library, so the connector reads records several times slower: %s. Reinstall the "
            "connector to compile the library.",
            error,
        )
        return None
