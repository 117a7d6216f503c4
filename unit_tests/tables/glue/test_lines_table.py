"""The Glue tables over JSON Lines, as that of rejects: created with the first one, and shared by all syncs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from destination_datalake.aws.objects import PendingUpload
from destination_datalake.config.services import LakeFormationOptions
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.rejects.ledger import REJECTS_TABLE, Partition, RejectFile, RejectLocation
from destination_datalake.rejects.writer import RejectLine
from destination_datalake.tables.glue.catalog import REJECTS, GlueTableCatalog, LinesTable, RejectsTable
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import BUCKET, Cloud, before, during, ungoverned

ROOT = f"s3://{BUCKET}/_errors"


def a_table(cloud: Cloud) -> RejectsTable:
    return RejectsTable("landing", ROOT, cloud.access, ungoverned(cloud.access))


def a_file(table: str = "orders", reason: str = "R", unit: str = "unit") -> RejectFile:
    location = RejectLocation(ROOT, "run", "2026-11-21", "shop", table)
    return RejectFile(location.partition(reason), location.uri(reason, unit), PendingUpload(BUCKET, unit, "id", ()))


def partitions(cloud: Cloud) -> dict[tuple[str, ...], str]:
    """The locations of the table's partitions, by their values."""
    pages = (
        cloud.access.client("glue")
        .get_paginator("get_partitions")
        .paginate(DatabaseName="landing", TableName=REJECTS_TABLE)
    )
    return {
        tuple(partition["Values"]): partition["StorageDescriptor"]["Location"]
        for page in pages
        for partition in page["Partitions"]
    }


def test_each_member_of_a_line_has_a_column_or_a_partition_key() -> None:
    members = {field.encode_name.lower() for field in msgspec.structs.fields(RejectLine)}

    assert sorted([*REJECTS.columns, "reason"]) == sorted(members)
    assert set(Partition._fields) == {"reason", "stream", "dt"}
    assert not set(Partition._fields) & set(REJECTS.columns)


def test_first_reject_creates_database_table_and_partition(cloud: Cloud) -> None:
    a_table(cloud).register([a_file(unit="a"), a_file(unit="b"), a_file(reason="S")])

    table = cloud.access.client("glue").get_table(DatabaseName="landing", Name=REJECTS_TABLE)["Table"]
    assert [(key["Name"], key["Type"]) for key in table["PartitionKeys"]] == [
        ("reason", "string"),
        ("stream", "string"),
        ("dt", "string"),
    ]
    assert {column["Name"]: column["Type"] for column in table["StorageDescriptor"]["Columns"]} == REJECTS.columns
    assert table["StorageDescriptor"]["Location"] == f"{ROOT}/"
    assert partitions(cloud) == {
        ("R", "shop.orders", "2026-11-21"): f"{ROOT}/R/shop.orders/dt=2026-11-21/",
        ("S", "shop.orders", "2026-11-21"): f"{ROOT}/S/shop.orders/dt=2026-11-21/",
    }


def test_nothing_is_created_without_rejects(cloud: Cloud) -> None:
    a_table(cloud).register([])

    assert cloud.access.client("glue").get_databases()["DatabaseList"] == []


def test_table_and_partitions_of_other_syncs_are_used(cloud: Cloud) -> None:
    first, second = a_table(cloud), a_table(cloud)

    for table in (first, second, first):
        table.register([a_file()])
    second.register([a_file(table="users")])

    assert len(partitions(cloud)) == 2


def test_a_partition_that_another_sync_has_added_meanwhile_is_as_good(cloud: Cloud) -> None:
    first, second = a_table(cloud), a_table(cloud)
    before(cloud.access, "glue", "BatchCreatePartition", lambda time: first.register([a_file()]) if time == 1 else None)

    second.register([a_file()])

    assert len(partitions(cloud)) == 1


def test_a_table_that_somebody_creates_at_the_same_time_is_looked_at(cloud: Cloud) -> None:
    glue = cloud.access.client("glue")
    foreign_table: Any = {"Name": REJECTS_TABLE, "PartitionKeys": [{"Name": "theirs", "Type": "string"}]}

    def create(time: int) -> None:
        if time == 1:
            glue.create_table(DatabaseName="landing", TableInput=foreign_table)

    before(cloud.access, "glue", "CreateTable", create)

    lines = LinesTable(REJECTS, "landing", ROOT, cloud.access, ungoverned(cloud.access))
    with pytest.raises(TableConflict, match="the partition keys of the table differ"):
        lines.register_folders({("R", "shop.orders", "2026-11-21"): f"{ROOT}/R/"})


def test_more_partitions_than_one_glue_request_takes_are_registered(cloud: Cloud) -> None:
    a_table(cloud).register([a_file(table=f"t{number}") for number in range(101)])

    assert len(partitions(cloud)) == 101


def test_foreign_table_of_that_name_is_refused_and_left_unchanged(cloud: Cloud) -> None:
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": "landing"})
    glue.create_table(DatabaseName="landing", TableInput={"Name": REJECTS_TABLE})

    with pytest.raises(TableConflict, match=r"landing\.airbyte_rejects"):
        a_table(cloud).register([a_file()])

    assert partitions(cloud) == {}


def test_the_table_is_governed_before_it_has_a_partition(cloud: Cloud) -> None:
    tagged = {"table": "*", "columns": ["RawData", "stream"], "tags": {"pii": ["yes"]}}
    options = LakeFormationOptions.model_validate({"mode": "managed", "table_tags": [tagged]})
    governance = Governance(Policy(f"arn:aws:s3:::{BUCKET}", options), cloud.access)
    governance.govern_location()
    resource: Any = {"Table": {"DatabaseName": "landing", "Name": REJECTS_TABLE}}
    seen: list[set[str]] = []

    def look(**_: Any) -> None:
        answer = cloud.access.client("lakeformation").get_resource_lf_tags(Resource=resource, ShowAssignedLFTags=True)
        seen.append({column["Name"] for column in answer.get("LFTagsOnColumns", [])})

    with during(cloud.access, "before-call.glue.BatchCreatePartition", look):
        RejectsTable("landing", ROOT, cloud.access, GlueTableCatalog(cloud.access, governance)).register([a_file()])

    # Both columns of originals, and the one that the options name
    assert seen == [{"rawdata", "column_value", "stream"}]
    [database] = cloud.access.client("glue").get_databases()["DatabaseList"]
    assert database.get("CreateTableDefaultPermissions") == []
