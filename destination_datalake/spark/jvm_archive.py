"""The JVM's class-data-sharing archive: Spark's classes, parsed once, mapped into memory at every start.

`python -m destination_datalake.spark.jvm_archive` makes one for this machine's JVM (image builds do it). A JVM that
does not match the archive ignores it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ARCHIVE_VARIABLE = "DESTINATION_DATALAKE_JVM_ARCHIVE"


def archive_path() -> Path:
    """Where the archive is looked for: the environment's choice, or beside the packages of this interpreter."""
    chosen = os.environ.get(ARCHIVE_VARIABLE)
    return Path(chosen) if chosen else Path(sys.prefix) / "share" / "destination-datalake" / "spark.jsa"


def build() -> Path:
    """Run Spark once on a job like the connector's own and keep the classes it loaded."""
    from destination_datalake.spark.engine import Engine, EngineSettings

    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    # A JVM that writes an archive cannot use one, and tells of every class it leaves out.
    options = (f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable", "-Xlog:all=error:stderr")
    Engine.start(EngineSettings("local[*]", {}, options)).stop(orderly=True)
    if not path.exists():
        raise SystemExit(f"The JVM did not write {path}: it must be a JDK or JRE 17 or newer.")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
