"""Which Python executors on other machines run: what Spark is told about it, and what it is sent."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

MINOR_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""Python's minor version, which driver and executors must share: Spark pickles functions."""

FOLDER = "destination-datalake"
"""The folder that Spark unpacks the archive to, inside the executor's working directory."""


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
