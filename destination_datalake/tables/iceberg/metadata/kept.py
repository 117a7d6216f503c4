"""What this process has read or written of tables' metadata and will need again, within a bound of memory.

Metadata files, manifest lists and manifests are immutable and have unique names (Iceberg spec: file system operations):
what an address held, it holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.tables.iceberg.metadata.document import MetadataDocument

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
"""Manifests and manifest lists that this process has written, as they are stored."""

UNMERGED: Kept[bool] = Kept(10_000)
"""Manifests that could not be merged with others, each of size one: it is not tried again."""

METADATA: Kept[KeptMetadata] = Kept(64 << 20)
"""Tables' metadata by its file: what the next commit is planned on."""


@dataclass(frozen=True, slots=True)
class KeptMetadata:
    """A table's metadata, and what helps to write the next."""

    metadata: TableMetadata
    document: MetadataDocument

    def keep_as(self, location: str) -> None:
        """Keep it as what the metadata file at `location` holds."""
        # Roughly: what grows are snapshots.
        METADATA.keep(location, self, _BYTES_OF_A_TABLE + _BYTES_OF_A_SNAPSHOT * len(self.metadata.snapshots))
