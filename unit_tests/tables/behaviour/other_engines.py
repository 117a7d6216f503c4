"""Other writers of the table: an engine that creates it, appends rows and sets properties, knowing nothing of us."""

import io
import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import LongType, NestedField, StringType

from integration_tests.harness.lake import PREFIX
from unit_tests.tables.behaviour.shop import Shop

PROPERTY = "cost-centre"
_HIVE_FORMATS = {
    "hive-parquet": (
        "org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat",
        "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
    ),
    "hive-jsonl": ("org.apache.hadoop.mapred.TextInputFormat", "org.openx.data.jsonserde.JsonSerDe"),
}


def create_iceberg(
    shop: Shop,
    *fields: NestedField,
    order: SortOrder = UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    """Create an Iceberg table with these columns, and return it."""
    shop.lake.glue.create_database(DatabaseInput={"Name": shop.name.database})
    return shop.lake.create_iceberg_table(*shop.name, Schema(*fields), order, properties)


def create(shop: Shop, id_type: str = "bigint") -> None:
    """Create the table with the columns `id` (bigint or string) and `theirs` (string), and the property."""
    if shop.kind.name == "iceberg":
        id_ = NestedField(1, "id", LongType() if id_type == "bigint" else StringType())
        create_iceberg(shop, id_, NestedField(2, "theirs", StringType()), properties={PROPERTY: "7"})
        return
    shop.lake.glue.create_database(DatabaseInput={"Name": shop.name.database})
    input_format, serde = _HIVE_FORMATS[shop.kind.name]
    shop.lake.glue.create_table(
        DatabaseName=shop.name.database,
        TableInput={
            "Name": shop.name.table,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": {PROPERTY: "7"},
            "StorageDescriptor": {
                "Columns": [{"Name": "id", "Type": id_type}, {"Name": "theirs", "Type": "string"}],
                "Location": f"s3://{shop.lake.bucket}/{PREFIX}/{shop.name.database}/elsewhere/",
                "InputFormat": input_format,
                "SerdeInfo": {"SerializationLibrary": serde},
            },
        },
    )


def append(shop: Shop, **row: Any) -> None:
    """Append a row."""
    if shop.kind.name == "iceberg":
        table = shop.lake.iceberg_table(*shop.name)
        names = [name for name in table.schema().column_names if name in row]
        schema = pa.schema([table.schema().as_arrow().field(name) for name in names])
        table.append(pa.Table.from_pylist([row], schema))
        return
    location = shop.lake.glue_table(*shop.name)["StorageDescriptor"]["Location"].rstrip("/")
    key = f"{location.partition(f'://{shop.lake.bucket}/')[2]}/{uuid4().hex}"
    if shop.kind.is_typed:
        types = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string()}
        schema = pa.schema([pa.field(name, types[shop.types()[name]]) for name in row])
        body = io.BytesIO()
        pq.write_table(pa.Table.from_pylist([row], schema), body)
        shop.lake.s3.put_object(Bucket=shop.lake.bucket, Key=f"{key}.parquet", Body=body.getvalue())
    else:
        shop.lake.s3.put_object(Bucket=shop.lake.bucket, Key=f"{key}.json", Body=json.dumps(row).encode())


def drop_column(shop: Shop, name: str) -> None:
    """Drop a column."""
    if shop.kind.name == "iceberg":
        with shop.lake.iceberg_table(*shop.name).update_schema() as update:
            update.delete_column(name)
        return

    def drop(table_input: Any) -> None:
        columns = table_input["StorageDescriptor"]["Columns"]
        table_input["StorageDescriptor"]["Columns"] = [column for column in columns if column["Name"] != name]

    update_entry(shop, drop)


def set_property(shop: Shop, value: str) -> None:
    """Set the property."""
    if shop.kind.name == "iceberg":
        with shop.lake.iceberg_table(*shop.name).transaction() as transaction:
            transaction.set_properties({PROPERTY: value})
        return
    update_entry(shop, lambda table_input: table_input["Parameters"].update({PROPERTY: value}))


def change_the_catalog(shop: Shop, number: int) -> None:
    """Do what people do in the Glue console: a comment, a description, an owner, a parameter; a Hive table's column."""

    def change(table_input: Any) -> None:
        columns = table_input["StorageDescriptor"]["Columns"]
        next(column for column in columns if column["Name"] == "id")["Comment"] = f"theirs {number}"
        if shop.kind.name != "iceberg":  # There a column is not the catalog's to add.
            columns.append({"Name": f"theirs_{number}", "Type": "map<string,int>"})
        table_input["Parameters"][f"theirs.{number}"] = "yes"
        table_input |= {"Description": f"theirs {number}", "Owner": "them"}

    update_entry(shop, change)


def update_entry(shop: Shop, change: Callable[[Any], None]) -> None:
    """Change the table's entry in the catalog, without compare-and-set."""
    table: Any = shop.lake.glue_table(*shop.name)
    keys = ("Name", "TableType", "Retention", "Parameters", "PartitionKeys", "StorageDescriptor")
    table_input: Any = {key: table[key] for key in keys if key in table}
    change(table_input)
    shop.lake.glue.update_table(DatabaseName=shop.name.database, TableInput=table_input)


def property_of(shop: Shop) -> str | None:
    """Return the property as engines find it."""
    if shop.kind.name == "iceberg":
        return shop.lake.iceberg_table(*shop.name).properties.get(PROPERTY)
    return shop.lake.glue_table(*shop.name)["Parameters"].get(PROPERTY)
