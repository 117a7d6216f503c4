"""A catalog that compares what the requirements of a commit name, and nothing else (Iceberg REST specification)."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from destination_datalake.aws.access import AwsAccess
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.tables.glue.catalog import GlueTableCatalog
from destination_datalake.tables.glue.compare_and_set import CompareAndSetGlueCatalog
from unit_tests.cloud import BUCKET


class RequirementsCatalog(GlueTableCatalog):
    """The catalog of one sync. What it keeps is in Glue, for tests to look at."""

    compares_metadata = False

    def __init__(self, access: AwsAccess) -> None:
        super().__init__(access, Governance(Policy(f"arn:aws:s3:::{BUCKET}"), access))

    def pyiceberg(self) -> Catalog:
        return _Server(self._access)


class _Server(CompareAndSetGlueCatalog):
    """Applies updates to the metadata of now, whatever they were planned on, if the requirements hold for it."""

    _holds = False

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        while True:
            self._loaded, self._holds = None, False
            try:
                return super().commit_table(table, requirements, updates)
            except CommitFailedException:
                # Two requests at once: the one that was slower is judged again.
                if not self._holds:
                    raise

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        assert current_table is not None
        metadata = current_table.metadata
        for requirement in requirements:
            requirement.validate(metadata)
        assert self._planned_on == current_table.metadata_location, "planned on another state"
        self._holds = True
        return super()._update_and_stage_table(current_table, table_identifier, (), _numbered(metadata, updates))


def _numbered(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
    """Return the updates with the next sequence numbers: that those sent are too low is nothing that is compared."""
    assert isinstance(metadata, TableMetadataV2)
    last = metadata.last_sequence_number
    numbered: list[TableUpdate] = []
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            last += 1
            snapshot = update.snapshot.model_copy(update={"sequence_number": last})
            numbered.append(update.model_copy(update={"snapshot": snapshot}))
        else:
            numbered.append(update)
    return tuple(numbered)
