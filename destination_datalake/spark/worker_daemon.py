"""PySpark's worker daemon with the encoder already imported.

Workers are forked from this process, so they start with everything loaded and share its memory (Spark's option
`spark.python.daemon.module`).
"""

import gc
import sys
from pathlib import Path

from destination_datalake.spark.pyspark_internals import pandas_hidden


def _has_installed_twin(place: str) -> bool:
    """Whether this is a zip file of an installed PySpark, whose modules lie beside it as well.

    Spark has Python import from such zips first, which hold no byte code: each start would compile them anew.
    """
    path = Path(place)
    return path.match("pyspark/python/lib/*.zip") and str(path.parents[3]) in sys.path


if __name__ == "__main__":
    sys.path[:] = sorted(sys.path, key=_has_installed_twin)
    with pandas_hidden():
        # What each worker would import at its start, or for its first file, it finds loaded.
        import boto3  # noqa: F401
        import pyspark.worker  # noqa: F401
        from pyspark import daemon

        import destination_datalake.files.encode  # noqa: F401

        # Workers share what is loaded: no collection may touch, and so copy, its pages.
        gc.freeze()
        daemon.manager()
