"""Which Python executors on other machines run: what Spark is told about it, and what it is sent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

MINOR_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""Python's minor version, which driver and executors must share: Spark pickles functions."""

FOLDER = "destination-datalake"
"""The folder that Spark unpacks the archive to, inside the executor's working directory."""

WORKER_ENVIRONMENT: Mapping[str, str] = {
    # Workers allocate the same memory for every block and file. Allocators that return it in between have the system
    # clear the same pages over and over: a tenth of the encoding's time.
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024 * 1024),
    "MALLOC_MMAP_THRESHOLD_": str(64 * 1024 * 1024),
    "MIMALLOC_PURGE_DELAY": "-1",
}
"""The variables that workers are started with, unless the cluster has set them."""


@dataclass(frozen=True, slots=True)
class ExecutorPython:
    """The Python of executors: `same` path as the driver's, `pack`, or the path of an interpreter on executors.

    With `pack`, the driver's packages are sent as an archive (`executors.archive`), and the executor's own Python of
    the same minor version runs them.
    """

    python: Literal["same", "pack"] | str = "same"

    @property
    def is_packed(self) -> bool:
        """Whether the archive has to be sent."""
        return self.python == "pack"

    @property
    def interpreter(self) -> str:
        """The command that executors start Python with.

        Spark runs a relative path in the folder that it unpacks archives to: the executor's working directory, or with
        Spark Connect that of the session.
        """
        if self.python == "same":
            return sys.executable
        return f"./{FOLDER}/bin/python" if self.is_packed else self.python
