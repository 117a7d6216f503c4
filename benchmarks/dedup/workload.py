"""Workloads of records that update rows of a table or add new rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from benchmarks.workload import CURSOR, FLAT, Dates, Shape, Workload

TABLE_ROWS = 10_000_000

_SENT = ("id", "ref", "email", "score", "name", "amount", "quantity", "country", "note", "status")

ORDERS = Shape(
    "orders",
    {CURSOR: {"type": ["null", "string"], "format": "date-time", "airbyte_type": "timestamp_with_timezone"}}
    | {name: FLAT.properties[name] for name in _SENT},
    lambda dice: {name: value for name, value in FLAT.tail(dice).items() if name in _SENT},
    dates=Dates(1, ordered=True),
)
"""A stream of 11 columns, about 65 bytes per row in a file. `ref` is random, with 32 characters; `id` counts the
rows."""


@dataclass(frozen=True)
class Upserts(Workload):
    """Upserts to a table of `table_rows` rows, which are numbered from 0.

    Half of the records are updates: of random rows if the key is `ref`, and of the last rows if the key is `id`. No key
    occurs twice, because Spark's MERGE rejects duplicates. All cursors are later than those in the table.
    """

    shape: Shape = ORDERS
    records: int = 1_000_000
    table_rows: int = TABLE_ROWS
    key: str = "ref"

    @property
    def name(self) -> str:
        """The name of the workload, with the key and the size of the table."""
        return f"{'random' if self.key == 'ref' else 'recent'} keys of {self.table_rows}"

    @property
    def rows_after(self) -> int:
        """The number of keys in the table after the upserts."""
        return self.table_rows + sum(number >= self.table_rows for number in self.numbers())

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the rows to upsert."""
        if self.key == "ref":
            updates = min(self.records // 2, self.table_rows)
            dice = np.random.default_rng(self.records)
            old = dice.choice(self.table_rows, updates, replace=False, shuffle=False)
            new = np.arange(self.table_rows, self.table_rows + self.records - updates)
            chosen = dice.permutation(np.concatenate([old, new]))
        else:
            first = self.table_rows - self.records // 2
            chosen = np.arange(first, first + self.records)
        return iter(chosen.tolist())

    def cursor(self, position: int, _number: int, _mixed: int) -> str:
        """Return a time on the day after the times in the table."""
        assert self.shape.dates is not None
        return self.shape.dates.instant(self.records + position, self.records, 0)

    def catalog(self) -> dict[str, object]:
        """The configured catalog, in which the stream is deduplicated by its key."""
        catalog = super().catalog()
        [stream] = cast("list[dict[str, Any]]", catalog["streams"])
        return {"streams": [deduplicated(stream, self.key)]}

    def appended(self) -> dict[str, object]:
        """The configured catalog for the same records without deduplication."""
        return super().catalog()


def deduplicated(stream: Mapping[str, Any], key: str) -> dict[str, object]:
    """Return a copy of a configured stream with deduplication by the primary key `key`."""
    return {**stream, "sync_mode": "incremental", "destination_sync_mode": "append_dedup", "primary_key": [[key]]}
