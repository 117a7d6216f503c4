"""Coming from Airbyte's AWS Datalake destination: its tables go on in their own columns."""

import gzip
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow.parquet as pq
import pytest

from integration_tests.conformance.migration.aws_datalake import AwsDatalake
from integration_tests.conformance.migration.migrating import OPTIONS, on, sync
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import BOOLEAN, INTEGER, META, NUMBER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(2)

DATE_TIME: Json = {"type": "string", "format": "date-time"}
DATE: Json = {"type": "string", "format": "date"}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": INTEGER,
        "orderNo": STRING,
        "price": NUMBER,
        "rate": NUMBER,
        "placedAt": DATE_TIME,
        "seenAt": {**DATE_TIME, "airbyte_type": "timestamp_without_timezone"},
        "dueOn": DATE,
        "opens": {"type": "string", "format": "time"},
        "paid": BOOLEAN,
        "points": {"type": "integer", "airbyte_type": "big_integer"},
        "either": {"type": ["integer", "string"]},
        "one": {"oneOf": [INTEGER, {"type": "null"}]},
        "buyer": object_schema(name=STRING, age=INTEGER),
        "open": {"type": "object"},
        "half": object_schema(a=INTEGER, b={"type": "object"}),
        "tags": {"type": "array", "items": STRING},
        "days": {"type": "array", "items": DATE},
        "lines": {"type": "array", "items": object_schema(sku=STRING, price=NUMBER)},
        "anything": {"type": "array"},
    },
}
TYPES = {
    "id": "bigint",
    "orderNo": "string",
    "price": "double",
    "rate": "decimal(38,25)",
    "placedAt": "timestamp",
    "seenAt": "timestamp",
    "dueOn": "date",
    "opens": "string",
    "paid": "boolean",
    "points": "bigint",
    "either": "string",
    "one": "string",
    "buyer": "struct<name:string,age:bigint>",
    "open": "string",
    "half": "string",
    "tags": "array<string>",
    "days": "array<string>",
    "lines": "array<struct<sku:string,price:double>>",
    "anything": "string",
}
"""The schema's columns as AWS Datalake made them."""

SENT = {
    "id": 1,
    "orderNo": "A-1",
    "price": 1.5,
    "rate": Decimal("2.5"),
    "placedAt": "2024-02-29T12:00:00.123Z",
    "seenAt": "2024-02-29T12:00:00.123",
    "dueOn": "2024-03-01",
    "opens": "12:00:00",
    "paid": True,
    "points": 7,
    "either": "text",
    "one": "5",
    "buyer": {"name": "Ada", "age": 36},
    "open": '{"b":1}',
    "half": '{"a":1,"b":{}}',
    "tags": ["x", "y"],
    "days": ["2024-03-01"],
    "lines": [{"sku": "s", "price": 0.5}],
    "anything": "[1]",
}
"""A record as that connector handed it to awswrangler."""

RECORD = {**SENT, "rate": 2.5, "one": 5, "open": {"b": 1}, "half": {"a": 1, "b": {}}, "anything": [1]}
"""The same as a source sends it."""


@pytest.mark.share(1)
@on("hive-parquet")
@pytest.mark.parametrize(
    ("codec", "numeric_types"), [("snappy", "bigint/double"), ("gzip", "int/float"), (None, "decimal")]
)
def test_a_parquet_table_goes_on_in_its_own_columns(
    lake: Lake, platform: Platform, codec: Any, numeric_types: str
) -> None:
    """Values come back as before and as sent, INT96 beside 64-bit timestamps; nothing but our four columns is new."""
    AwsDatalake(lake, codec=codec).append("orders", TYPES, [SENT])
    before = lake.glue_table(lake.database, "orders")
    assert b"pandas" in next(iter(parquet_files(lake))).schema_arrow.metadata
    assert "INT96" in {column.physical_type for column in parquet_columns(next(iter(parquet_files(lake))))}

    for id in (2, 3):
        run = sync(platform, lake.config(**{**OPTIONS, "numeric_types": numeric_types}), SCHEMA, {**RECORD, "id": id})
        assert run.exit_code == 0, run.report()

    types = lake.columns(lake.database, "orders")
    assert [*types] == [*(name.lower() for name in TYPES), *META]
    assert {name: types[name.lower()] for name in TYPES} == TYPES
    rows = own(lake.rows(lake.database, "orders"))
    first = {
        **{name.lower(): value for name, value in SENT.items()},
        "placedat": datetime(2024, 2, 29, 12, 0, 0, 123000),
        "seenat": datetime(2024, 2, 29, 12, 0, 0, 123000),
        "dueon": date(2024, 3, 1),
    }
    assert [without_zones(row) for row in rows] == [{**first, "id": id} for id in (1, 2, 3)]
    by_arrow = [row for file in parquet_files(lake) for row in file.read(columns=["id", "placedat"]).to_pylist()]
    assert {row["id"]: row["placedat"].isoformat()[:23] for row in by_arrow} == dict.fromkeys(
        (1, 2, 3), "2024-02-29T12:00:00.123"
    )
    after = lake.glue_table(lake.database, "orders")
    assert after["StorageDescriptor"]["Location"] == before["StorageDescriptor"]["Location"]
    assert after["Parameters"].items() >= before["Parameters"].items()
    assert not run_warnings(run)


@pytest.mark.slow
@on("hive-parquet")
def test_a_new_column_that_widens_leaves_every_old_value_what_it_was(lake: Lake, platform: Platform) -> None:
    """Hive's Parquet files are rewritten for it: those of AWS Datalake, with INT96 timestamps, among them."""
    AwsDatalake(lake).append("orders", {"id": "bigint", "at": "timestamp"}, [{"id": 1, "at": SENT["placedAt"]}])
    config = lake.config(**{**OPTIONS, "numeric_types": "int/float"})
    schema = object_schema(id=INTEGER, at=DATE_TIME, points=INTEGER)

    for id, points in ((2, 1), (3, 2**40)):
        run = sync(platform, config, schema, {"id": id, "at": SENT["placedAt"], "points": points})
        assert run.exit_code == 0, run.report()

    at = datetime(2024, 2, 29, 12, 0, 0, 123000)
    assert [without_zones(row) for row in own(lake.rows(lake.database, "orders"))] == [
        {"id": id, "at": at, "points": points} for id, points in ((1, None), (2, 1), (3, 2**40))
    ]
    assert lake.columns(lake.database, "orders")["points"] == "bigint"


@pytest.mark.share(1)
@on("hive-jsonl")
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_a_table_of_json_lines_goes_on_in_its_own_columns(lake: Lake, platform: Platform, codec: Any) -> None:
    """The old lines have epoch milliseconds, the new ones text; the table's OpenX SerDe reads both as timestamps."""
    AwsDatalake(lake, "JSONL", codec).append("orders", TYPES, [SENT])
    options = {**OPTIONS, "format": {"format_type": "JSONL", "compression_codec": "GZIP" if codec else "UNCOMPRESSED"}}

    run = sync(platform, lake.config(**options), SCHEMA, {**RECORD, "id": 2})

    assert run.exit_code == 0, run.report()
    assert {name: lake.columns(lake.database, "orders")[name.lower()] for name in TYPES} == TYPES
    entry = lake.glue_table(lake.database, "orders")["StorageDescriptor"]
    assert entry["SerdeInfo"]["SerializationLibrary"] == "org.openx.data.jsonserde.JsonSerDe"
    old, new = sorted(json_rows(lake), key=lambda row: int(row["id"]))
    assert (old["placedat"], new["placedat"][:23]) == (1709208000123, "2024-02-29 12:00:00.123")
    unchanged = [name.lower() for name in TYPES if name not in ("id", "placedAt", "seenAt", "dueOn")]
    assert {name: new[name] for name in unchanged} == {name: old[name] for name in unchanged}


@pytest.mark.share(1)
@on("hive-parquet")
@pytest.mark.parametrize("options", [{"glue_catalog_float_as_decimal": True}, {}, {"numeric_types": "bigint/double"}])
def test_decimal_columns_stay_what_they_are(lake: Lake, platform: Platform, options: dict[str, Any]) -> None:
    """AWS Datalake made decimal(38,25); what does not fit 13 digits before the point and 25 after it is a reject."""
    types = {"id": "bigint", "price": "decimal(38, 25)", "sizes": "array<decimal(38, 25)>"}
    schema = object_schema(id=INTEGER, price=NUMBER, sizes={"type": "array", "items": NUMBER})
    AwsDatalake(lake).append("orders", types, [{"id": 1, "price": Decimal("1.5"), "sizes": [Decimal("0.1")]}])
    config = lake.config(**{**OPTIONS, "numeric_types": None, **options})
    fine, large = "0.1234567890123456789012345", 12345678901234567890

    run = sync(
        platform,
        config,
        schema,
        {"id": 2, "price": fine, "sizes": [0.1, 2]},
        {"id": 3, "price": large},
        {"id": 4, "price": f"{fine}6"},
    )

    assert run.exit_code == 0, run.report()
    assert lake.columns(lake.database, "orders")["price"] == "decimal(38,25)"
    rows = {row["id"]: row for row in lake.rows(lake.database, "orders")}
    assert {id: row["price"] for id, row in rows.items()} == {
        1: Decimal("1.5"),
        2: Decimal(fine),
        3: None,
        4: Decimal("0.1234567890123456789012346"),
    }
    assert rows[2]["sizes"] == [Decimal("0.1"), Decimal(2)]
    assert [change["change"] for id in (3, 4) for change in rows[id]["_airbyte_meta"]["changes"]] == [
        "NULLED",
        "TRUNCATED",
    ]
    assert [reject["column_value"] for reject in lake.rejects()] == [str(large), f'"{fine}6"']


@on("hive-parquet")
def test_a_table_of_a_namespace_goes_on_in_the_folder_that_bears_its_name(lake: Lake, platform: Platform) -> None:
    """Glue has the database in lower case, S3 the folders as the source spells namespace and stream."""
    namespace = lake.name("Web-Shop")
    AwsDatalake(lake).append("orderItems", {"id": "bigint"}, [{"id": 1}], namespace=namespace)
    stream = configured_stream("orderItems", object_schema(id=INTEGER), namespace=namespace)

    run = platform.write(
        lake.config(**OPTIONS),
        configured_catalog(stream),
        [record("orderItems", {"id": 2}, namespace=namespace), status("orderItems", "COMPLETE", namespace=namespace)],
    )

    assert run.exit_code == 0, run.report()
    assert lake.tables() == [(namespace.lower(), "orderitems")]
    assert sorted(row["id"] for row in lake.rows(namespace.lower(), "orderitems")) == [1, 2]
    assert all(key.startswith(f"{PREFIX}/{namespace}/orderItems/") for key in lake.objects())


def test_the_names_of_aws_datalake_hold_in_every_kind_of_table(warehouse: Warehouse) -> None:
    """A namespace with a blank and a hyphen is a database, and a folder that every reader finds."""
    namespace = warehouse.lake.name("Web Shop-9")
    schema = object_schema(**{"id": INTEGER, "a--b": STRING, "9mega": STRING, "京都": STRING, "größe_": STRING})
    stream = configured_stream("orderItems (ä)", schema, namespace=namespace, generation=1, minimum=1)
    data = {"id": 1, "a--b": "a", "9mega": "b", "京都": "c", "größe_": "d"}

    warehouse.sync(
        [stream],
        [
            record("orderItems (ä)", data, namespace=namespace),
            status("orderItems (ä)", "COMPLETE", namespace=namespace),
        ],
        naming={"style": "aws_datalake"},
    )

    expected = {"id": 1, "a_b": "a", "9mega": "b", "_": "c", "gro_e_": "d"}
    assert warehouse.rows("orderitems_a_", namespace.lower()) == [expected]


@on("hive-parquet")
def test_a_table_with_an_empty_folder_s_name_in_its_location_is_refused_in_words(
    lake: Lake, platform: Platform
) -> None:
    """AWS Datalake put a slash of its own after a bucket_prefix that ended in one. Athena reads no such folder."""
    AwsDatalake(lake, prefix=f"{PREFIX}/").append("orders", {"id": "bigint"}, [{"id": 1}])
    before = set(lake.objects())

    run = sync(platform, lake.config(**OPTIONS, bucket_prefix=f"{PREFIX}/"), object_schema(id=INTEGER), {"id": 2})

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert f"{PREFIX}//{lake.database}/orders/ contains an empty folder name" in error["message"]
    assert set(lake.objects()) == before


@on("hive-parquet")
def test_a_refresh_replaces_what_aws_datalake_wrote(lake: Lake, platform: Platform) -> None:
    """Readers see only the new rows; the old files stay where they were, for readers that need them back."""
    AwsDatalake(lake).append("orders", {"id": "bigint", "orderNo": "string"}, [{"id": 1, "orderNo": "a"}])
    schema = object_schema(id=INTEGER, orderNo=STRING)
    old = set(lake.objects())

    for generation in (1, 2):
        row = {"id": 10 + generation, "orderNo": "b"}
        run = sync(platform, lake.config(**OPTIONS), schema, row, generation=generation)
        assert run.exit_code == 0, run.report()

    assert own(lake.rows(lake.database, "orders")) == [{"id": 12, "orderno": "b"}]
    assert old < set(lake.objects())


def own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without this connector's columns, in the order of their ids."""
    return sorted(({k: v for k, v in row.items() if k not in META} for row in rows), key=lambda row: str(row["id"]))


def run_warnings(run: Run) -> list[str]:
    return [text for text in run.logs if "AWS Datalake" in text]


def without_zones(row: dict[str, Any]) -> dict[str, Any]:
    """INT96 and Glue have no zone to tell, so the old files' timestamps have none: the same instants."""
    return {
        name: value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value
        for name, value in row.items()
    }


def parquet_files(lake: Lake) -> list[pq.ParquetFile]:
    return [pq.ParquetFile(io.BytesIO(body(lake, key))) for key in lake.data_files(lake.database, "orders")]


def parquet_columns(file: pq.ParquetFile) -> list[Any]:
    return [file.schema.column(number) for number in range(len(file.schema.names))]


def json_rows(lake: Lake) -> list[dict[str, Any]]:
    rows = []
    for key in lake.data_files(lake.database, "orders"):
        content = body(lake, key)
        text = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        rows += [json.loads(line) for line in text.splitlines()]
    return rows


def body(lake: Lake, key: str) -> bytes:
    return lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
