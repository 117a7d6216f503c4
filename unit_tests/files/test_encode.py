"""Segments in, data files out: the encoding job, and what is left of a unit that fails."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.aws.objects import PART_BYTES
from destination_datalake.files import parquet, unit_files
from destination_datalake.files.encode import encode
from destination_datalake.files.parquet import CHUNK_METADATA_BYTES
from destination_datalake.files.plan import (
    DataFile,
    Encoded,
    EncodeTask,
    EncodeUnit,
    FilePlan,
    NotEncoded,
    UnitResult,
)
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.decoder import BLOCK_BYTES
from destination_datalake.records.undeclared import SAMPLE_BYTES
from destination_datalake.rejects.ledger import RejectCounts, RejectLocation
from destination_datalake.schema.types import Decimal, Field, Float32, Int32, Int64, String
from unit_tests.cloud import BUCKET, Cloud, on_disk

pytestmark = pytest.mark.share(10)

ORDERS = StreamId("shop", "orders")
COLUMNS = (Field("id", "id", Int32()), Field("text", "Text", String()))
PLAN = FilePlan(
    format="parquet",
    codec="ZSTD",
    columns=COLUMNS,
    field_ids={},
    folder=f"s3://{BUCKET}/shop/orders",
    deferred=False,
    target_bytes=128 * 1024 * 1024,
    generation=7,
    sync_id=42,
)


REJECTS = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "shop", "orders")


def record(id_: object, text: object = None) -> bytes:
    body = {"stream": "orders", "data": {"id": id_, "Text": text}, "emitted_at": 1_700_000_000_000}
    return json.dumps({"type": "RECORD", "record": body}).encode() + b"\n"


NOWHERE = on_disk(Path("/nowhere/secret"))


class Segments:
    """Files of record lines on the executor's disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, *lines: bytes) -> StagedSegment:
        path = self._folder / f"{sum(1 for _ in self._folder.iterdir())}.jsonl"
        path.write_bytes(b"".join(lines))
        return on_disk(path)


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(tmp_path)


def encoded(cloud: Cloud, segments: Sequence[StagedSegment], plan: FilePlan = PLAN, name: str = "batch") -> UnitResult:
    [result] = encode([EncodeTask((EncodeUnit(ORDERS, name, tuple(segments), plan, REJECTS),), cloud.access)])
    return result


def files(result: UnitResult) -> tuple[DataFile, ...]:
    assert isinstance(result, Encoded), result
    return result.files


def key(file: DataFile) -> str:
    return file.uri.removeprefix(f"s3://{BUCKET}/")


def rows(cloud: Cloud, file: DataFile) -> list[dict[str, Any]]:
    return pq.read_table(cloud.arrow(key(file))).to_pylist()


def test_segments_are_written_to_one_file_in_order(cloud: Cloud, segments: Segments) -> None:
    result = encoded(cloud, [segments.write(record(1, "a"), record(2, "b")), segments.write(record(3, "c"))])

    [file] = files(result)
    assert result == Encoded(ORDERS, (file,), RejectCounts(records=3), ())
    assert [(row["id"], row["text"]) for row in rows(cloud, file)] == [(1, "a"), (2, "b"), (3, "c")]
    assert re.fullmatch(r"shop/orders/batch-[0-9a-f]{8}-0000\.parquet", key(file))
    assert (file.rows, file.columns) == (3, COLUMNS)
    assert file.size == len(cloud.objects()[key(file)])
    assert pq.read_metadata(pa.BufferReader(file.footer)).num_rows == 3


def test_metadata_columns_come_first(cloud: Cloud, segments: Segments) -> None:
    [file] = files(encoded(cloud, [segments.write(record(1))]))

    [row] = rows(cloud, file)
    assert list(row) == [
        "_airbyte_raw_id",
        "_airbyte_extracted_at",
        "_airbyte_meta",
        "_airbyte_generation_id",
        "id",
        "text",
    ]
    assert (row["_airbyte_meta"], row["_airbyte_generation_id"]) == ({"sync_id": 42, "changes": []}, 7)


def test_file_has_field_ids(cloud: Cloud, segments: Segments) -> None:
    ids = {
        "_airbyte_raw_id": 1,
        "_airbyte_extracted_at": 2,
        "_airbyte_meta": 3,
        "_airbyte_meta.sync_id": 4,
        "_airbyte_meta.changes": 5,
        "_airbyte_meta.changes.element": 6,
        "_airbyte_meta.changes.element.field": 7,
        "_airbyte_meta.changes.element.change": 8,
        "_airbyte_meta.changes.element.reason": 9,
        "_airbyte_generation_id": 10,
        "id": 11,
        "text": 12,
    }

    [file] = files(encoded(cloud, [segments.write(record(1))], replace(PLAN, field_ids=ids)))

    schema = pq.read_schema(cloud.arrow(key(file)))
    assert [(field.metadata or {})[b"PARQUET:field_id"] for field in schema] == [b"1", b"2", b"3", b"10", b"11", b"12"]


def test_widened_column_starts_a_new_file_and_stays_wide(cloud: Cloud, segments: Segments) -> None:
    plan = replace(PLAN, columns=(Field("id", "id", Int32()), Field("text", "Text", Float32())))
    blocks = [segments.write(record(number, 0.5)) for number in (1, 2**31, 3)]

    first, second = files(encoded(cloud, blocks, plan))

    assert [column.type for column in first.columns] == [Int32(), Float32()]
    assert [column.type for column in second.columns] == [Int64(), Float32()]
    assert [row["id"] for row in rows(cloud, first) + rows(cloud, second)] == [1, 2**31, 3]
    assert pq.read_schema(cloud.arrow(key(first))).field("id").type == pa.int32()
    assert pq.read_schema(cloud.arrow(key(second))).field("id").type == pa.int64()


def test_file_of_target_size_is_followed_by_another(cloud: Cloud, segments: Segments) -> None:
    plan = replace(PLAN, format="jsonl", codec="UNCOMPRESSED", target_bytes=1)

    written = files(encoded(cloud, [segments.write(record(number)) for number in range(3)], plan))

    assert [key(file).rpartition("-")[2] for file in written] == [f"000{number}.jsonl" for number in range(3)]
    assert [file.rows for file in written] == [1, 1, 1]


def test_file_ends_before_the_metadata_of_its_row_groups_takes_much_memory(
    cloud: Cloud, segments: Segments, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [segments.write(record(number)) for number in range(5)]
    row_group = CHUNK_METADATA_BYTES * len(pq.read_schema(cloud.arrow(key(files(encoded(cloud, blocks[:1]))[0]))))
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 1)
    monkeypatch.setattr(unit_files, "MAX_METADATA_BYTES", 2 * row_group)

    written = files(encoded(cloud, blocks))

    assert [[row["id"] for row in rows(cloud, file)] for file in written] == [[0, 1], [2, 3], [4]]


def test_deferred_file_is_not_visible_before_it_is_published(cloud: Cloud, segments: Segments) -> None:
    [file] = files(encoded(cloud, [segments.write(record(1))], replace(PLAN, deferred=True)))
    assert cloud.objects() == {}
    assert file.pending_upload is not None

    file.pending_upload.publish(cloud.access.client("s3"))

    assert [row["id"] for row in rows(cloud, file)] == [1]


def staged(cloud: Cloud, body: bytes) -> StagedSegment:
    """Put a segment to S3, as for executors on other machines."""
    answer = cloud.access.client("s3").put_object(Bucket=BUCKET, Key="_staging/1.jsonl", Body=body)
    return StagedSegment(StagedObject(f"s3://{BUCKET}/_staging/1.jsonl", answer["ETag"]), len(body))


def test_segment_in_s3_is_downloaded(cloud: Cloud) -> None:
    [file] = files(encoded(cloud, [staged(cloud, record(1) + record(2))]))

    assert [row["id"] for row in rows(cloud, file)] == [1, 2]


def test_undeclared_fields_of_the_first_block_are_reported_by_name(cloud: Cloud, segments: Segments) -> None:
    body = {"stream": "orders", "data": {"id": 1, "surname": "secret"}, "emitted_at": 1}
    first = segments.write(json.dumps({"type": "RECORD", "record": body}).encode() + b"\n")

    result = encoded(cloud, [first, segments.write(record(2))])

    assert isinstance(result, Encoded)
    assert result.undeclared == ("surname",)


def test_lines_longer_than_a_block_are_read_whole(cloud: Cloud, segments: Segments) -> None:
    texts = ["x" * (BLOCK_BYTES // 3), "y" * (2 * BLOCK_BYTES), "z", "x" * (BLOCK_BYTES - 50), "end"]

    [file] = files(encoded(cloud, [segments.write(*(record(index, text) for index, text in enumerate(texts)))]))

    assert [row["text"] for row in rows(cloud, file)] == texts


def test_first_line_longer_than_the_sample_for_undeclared_fields_is_written(cloud: Cloud, segments: Segments) -> None:
    text = "x" * SAMPLE_BYTES

    [file] = files(encoded(cloud, [segments.write(record(1, text), record(2, "a"))]))

    assert [row["text"] for row in rows(cloud, file)] == [text, "a"]


def test_changed_value_is_counted_and_recorded_in_meta(cloud: Cloud, segments: Segments) -> None:
    result = encoded(cloud, [segments.write(record("not a number", "a"), record(2, "b"))])

    [file] = files(result)
    assert isinstance(result, Encoded)
    assert result.counts == RejectCounts(records=2, affected=1, reasons={("id", "DESTINATION_SERIALIZATION_ERROR"): 1})
    assert [row["_airbyte_meta"]["changes"] for row in rows(cloud, file)] == [
        [{"field": "id", "change": "NULLED", "reason": "DESTINATION_SERIALIZATION_ERROR"}],
        [],
    ]


def test_file_lists_its_columns_with_nulls(cloud: Cloud, segments: Segments) -> None:
    with_nulls = files(encoded(cloud, [segments.write(record(1, "a"), record(2))]))
    without = files(encoded(cloud, [segments.write(record(1, "a"), record(2, "b"))]))

    assert "text" in with_nulls[0].with_nulls
    assert {"id", "text"}.isdisjoint(without[0].with_nulls)


def test_no_records_make_no_files(cloud: Cloud) -> None:
    assert encoded(cloud, []) == Encoded(ORDERS, (), RejectCounts(), ())
    assert cloud.objects() == {}


@pytest.mark.parametrize("deferred", [False, True])
def test_failed_unit_has_a_reason_leaves_no_objects_and_does_not_stop_others(
    cloud: Cloud, segments: Segments, deferred: bool
) -> None:
    plan = replace(PLAN, deferred=deferred, target_bytes=1)
    good = EncodeUnit(StreamId(None, "good"), "good", (segments.write(record(1)),), plan, REJECTS)
    bad = EncodeUnit(ORDERS, "bad", (segments.write(record(1)), NOWHERE), plan, REJECTS)

    failed, succeeded = encode([EncodeTask((bad, good), cloud.access)])

    assert isinstance(failed, NotEncoded)
    assert (failed.stream, failed.failure.type) == (ORDERS, "system_error")
    assert failed.failure.message.startswith("Stream shop.orders could not be written: an unexpected FileNotFoundError")
    assert "secret" not in failed.failure.message + failed.failure.detail
    assert len(files(succeeded)) == 1
    assert [*cloud.objects(), *cloud.unfinished_uploads()] == [key(file) for file in files(succeeded)]


@pytest.mark.parametrize("late_try_fails", [False, True])
def test_late_attempt_does_not_touch_the_files_of_the_one_that_counts(
    cloud: Cloud, segments: Segments, late_try_fails: bool
) -> None:
    plan = replace(PLAN, format="jsonl", codec="UNCOMPRESSED", target_bytes=1)
    lines = segments.write(record(1, "what was received"))
    counts = files(encoded(cloud, [lines], plan))
    before = {key(file): cloud.objects()[key(file)] for file in counts}

    # When a try that Spark has given up, but that has not noticed, finds its segment written again, or gone
    assert isinstance(lines.location, LocalFile)
    Path(lines.location.path).write_bytes(record(2, "another stream's"))
    late = encoded(cloud, [lines, NOWHERE] if late_try_fails else [lines], plan)

    # Then what a commit may hold by now is as it was
    assert isinstance(late, NotEncoded) == late_try_fails
    assert {name: cloud.objects().get(name) for name in before} == before


def test_unit_with_an_invalid_plan_does_not_stop_others(cloud: Cloud, segments: Segments) -> None:
    lines = segments.write(record(1))
    impossible = replace(PLAN, columns=(Field("id", "id", Decimal(99, 0)),))
    bad = EncodeUnit(ORDERS, "bad", (lines,), impossible, REJECTS)
    good = EncodeUnit(StreamId(None, "good"), "good", (lines,), PLAN, REJECTS)

    failed, succeeded = encode([EncodeTask((bad, good), cloud.access)])

    assert isinstance(failed, NotEncoded)
    assert failed.stream == ORDERS
    assert len(files(succeeded)) == 1


@pytest.mark.parametrize("deferred", [False, True])
def test_failed_unit_reports_the_first_error_when_its_parts_cannot_be_withdrawn(
    cloud: Cloud, segments: Segments, deferred: bool
) -> None:
    plan = replace(PLAN, format="jsonl", codec="UNCOMPRESSED", deferred=deferred)
    lines = segments.write(record("not a number"), record(1, "x" * 2 * PART_BYTES))
    bad = EncodeUnit(ORDERS, "bad", (lines,), plan, REJECTS)
    good = EncodeUnit(StreamId(None, "good"), "good", (segments.write(record(1)),), PLAN, REJECTS)

    # When S3 takes neither the parts that one unit needs nor word that they are not wanted any more
    with cloud.refusing("UploadPart", "AbortMultipartUpload", "DeleteObject"):
        failed, succeeded = encode([EncodeTask((bad, good), cloud.access)])

    # Then it has failed of the former, the other has not, and the log says that something is left
    assert isinstance(failed, NotEncoded)
    assert "UploadPart" in failed.failure.message
    assert failed.failure.type == "config_error"
    assert "Cannot delete all written files" in failed.failure.detail
    assert len(files(succeeded)) == 1


def test_refusal_of_aws_is_a_config_error_that_names_the_bucket(cloud: Cloud, segments: Segments) -> None:
    failed = encoded(cloud, [segments.write(record(1))], replace(PLAN, folder="s3://nobody-s-bucket/shop"))

    assert isinstance(failed, NotEncoded)
    assert "nobody-s-bucket" in failed.failure.message
    assert failed.failure.type == "config_error"


def test_failure_of_a_unit_from_another_machine_names_the_executor_s_host(cloud: Cloud, segments: Segments) -> None:
    elsewhere = replace(PLAN, folder="s3://nobody-s-bucket/shop")

    local = encoded(cloud, [segments.write(record(1))], elsewhere)
    remote = encoded(cloud, [staged(cloud, record(1))], elsewhere)

    assert isinstance(local, NotEncoded)
    assert isinstance(remote, NotEncoded)
    assert (
        remote.failure.message
        == f"{local.failure.message} The error occurred on an executor on host {socket.gethostname()}."
    )


IMPORTS = """
import sys
import destination_datalake.files.encode, destination_datalake.files.rewrite
print({"pyspark", "py4j", "pyiceberg", "boto3", "awswrangler", "airbyte_cdk", "pydantic"} & {*sys.modules})
"""


def test_jobs_on_executors_import_neither_spark_nor_catalogs_nor_the_cdk() -> None:
    ended = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "set()\n", ended.stderr
