"""This catalog and Iceberg's own make the same metadata of the same commits: `make test-catalogs`."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

from integration_tests.catalogs.behaviour import Behaviour
from integration_tests.catalogs.conftest import ROWS, Client, Serve
from integration_tests.harness.lake import Lake

NESTED = Schema(
    NestedField(1, "list", ListType(7, StructType(NestedField(8, "a", StringType())))),
    NestedField(2, "map", MapType(5, StringType(), 6, LongType())),
    NestedField(3, "id", LongType(), required=True),
    identifier_field_ids=[3],
)


def new_columns(client: Client) -> Table:
    table = client.new_table()
    with table.update_schema() as update:
        update.add_column("number", LongType())
    with table.update_schema() as update:
        update.rename_column("number", "n")
    with table.update_schema() as update:
        update.delete_column("n")
    return table


def new_partitions(client: Client) -> Table:
    table = client.new_table()
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "bucket")
    with table.update_spec() as update:
        update.remove_field("bucket")
    with table.update_spec() as update:
        update.add_field("text", IdentityTransform())
    table.append(ROWS)
    return table


def new_orders(client: Client) -> Table:
    table = client.new_table()
    with table.update_sort_order() as update:
        update.asc("id", IdentityTransform())
    with table.update_sort_order() as update:
        update.desc("text", IdentityTransform())
    return table


def branches_and_tags(client: Client) -> Table:
    table = client.new_table()
    head = table.snapshots()[0].snapshot_id
    table.manage_snapshots().create_branch(head, "side").create_tag(head, "mark", max_ref_age_ms=1000).commit()
    table.append(ROWS, branch="side")
    table.append(ROWS)
    table.manage_snapshots().remove_tag("mark").commit()
    return table


def expiry(client: Client) -> Table:
    table = client.new_table()
    for _ in range(3):
        table.append(ROWS)
    _, second, *_ = table.snapshots()
    table.maintenance.expire_snapshots().by_id(second.snapshot_id).commit()
    return table


def overwrites(client: Client) -> Table:
    table = client.new_table()
    table.overwrite(ROWS)
    table.delete("id = 1")
    return table


def properties(client: Client) -> Table:
    table = client.new_table(**{"write.metadata.previous-versions-max": "2"})
    table.transaction().set_properties({"a": "1", "b": "2"}).commit_transaction()
    table.transaction().remove_properties("a").commit_transaction()
    return table


def creation(client: Client) -> Table:
    client.create_namespace(client.lake.name("shop"))
    table: Table = client.create_table(
        (client.lake.name("shop"), "made"),
        NESTED,
        partition_spec=PartitionSpec(PartitionField(3, 1000, BucketTransform(3), "part")),
        sort_order=SortOrder(SortField(source_id=3, transform=IdentityTransform())),
        properties={"format-version": "2", "colour": "red"},
    )
    return table


def staged_creation(client: Client) -> Table:
    name = (client.lake.name("shop"), "staged")
    client.create_namespace(name[0])
    staged = client.create_table_transaction(name, ROWS.schema, properties={"colour": "red"})
    staged.append(pa.concat_tables([ROWS, ROWS]))
    table: Table = staged.commit_transaction()
    return table


CHANGES = (
    *(new_columns, new_partitions, new_orders, branches_and_tags, expiry, overwrites),
    *(properties, creation, staged_creation),
)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_table_becomes_what_it_becomes_in_iceberg_s_own_catalog(
    serve: Serve, iceberg_catalog: str, lake: Lake, change: Callable[[Client], Table]
) -> None:
    own, reference = (
        comparable(change(Client(uri, lake))) for uri in (serve(Behaviour()).endpoint_url, iceberg_catalog)
    )

    assert own == reference


VARYING = {"table-uuid", "location", "timestamp-ms", "last-updated-ms", "manifest-list", "metadata-file", "created-at"}
NOTHING: Sequence[object] = ([], {}, None, -1)
"""How what a table does not have is written; -1 is the current snapshot of a table without one."""


def comparable(table: Table) -> Any:
    """Return the content of a table's metadata file, without what differs between any two tables.

    Snapshots are numbered in their order. Sizes of files that have their own location in them differ too.
    """
    with table.io.new_input(table.metadata_location).open() as file:
        metadata = json.loads(file.read())
    numbers = {snapshot["snapshot-id"]: number for number, snapshot in enumerate(metadata.get("snapshots", []))}

    def plain(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            kept = {name: plain(member, name) for name, member in value.items() if name not in VARYING}
            return {name: member for name, member in kept.items() if member not in NOTHING and "-size" not in name}
        if isinstance(value, list):
            return [plain(element) for element in value]
        return numbers.get(value, min(value, 0)) if key.endswith("snapshot-id") else value

    return plain(metadata)
