"""Arrow without pandas: a second and 60 MB for which neither the driver nor its workers have a use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType


def load_arrow() -> None:
    """Load Arrow, and have it look for pandas now and in vain.

    It looks once, at the first value that it converts, and loads pandas if that is installed.
    """
    with pandas_hidden():
        import pyarrow as pa

        pa.array([])


@contextmanager
def pandas_hidden() -> Iterator[None]:
    """As long as this lasts, pandas cannot be imported."""
    hiding = _Hiding()
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)


class _Hiding:
    """A finder of modules (`sys.meta_path`). Its usual base class would cost `spec` a tenth of its time to load."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError(f"{name} is hidden", name=name)
