"""Metadata files, with the texts of snapshots remembered: to the letter those of PyIceberg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from destination_datalake.tables.glue.compare_and_set import MetadataDocument


def metadata(*snapshots: Snapshot, properties: Mapping[str, str] | None = None) -> TableMetadata:
    schema = Schema(NestedField(1, "id", LongType(), doc='"snapshots":[]'))
    new = new_table_metadata(
        schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "s3://lake/orders", dict(properties or {})
    )
    return new.model_copy(update={"snapshots": list(snapshots)})


def snapshot(id_: int, parent: int | None = None, **summary: str) -> Snapshot:
    values = {
        "snapshot-id": id_,
        "parent-snapshot-id": parent,
        "sequence-number": id_,
        "manifest-list": f"s3://lake/orders/metadata/snap-{id_}.avro",
        "summary": Summary(Operation.APPEND, **summary),
    }
    return Snapshot.model_validate(values)


FIRST, SECOND, THIRD = snapshot(1), snapshot(2, 1, note='"snapshots":[]'), snapshot(3, 2, note="\u00e9\n\\")


@pytest.mark.parametrize(
    "versions",
    [
        pytest.param(
            [metadata(), metadata(FIRST), metadata(FIRST, SECOND), metadata(FIRST, SECOND, THIRD)], id="appended"
        ),
        pytest.param([metadata(FIRST, SECOND, THIRD), metadata(FIRST, SECOND, THIRD), metadata(THIRD)], id="expired"),
        pytest.param(
            [
                metadata(FIRST, SECOND),
                metadata(FIRST, SECOND),
                metadata(SECOND.model_copy(update={"parent_snapshot_id": None})),
            ],
            id="a parent that has expired",
        ),
        pytest.param([metadata(FIRST), metadata(), metadata(), metadata(SECOND)], id="none"),
        pytest.param([metadata(FIRST, properties={'"snapshots":[]': '"snapshots":[]'})] * 3, id="texts like a list"),
    ],
)
def test_every_document_is_pyiceberg_s(versions: list[TableMetadata]) -> None:
    document = MetadataDocument()

    for version in versions:
        assert document.serialize(version) == version.model_dump_json()


class Interrupted(Snapshot):
    """While its text is made, another thread makes another document."""

    def model_dump_json(self, **options: Any) -> str:  # type: ignore[override]
        DOCUMENT.serialize(metadata(THIRD))
        return super().model_dump_json(**options)


DOCUMENT = MetadataDocument()


def test_two_commits_at_once_have_documents_of_their_own() -> None:
    """Two threads may commit to a table, on the same kept metadata. One of them fails; the other's must be right."""
    DOCUMENT.serialize(metadata())
    interrupted = metadata(FIRST, Interrupted.model_validate(SECOND.model_dump(by_alias=True)))

    assert DOCUMENT.serialize(interrupted) == interrupted.model_dump_json()
