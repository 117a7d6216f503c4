"""Existing tables: how `check` finds them, and its notes about those that the options do not fit."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from destination_datalake.check.existing_tables import ExistingTables, try_outside
from destination_datalake.check.step import StepFindings
from destination_datalake.config.options import Config
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.tables.catalog import ListedTable
from destination_datalake.tables.glue.catalog import ensure_database
from destination_datalake.tables.naming import OwnedTable, TableKind, TableOwner
from destination_datalake.tables.table import TableName
from unit_tests.check.examples import UNIQUE, a_context, deny
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.config.examples import options

INSIDE = f"s3://{BUCKET}/raw/"


def owned(
    stream: str, location: str = INSIDE, kind: TableKind = "Iceberg", table: TableName | None = None
) -> OwnedTable:
    owner = TableOwner(StreamId(None, stream), SNAKE_CASE)
    return OwnedTable(table or TableName("raw", stream), owner, (), kind, f"{location}{stream}/")


def existing(*tables: OwnedTable, listed: tuple[ListedTable, ...] = (), **changes: Any) -> ExistingTables:
    return ExistingTables(Config.parse(options(**changes)), listed, tables)


def test_no_notes_about_tables_as_the_options_have_them() -> None:
    assert list(existing(owned("orders"), owned("users")).notes()) == []


def test_streams_that_the_options_relocate_are_in_a_note() -> None:
    [note] = existing(owned("orders"), table_prefix="b_").notes()

    assert note.startswith(
        f"Some tables under s3://{BUCKET}/ have names that do not match the options: stream orders was written to "
        "table raw.orders and would now be written to raw.b_orders."
    )


def test_a_note_names_ten_relocations() -> None:
    [note] = existing(*(owned(f"s{number}") for number in range(12)), table_prefix="b_").notes()

    assert note.count("would now be written to") == 10
    assert "; and 2 more." in note


def test_tables_outside_are_in_a_note_if_others_are_inside() -> None:
    outside = owned("orders", "s3://elsewhere/")

    [note] = existing(owned("users"), outside).notes()

    assert "but these tables are not: raw.orders (s3://elsewhere/orders/, stream orders)." in note
    assert list(existing(outside).notes()) == []
    assert not existing(owned("users", table=TableName("raw", "other")), outside).any_inside()
    assert list(existing(owned("users"), outside, follow_table_location=True).notes()) == []


def test_tables_of_the_other_kind_are_in_a_note() -> None:
    [note] = existing(owned("orders", kind="Hive")).notes()

    assert note.startswith(
        "With table_type ICEBERG, syncs refuse to write to these tables: raw.orders (Hive, stream orders)."
    )


def test_inherited_tables_of_the_default_database_are_told_of() -> None:
    glue_table: Any = {
        "Name": "orders",
        "Parameters": {"classification": "parquet", "compressionType": "snappy", "typeOfData": "file"},
        "StorageDescriptor": {"Location": f"s3://{BUCKET}/raw/orders/", "Columns": []},
    }

    note = existing(listed=(ListedTable("raw", glue_table), ListedTable("shop", glue_table))).inherited()

    assert note is not None
    assert note.startswith(
        "These options do not continue tables that Airbyte's AWS Datalake destination created: table raw.orders"
    )


def test_the_default_database_is_listed_once_and_its_owned_tables_are_logged(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    access, calls = another_client(), list[int]()
    glue = cloud.access.client("glue")
    ensure_database(glue, "raw")
    entry: Any = {
        "Name": "orders",
        "Parameters": TableOwner(StreamId(None, "orders"), SNAKE_CASE).parameters(),
        "StorageDescriptor": {"Location": f"{INSIDE}orders/"},
    }
    glue.create_table(DatabaseName="raw", TableInput=entry)
    glue.create_table(DatabaseName="raw", TableInput={"Name": "of_others"})
    before(access, "glue", "GetTables", calls.append)

    with caplog.at_level(logging.INFO):
        existing = ExistingTables.find(Config.parse(options()), access)

    assert calls == [1]
    assert [table.glue_table["Name"] for table in existing.listed] == ["orders", "of_others"]
    assert existing.owned == [owned("orders", kind="Hive")]
    assert caplog.messages == [f"Existing table raw.orders (Hive) at {INSIDE}orders/ contains stream orders."]


@pytest.mark.usefixtures("cloud")
def test_no_table_is_found_without_permission_to_list_them(caplog: pytest.LogCaptureFixture) -> None:
    access = another_client()
    deny(access, "glue", "GetTables")

    with caplog.at_level(logging.INFO):
        existing = ExistingTables.find(Config.parse(options()), access)

    assert (existing.listed, existing.owned) == ([], [])
    [message] = caplog.messages
    assert message.startswith("Cannot list the tables of database raw")
    assert message.endswith("Without this permission, the check cannot compare existing tables with the options.")


def outside(number: int) -> OwnedTable:
    return owned(f"s{number}", "s3://elsewhere/")


def test_tables_outside_are_refused_ten_by_name(cloud: Cloud) -> None:
    findings = StepFindings()

    try_outside(a_context(cloud.access), findings, [outside(number) for number in range(12)])

    assert len(findings.failures) == 11
    assert findings.failures[0].message.startswith(
        "Cannot write stream s0 to table raw.s0: its location is s3://elsewhere/s0/, outside s3://lake/, which "
    )
    assert findings.failures[-1].message == "The same problem affects 2 more tables."


def test_the_buckets_of_followed_tables_are_tried_once_each(cloud: Cloud) -> None:
    findings = StepFindings()

    try_outside(a_context(cloud.access, follow_table_location=True), findings, [outside(0), outside(1)])

    assert [failure.message.partition(" (S3")[0] for failure in findings.failures] == [
        f"Cannot write to s3://elsewhere/s1/_check-{UNIQUE}"
    ]
