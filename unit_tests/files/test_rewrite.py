"""Parquet files rewritten with wider columns, whichever program wrote them: all else in them is kept."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError
from moto.core.botocore_stubber import MockRawResponse

from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import RewriteTask, Rewritten
from destination_datalake.files.rewrite import publish_rewritten, rewrite
from destination_datalake.schema.types import ColumnType, Decimal, Field, Float64, Int64, List, Struct
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.files.stored import dead, put, put_deletes


def file_of(table: pa.Table, **options: Any) -> bytes:
    content = io.BytesIO()
    pq.write_table(table, content, **options)
    return content.getvalue()


def result_of(cloud: Cloud, content: bytes, columns: Mapping[str, ColumnType]) -> Rewritten | Failed:
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="old", Body=content)
    return rewritten_by([RewriteTask(f"s3://{BUCKET}/old", f"s3://{BUCKET}/new", columns, cloud.access)])


def rewritten_by(tasks: Sequence[RewriteTask]) -> Rewritten | Failed:
    """What becomes of one file: rewritten on an executor, and published by the driver."""
    [result] = rewrite(tasks)
    return publish_rewritten([result], tasks[0].access)[0] if isinstance(result, Rewritten) else result


def rewritten(cloud: Cloud, content: bytes, **columns: ColumnType) -> pq.ParquetFile:
    result = result_of(cloud, content, columns)
    assert isinstance(result, Rewritten), result
    new = cloud.objects()["new"]
    assert (result.source, result.uri, result.size) == (f"s3://{BUCKET}/old", f"s3://{BUCKET}/new", len(new))
    file = pq.ParquetFile(pa.BufferReader(new))
    assert result.rows == file.metadata.num_rows
    assert pq.read_metadata(pa.BufferReader(result.footer)).equals(file.metadata)
    return file


def with_id(field: pa.Field[Any], number: int) -> pa.Field[Any]:
    return field.with_metadata({"PARQUET:field_id": str(number)})


def test_files_that_cannot_be_made_visible_leave_no_uploads(cloud: Cloud) -> None:
    content = file_of(pa.table({"n": pa.array([1, 2], pa.int32())}))
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="old", Body=content)
    new = [f"s3://{BUCKET}/new/{number}" for number in range(3)]
    results = [*rewrite([RewriteTask(f"s3://{BUCKET}/old", uri, {"n": Int64()}, cloud.access) for uri in new])]

    def refuse(_time: int) -> None:
        raise ClientError({"Error": {"Code": "SlowDown", "Message": ""}}, "CompleteMultipartUpload")

    driver = another_client()
    before(driver, "s3", "CompleteMultipartUpload", refuse)
    with pytest.raises(ClientError, match="SlowDown"):
        publish_rewritten(results, driver)

    assert (cloud.unfinished_uploads(), [*cloud.objects()]) == ([], ["old"])


def test_a_file_whose_body_ends_early_is_read_again(cloud: Cloud) -> None:
    content = file_of(pa.table({"n": pa.array([1, 2], pa.int32())}))
    events: Any = cloud.access.client("s3").meta.events

    def truncate(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        events.unregister("before-send.s3.GetObject", truncate)
        headers = HTTPHeaders()
        headers["Content-Length"] = str(len(content))
        return AWSResponse(str(request.url), 200, headers, MockRawResponse(content[:100]))

    events.register_first("before-send.s3.GetObject", truncate)

    assert rewritten(cloud, content, n=Int64()).read().to_pydict() == {"n": [1, 2]}


def test_widened_columns_keep_their_values_and_other_columns_their_types_and_order(cloud: Cloud) -> None:
    inner = pa.struct([("theirs", pa.string()), ("n", pa.int32()), ("all", pa.list_(pa.float32()))])
    table = pa.table(
        {
            "theirs": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
            "n": pa.array([2**31 - 1, None], pa.int32()),
            "x": pa.array([0.25, 1e30], pa.float32()),
            "d": pa.array([1, None], pa.decimal128(9, 2)),
            "inner": pa.array([{"theirs": "b", "n": 3, "all": [0.5]}, None], inner),
            "small": pa.array([1, 2], pa.int8()),
        }
    )
    wide = Struct((Field("n", "n", Int64()), Field("added", "added", Int64()), Field("all", "all", List(Float64()))))

    file = rewritten(cloud, file_of(table), n=Int64(), x=Float64(), d=Decimal(20, 2), inner=wide, absent=Int64())

    assert file.schema_arrow.names == table.schema.names
    assert [str(field.type) for field in list(file.schema_arrow)[1:]] == [
        "int64",
        "double",
        "decimal128(20, 2)",
        "struct<theirs: string, n: int64, all: list<element: double>>",
        "int8",
    ]
    assert file.read().column("x").to_pylist() == table.column("x").to_pylist()
    assert file.read().to_pylist() == table.to_pylist()


def test_column_names_are_compared_without_case(cloud: Cloud) -> None:
    table = pa.table({"ID": pa.array([1], pa.int32()), "Of": pa.array([{"N": 1}], pa.struct([("N", pa.int32())]))})

    file = rewritten(cloud, file_of(table), id=Int64(), of=Struct((Field("n", "n", Int64()),)))

    assert [(field.name, str(field.type)) for field in file.schema_arrow] == [
        ("ID", "int64"),
        ("Of", "struct<N: int64>"),
    ]


def test_field_ids_nullability_row_groups_compression_and_encodings_are_kept(cloud: Cloud) -> None:
    element = with_id(pa.field("element", pa.struct([with_id(pa.field("n", pa.int32()), 4)])), 3)
    schema = pa.schema(
        [
            with_id(pa.field("id", pa.int32(), nullable=False), 1),
            with_id(pa.field("lines", pa.list_(element)), 2),
            with_id(pa.field("plain", pa.string()), 9),
        ]
    )
    rows = [{"id": id, "lines": [{"n": id}], "plain": "a"} for id in range(5)]
    content = file_of(
        pa.Table.from_pylist(rows, schema),
        row_group_size=2,
        compression="gzip",
        use_dictionary=["id"],
        sorting_columns=[pq.SortingColumn(0)],
    )

    file = rewritten(cloud, content, id=Int64(), lines=List(Struct((Field("n", "n", Int64()),))))

    before = pq.ParquetFile(pa.BufferReader(content)).metadata
    after = file.metadata
    assert str(file.schema_arrow.remove_metadata()) == str(
        pq.read_schema(pa.BufferReader(content)).remove_metadata()
    ).replace("int32", "int64")
    assert file.read().to_pylist() == rows
    for groups in range(before.num_row_groups):
        old, new = before.row_group(groups), after.row_group(groups)
        assert (new.num_rows, new.sorting_columns) == (old.num_rows, old.sorting_columns)
        for column in range(before.num_columns):
            assert new.column(column).compression == old.column(column).compression == "GZIP"
            assert new.column(column).has_dictionary_page == old.column(column).has_dictionary_page


@pytest.mark.parametrize("stored", [True, False], ids=["Arrow's schema stored", "not stored"])
def test_int96_timestamps_at_any_depth_become_microseconds_in_utc(cloud: Cloud, stored: bool) -> None:
    """As Spark, Hive and AWS Data Wrangler write them; also of years that nanoseconds cannot reach."""
    instants = [datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1, 1, 1), datetime(1816, 3, 30), None]
    inner = pa.struct([("at", pa.timestamp("us")), ("all", pa.list_(pa.timestamp("us")))])
    table = pa.table(
        {
            "id": pa.array(range(4), pa.int32()),
            "at": pa.array(instants, pa.timestamp("us")),
            "inner": pa.array([{"at": instant, "all": [instant]} for instant in instants], inner),
        }
    )
    content = file_of(table, use_deprecated_int96_timestamps=True, store_schema=stored)
    assert "INT96" in {pq.ParquetFile(pa.BufferReader(content)).schema.column(1).physical_type}

    file = rewritten(cloud, content, id=Int64())

    assert [str(field.type) for field in file.schema_arrow] == [
        "int64",
        "timestamp[us, tz=UTC]",
        "struct<at: timestamp[us, tz=UTC], all: list<element: timestamp[us, tz=UTC]>>",
    ]
    in_utc = [instant and instant.replace(tzinfo=UTC) for instant in instants]
    assert file.read().column("at").to_pylist() == in_utc
    assert file.read().column("inner").to_pylist() == [{"at": instant, "all": [instant]} for instant in in_utc]


def test_metadata_is_kept_without_copies_of_the_narrow_schema(cloud: Cloud) -> None:
    described = {
        "columns": [
            {"name": "id", "field_name": "id", "pandas_type": "int32", "numpy_type": "int32", "metadata": None},
            {"name": "n", "field_name": "n", "pandas_type": "int32", "numpy_type": "Int32", "metadata": None},
            {"name": "s", "field_name": "s", "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
        ],
        "index_columns": [],
        "pandas_version": "2.2.3",
    }
    table = pa.table({"id": pa.array([1], pa.int32()), "n": pa.array([2], pa.int32()), "s": ["a"]})
    words = {"pandas": json.dumps(described), "theirs": "yes", "org.apache.spark.version": "4.0.1"}
    copies = {"org.apache.spark.sql.parquet.row.metadata": "{}", "iceberg.schema": "{}", "parquet.avro.schema": "{}"}

    file = rewritten(cloud, file_of(table.replace_schema_metadata({**words, **copies})), id=Int64(), n=Int64())

    metadata = {key.decode(): value.decode() for key, value in (file.schema_arrow.metadata or {}).items()}
    assert metadata.keys() == words.keys()
    assert {key: metadata[key] for key in metadata if key != "pandas"} == {
        key: words[key] for key in words if key != "pandas"
    }
    pandas = json.loads(metadata["pandas"])
    assert [(column["pandas_type"], column["numpy_type"]) for column in pandas["columns"]] == [
        ("int64", "int64"),
        ("int64", "Int64"),
        ("unicode", "object"),
    ]
    assert pandas["pandas_version"] == "2.2.3"


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"\xff", id="no UTF-8"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b"[1]", id="a list"),
        pytest.param(b'{"columns":5}', id="no columns"),
        pytest.param(b'{"columns":[{"name":"id"},"id"]}', id="a column that is a text"),
        pytest.param(b'{"columns":[{"name":["id"]}]}', id="a name that is a list"),
    ],
)
def test_a_malformed_entry_for_pandas_is_kept_as_it_is(cloud: Cloud, entry: bytes) -> None:
    table = pa.table({"id": pa.array([1], pa.int32())}).replace_schema_metadata({b"pandas": entry})

    file = rewritten(cloud, file_of(table), id=Int64())

    assert (file.schema_arrow.field("id").type, file.schema_arrow.metadata) == (pa.int64(), {b"pandas": entry})


def test_file_without_rows_is_rewritten(cloud: Cloud) -> None:
    file = rewritten(cloud, file_of(pa.table({"id": pa.array([], pa.int32())})), id=Int64())

    assert str(file.schema_arrow) == "id: int64"


@pytest.mark.parametrize(
    "content",
    [b"no Parquet", file_of(pa.table({"id": ["text"]}))],
    ids=["another format", "another type"],
)
def test_object_that_cannot_be_rewritten_is_named_and_leaves_no_target(cloud: Cloud, content: bytes) -> None:
    result = result_of(cloud, content, {"id": Int64()})

    assert isinstance(result, Failed)
    assert f"s3://{BUCKET}/old cannot be read as Parquet" in result.failure.message
    assert result.failure.type == "config_error"
    assert (list(cloud.objects()), cloud.unfinished_uploads()) == (["old"], [])


def test_missing_object_is_reported_as_an_error_of_s3(cloud: Cloud) -> None:
    (result,) = rewrite([RewriteTask(f"s3://{BUCKET}/gone", f"s3://{BUCKET}/new", {}, cloud.access)])

    assert isinstance(result, Failed)
    assert result.failure.message.startswith(f"Cannot rewrite s3://{BUCKET}/gone (S3, GetObject): ")


OLD, NEW = f"s3://{BUCKET}/old.parquet", f"s3://{BUCKET}/new.parquet"


def field(name: str, type_: pa.DataType, id_: int) -> pa.Field[Any]:
    return pa.field(name, type_, metadata={"PARQUET:field_id": str(id_)})


KEY: Any = field("key", pa.string(), 7).with_nullable(False)
VALUE: Any = field("value", pa.float32(), 8)
MOVES = pa.struct([field("up", pa.float32(), 4), field("down", pa.float32(), 5)])
SCHEMA = pa.schema(
    [
        field("price", pa.float32(), 1),
        field("moves", pa.list_(field("element", MOVES, 3)), 2),
        field("rates", pa.map_(KEY, VALUE), 6),
    ]
)
ROW = {"price": 0.1, "moves": [{"up": 0.5, "down": 0.3}, None], "rates": [("a", 0.25)]}


def promoted(cloud: Cloud, *to_double: int) -> Rewritten:
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([ROW, {}], SCHEMA), body)
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key="old.parquet", Body=body.getvalue())
    answer = rewritten_by([RewriteTask(OLD, NEW, {}, cloud.access, frozenset(to_double))])
    assert isinstance(answer, Rewritten)
    return answer


def ids(fields: Any) -> dict[int, pa.DataType]:
    """The types of all leaves of a schema by their field ids."""
    types: dict[int, pa.DataType] = {}
    for field in fields:
        below: list[Any] = []
        if pa.types.is_map(field.type):
            below = [field.type.key_field, field.type.item_field]
        elif pa.types.is_list(field.type):
            below = [field.type.value_field]
        elif pa.types.is_struct(field.type):
            below = list(field.type)
        else:
            types[int(field.metadata[b"PARQUET:field_id"])] = field.type
        types |= ids(below)
    return types


def test_floats_at_any_depth_are_promoted_by_field_id(cloud: Cloud) -> None:
    answer = promoted(cloud, 1, 4)

    new = pq.read_table(cloud.arrow("new.parquet"))
    before = pa.Table.from_pylist([ROW, {}], SCHEMA).to_pylist()
    assert new.to_pylist() == before
    assert ids(new.schema) == {**ids(SCHEMA), 1: pa.float64(), 4: pa.float64()}
    assert answer == Rewritten(NEW, len(cloud.objects()["new.parquet"]), 2, source=OLD)


def test_file_without_the_promoted_fields_is_not_rewritten(cloud: Cloud) -> None:
    answer = promoted(cloud, 9)

    assert answer == Rewritten(OLD, len(cloud.objects()["old.parquet"]), 2, source=OLD)
    assert "new.parquet" not in cloud.objects()


def test_file_of_a_partition_is_rewritten_into_the_folder_of_its_target(cloud: Cloud) -> None:
    folder = "orders/city=S%C3%A3o+Paulo %2F?#/at_day=__HIVE_DEFAULT_PARTITION__"
    s3 = cloud.access.client("s3")
    s3.put_object(Bucket=BUCKET, Key=f"{folder}/old.parquet", Body=file_of(pa.table({"n": pa.array([1], pa.int32())})))
    source, target = (f"s3://{BUCKET}/{folder}/{name}.parquet" for name in ("old", "new"))

    result = rewritten_by([RewriteTask(source, target, {"n": Int64()}, cloud.access)])

    assert isinstance(result, Rewritten)
    assert (result.source, result.uri) == (source, target)
    assert sorted(cloud.objects()) == [f"{folder}/new.parquet", f"{folder}/old.parquet"]


def test_rows_that_position_deletes_remove_are_left_out(cloud: Cloud) -> None:
    old = put(cloud, "old", pa.table({"n": pa.array(range(6), pa.int32())}), row_group_size=2)
    deletes = (put_deletes(cloud, "first", dead(old, [0, 1, 2])), put_deletes(cloud, "second", dead(old, [2, 4])))

    result = rewritten_by(
        [RewriteTask(old.uri, f"s3://{BUCKET}/new", {"n": Int64()}, cloud.access, position_deletes=deletes)]
    )

    assert isinstance(result, Rewritten)
    file = pq.ParquetFile(cloud.arrow("new"))
    assert file.read().to_pydict() == {"n": [3, 5]}
    assert (result.rows, file.num_row_groups) == (2, 2)
