"""What a merge is about: which rows it merges into which branch, and by what."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.tables.iceberg.branches import PENDING_BRANCH
from destination_datalake.tables.iceberg.dedup.definition import PENDING_BY, UNIQUE_BY, Definition


@dataclass(frozen=True, slots=True)
class MergeScope:
    """The rows of the branch `pending` are merged into those of `target`, and it is removed.

    Without such a branch, the rows of `target` are merged among themselves.
    """

    definition: Definition
    target: str
    pending: str | None

    def is_unique(self, metadata: TableMetadata) -> bool:
        """Whether no two rows of `target` have the same key, so that only pending ones have to be looked at."""
        if self.target != MAIN_BRANCH:
            return False
        unique = Definition.of(UNIQUE_BY, metadata)
        return unique is not None and unique.key == self.definition.key

    def is_of_others(self, metadata: TableMetadata) -> bool:
        """Whether another sync has added pending rows that are to be merged by something else."""
        by = Definition.of(PENDING_BY, metadata)
        return self.pending in metadata.refs and by is not None and by != self.definition


def pending_scope(metadata: TableMetadata) -> MergeScope | None:
    """Return the merge that a table's pending rows wait for; None if there are none."""
    by = Definition.of(PENDING_BY, metadata)
    if by is None or PENDING_BRANCH not in metadata.refs:
        return None
    return MergeScope(by, MAIN_BRANCH, PENDING_BRANCH)
