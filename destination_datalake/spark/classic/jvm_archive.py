"""Build the JVM's class-data-sharing archive: Spark's parsed classes, which the JVM maps into memory at each start.

`python -m destination_datalake.spark.classic.jvm_archive` writes the archive for this machine's version of the JVM. The
build of the container image runs this command. Other versions of the JVM ignore the archive.
"""

from __future__ import annotations

import sys
from pathlib import Path

from destination_datalake.spark.classic.backend import ClassicBackend
from destination_datalake.spark.classic.settings import ClassicSettings, archive_path


def build() -> Path:
    """Start Spark, run a job without work, and write the archive of the classes that the JVM loaded. Return its path.

    Raises SystemExit if the JVM did not write the archive.
    """
    path = archive_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    # A JVM that writes an archive cannot use one. It would also log each class that it omits from the archive.
    options = (f"-XX:ArchiveClassesAtExit={path}", "-Xlog:disable", "-Xlog:all=error:stderr")
    backend = ClassicBackend(ClassicSettings("local[*]", {}, options))
    backend.start()
    backend.warm_up()
    backend.stop(orderly=True)
    if not path.exists():
        raise SystemExit(f"The JVM did not write {path}. Use a JDK or JRE of version 17 or newer.")
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{build()}\n")
