"""The keys of deduplicated streams: a record whose key cannot be kept as it was sent is refused."""

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
    """Return the columns of a plan as they are to be read, so that different numbers are different keys."""
    key = plan.dedup.key if plan.dedup is not None else ()
    return tuple(
        replace(column, type=ExactFloat())
        if column.name in key and isinstance(column.type, Float32 | Float64)
        else column
        for column in plan.columns
    )


class KeyGuard:
    """Refuses records if a value that deduplication needs was changed, here or by the source, as their meta says.

    Under a key that became null rows of different keys would replace each other, and so they would under one that was
    cut. Without its cursor a record would lose to any other of its key. A cursor that is cut, such as a time with
    nanoseconds, is kept: two cursors that are cut keep their order, or become equal. A null that was sent as such is a
    key like others. A record that deletes its row has little but its key: without the time of deletion it would replace
    the row by nulls.
    """

    def __init__(self, key: Sequence[str], others: Sequence[str]) -> None:
        """Guard these fields, named as the changes of their values name them (`ValueChange.field`).

        Those of `others` may be cut.
        """
        self._key = pa.array(key, pa.string())
        self._all = pa.array([*key, *others], pa.string())

    @classmethod
    def of(cls, plan: FilePlan) -> Self | None:
        """Return what guards the keys of a plan; None if its rows are not deduplicated."""
        dedup = plan.dedup
        if dedup is None:
            return None
        fields = {column.name: ".".join(map(path_step, column.path)) for column in plan.columns}
        others = [fields[name] for name in (dedup.cursor, dedup.deleted_at) if name is not None]
        return cls([fields[name] for name in dedup.key], others)

    def refuse(self, decoded: Decoded) -> Decoded:
        """Return the records without those that are refused; their lines are among the refused ones."""
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
        """Return the numbers of the rows whose guarded values are not as they were sent, ascending."""
        entries = changes.flatten()
        field = entries.field("field")
        cut: Any = pc.equal(entries.field("change"), pa.scalar(TRUNCATED)).fill_null(False)
        of_key, of_any = pc.is_in(field, self._key), pc.is_in(field, self._all)
        wrong: Any = pc.or_(of_key, pc.and_not(of_any, cut))
        return np.unique(pc.list_parent_indices(changes).filter(wrong).to_numpy(False).astype(np.int64))
