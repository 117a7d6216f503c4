"""What a check says of the Iceberg tables that exist."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType, StructType

from destination_datalake.check.existing_tables import incompatible_tables_notes
from destination_datalake.config.options import Config
from destination_datalake.tables.catalog import ListedTable
from destination_datalake.tables.table import TableConflict
from unit_tests.config.examples import options
from unit_tests.tables.iceberg.lake import Lake

FIELDS = (NestedField(1, "id", LongType()), NestedField(2, "n", LongType()))


def notes(lake: Lake, **changes: object) -> list[str]:
    glue_table = lake.access.client("glue").get_table(DatabaseName=lake.name.database, Name="orders")["Table"]
    config = Config.parse(options(lakeformation_database_name=lake.name.database, **changes))
    return list(incompatible_tables_notes([ListedTable(lake.name.database, glue_table)], config, lake.access))


def test_a_table_that_no_sync_could_write_to_is_in_a_note(lake: Lake) -> None:
    lake.create(Schema(*FIELDS))
    assert notes(lake) == []

    lake.edit_metadata({"format-version": 3, "next-row-id": 0})

    [note] = notes(lake)
    assert note.startswith(
        f"Syncs cannot write to these tables of database {lake.name.database}: {lake.name}: its format-version is "
        "3, but this connector supports only versions 1 and 2. Copy the table to a new table with the property "
        "format-version 2."
    )
    assert notes(lake, table_type="HIVE") == []


def test_a_table_whose_metadata_cannot_be_read_is_in_a_note(lake: Lake) -> None:
    lake.create(Schema(*FIELDS))
    by = {"name": "p", "field-id": 1000, "source-ids": [1, 2], "transform": "bucket[4]"}
    lake.edit_metadata({"format-version": 3, "next-row-id": 0, "partition-specs": [{"spec-id": 0, "fields": [by]}]})

    [note] = notes(lake)

    assert "this connector cannot read its metadata" in note


def test_a_table_with_a_required_field_inside_a_struct_is_in_a_note(lake: Lake) -> None:
    """Only streams with that struct are refused."""
    buyer = StructType(NestedField(4, "name", StringType(), required=True))
    lake.create(Schema(*FIELDS, NestedField(3, "buyer", buyer)))

    [note] = notes(lake)

    assert (
        f"{lake.name}: its column buyer.name is required, so the connector refuses streams with a field buyer." in note
    )


@pytest.mark.parametrize(
    ("name", "type_", "is_refused"),
    [
        ("_airbyte_extracted_at", StringType(), True),
        ("_airbyte_extracted_at", LongType(), True),
        ("_airbyte_generation_id", IntegerType(), True),
        ("_airbyte_generation_id", LongType(), False),
        ("_airbyte_meta", StructType(NestedField(4, "sync_id", LongType())), False),
    ],
)
def test_a_table_whose_metadata_column_has_another_type_is_in_a_note(
    lake: Lake, name: str, type_: IcebergType, *, is_refused: bool
) -> None:
    """Exactly if a sync refuses it."""
    lake.create(Schema(*FIELDS, NestedField(3, name, type_)))

    told = notes(lake)
    with pytest.raises(TableConflict, match=f"the type of its column {name} differs") if is_refused else nullcontext():
        lake.open()

    assert any(f"the type of its column {name} differs" in note for note in told) == is_refused


def test_a_table_whose_metadata_is_gone_is_left_out(lake: Lake) -> None:
    lake.delete_object(lake.create(Schema(*FIELDS)).metadata_location)

    assert notes(lake) == []
