"""PySpark's worker daemon with the encoder already imported (Spark property `spark.python.daemon.module`).

Workers are forked from this process: they start with all modules imported and share its memory.
"""

import gc

from destination_datalake.spark.classic.pyspark_internals import hide_pandas, prefer_installed_packages

if __name__ == "__main__":
    prefer_installed_packages()
    with hide_pandas():
        # What each worker would import at its start, or for its first file.
        import boto3  # noqa: F401
        import pyspark.worker  # noqa: F401
        from pyspark import daemon

        import destination_datalake.files.encode  # noqa: F401

        # Freeze before the fork, so that garbage collection does not dirty copy-on-write pages.
        gc.freeze()
        daemon.manager()
