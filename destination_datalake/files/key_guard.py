"""Reject records of deduplicated streams whose key cannot be kept as sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.files.plan import FilePlan
from destination_datalake.records.decoded import TRUNCATED, Decoded, RejectedLine
from destination_datalake.records.values.numbers import ExactFloat
from destination_datalake.records.values.rules import path_step
from destination_datalake.schema.types import Field, Float32, Float64

KEY_CHANGED = "DESTINATION_RECORD_KEY_CHANGED"
"""The reason of these rejects."""


def columns_to_read(plan: FilePlan) -> tuple[Field, ...]:
    """Return the columns of a plan as they must be read, so that different numbers stay different keys."""
    key = plan.dedup.key if plan.dedup is not None else ()
    return tuple(
        replace(column, type=ExactFloat())
        if column.name in key and isinstance(column.type, Float32 | Float64)
        else column
        for column in plan.columns
    )


class KeyGuard:
    """Rejects records if the connector or the source changed a value that deduplication needs.

    - Rows of different keys would replace each other if their keys became null, or equal by truncation. A null that was
      sent as null is a valid key.
    - Without its cursor, a record would be older than any other of its key. A truncated cursor, such as a time with
      nanoseconds, is kept: truncation keeps the order of cursors or makes them equal.
    - Without its time of deletion, a record that deletes a row would replace the row by nulls.
    """

    def __init__(self, key: Sequence[str], may_be_truncated: Sequence[str]) -> None:
        """Guard these fields, named as in `ValueChange.field`."""
        self._key = pa.array(key, pa.string())
        self._all = pa.array([*key, *may_be_truncated], pa.string())

    @classmethod
    def of(cls, plan: FilePlan) -> Self | None:
        """Return the guard of a plan; None if its rows are not deduplicated."""
        dedup = plan.dedup
        if dedup is None:
            return None
        fields = {column.name: ".".join(map(path_step, column.path)) for column in plan.columns}
        may_be_truncated = [fields[name] for name in (dedup.cursor, dedup.deleted_at) if name is not None]
        return cls([fields[name] for name in dedup.key], may_be_truncated)

    def refuse(self, decoded: Decoded) -> Decoded:
        """Return the records without rejected ones; add their lines to the rejected lines."""
        if decoded.changes is None:
            return decoded
        rows = self._changed(decoded.changes)
        if not len(rows):
            return decoded
        message = "the primary key, the cursor or the time of deletion cannot be kept as it was sent"
        rejected = [RejectedLine(decoded.lines[row], KEY_CHANGED, message) for row in rows.tolist()]
        kept = np.ones(decoded.rows, np.bool_)
        kept[rows] = False
        return replace(decoded.filtered(kept), rejected=[*decoded.rejected, *rejected])

    def _changed(self, changes: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the ascending numbers of the rows with changed guarded values."""
        # All rows' changes as one array: `list_parent_indices` has the row of each.
        entries = changes.flatten()
        field = entries.field("field")
        is_truncated: Any = pc.equal(entries.field("change"), pa.scalar(TRUNCATED)).fill_null(False)
        of_key, of_any = pc.is_in(field, self._key), pc.is_in(field, self._all)
        wrong: Any = pc.or_(of_key, pc.and_not(of_any, is_truncated))
        return np.unique(pc.list_parent_indices(changes).filter(wrong).to_numpy(False).astype(np.int64))
