"""PySpark's worker daemon with the encoder already imported.

Workers are forked from this process, so they start with everything loaded and share its memory (Spark's option
`spark.python.daemon.module`).
"""

import gc
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

from pyspark import daemon


class _WithoutPandas(MetaPathFinder):
    """Arrow imports pandas, if it can, at the first value it converts: a second and 60 MB that encoding never uses."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(f"{name} is not for workers that encode", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _WithoutPandas())
    import destination_datalake.spark.encode  # noqa: F401

    # Workers share what is loaded: no collection may touch, and so copy, its pages.
    gc.freeze()
    daemon.manager()
