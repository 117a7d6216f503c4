"""What this process has read or written of tables' metadata and will need again, within a bound of memory.

Metadata files, manifest lists and manifests are immutable and have unique names (Iceberg spec: file system operations):
what an address held, it holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_Value = TypeVar("_Value")

_BYTES_OF_A_SNAPSHOT = 6 * 1024
_BYTES_OF_A_TABLE = 64 * 1024


class Kept(Generic[_Value]):
    """Values by the address of their object. Beyond `budget` bytes the least recently used are forgotten."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._values: OrderedDict[str, tuple[_Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, address: str) -> _Value | None:
        """Return the value, or None if it is not kept."""
        with self._lock:
            if address not in self._values:
                return None
            self._values.move_to_end(address)
            return self._values[address][0]

    def keep(self, address: str, value: _Value, size: int) -> None:
        """Keep the value of `size` bytes, unless it is larger than the budget."""
        with self._lock:
            self._forget(address)
            if size > self._budget:
                return
            self._values[address] = (value, size)
            self._bytes += size
            while self._bytes > self._budget:
                self._forget(next(iter(self._values)))

    def forget(self, address: str) -> None:
        """Forget the value: it will not be needed again."""
        with self._lock:
            self._forget(address)

    def _forget(self, address: str) -> None:
        if address in self._values:
            self._bytes -= self._values.pop(address)[1]


MANIFESTS: Kept[bytes] = Kept(8 << 20)
"""Manifests and manifest lists, as they are stored."""

METADATA: Kept[TableMetadata] = Kept(64 << 20)
"""Tables' metadata: what the next commit is planned on."""


def memory_of(metadata: TableMetadata) -> int:
    """Return roughly how many bytes of memory a table's metadata takes: it grows with the table's snapshots."""
    return _BYTES_OF_A_TABLE + _BYTES_OF_A_SNAPSHOT * len(metadata.snapshots)
