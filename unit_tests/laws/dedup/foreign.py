"""What others do to the table: other engines that write to it, and people who roll it back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from unit_tests.laws.dedup.histories import EMITTED_AT, SERIAL, Foreign
from unit_tests.laws.dedup.model.versions import Version

_LATER = 1000
"""So many milliseconds after those of syncs: no row of others is as late as another."""


def act(foreign: Foreign, table: Table, sent: list[Version]) -> None:
    """Do it. What others write is added to the versions that were sent."""
    history = [*ancestors_of(table.current_snapshot(), table.metadata)]
    if foreign.does == "roll back":
        with table.manage_snapshots() as snapshots:
            snapshots.set_current_snapshot(history[foreign.number % len(history)].snapshot_id)
        return
    rows = table.scan().to_arrow().sort_by(SERIAL)
    if not rows.num_rows:
        return
    chosen = [foreign.number % rows.num_rows, 0, foreign.number // 2 % rows.num_rows]
    written = _as_later_versions(rows.take(chosen), sent)
    if foreign.does == "append":
        table.append(written)
        return
    # As `CREATE OR REPLACE TABLE ... AS` does: main begins anew.
    table.append(written, branch="replacement")
    table.refresh()
    with table.manage_snapshots() as snapshots:
        head = table.metadata.refs["replacement"].snapshot_id
        snapshots.set_current_snapshot(head).remove_branch("replacement")


def _as_later_versions(rows: pa.Table, sent: list[Version]) -> pa.Table:
    """Return the rows as later versions."""
    numbers: Any = rows.column(SERIAL).to_pylist()
    new = [
        Version(serial, EMITTED_AT + _LATER + serial, {**sent[number].values, SERIAL: serial})
        for serial, number in enumerate(numbers, len(sent))
    ]
    sent += new
    columns: dict[str, list[Any]] = {
        SERIAL: [version.serial for version in new],
        "_airbyte_extracted_at": [version.extracted_at * 1000 for version in new],
        "_airbyte_raw_id": ["zz"] * len(new),
    }
    for name, values in columns.items():
        position = rows.schema.get_field_index(name)
        type_ = rows.schema.field(position).type
        rows = rows.set_column(position, rows.schema.field(position), pa.array(values).cast(type_))
    return rows
