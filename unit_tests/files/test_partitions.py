"""Units with partitions, from segments to files: rejects know their rows, and a failed unit leaves nothing."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import MockRawResponse

from destination_datalake.aws.objects import PART_BYTES, publish_all
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import (
    Encoded,
    EncodeTask,
    EncodeUnit,
    FileFormat,
    FilePlan,
    NotEncoded,
    UnitResult,
)
from destination_datalake.files.unit_files import WAITING_BYTES, PartitionedFileWriter
from destination_datalake.partitioning.paths import PartitionFolders, PartitionKey
from destination_datalake.partitioning.spec import SortField, SortOrder
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.schema.types import String
from unit_tests.cloud import BUCKET, Cloud, on_disk
from unit_tests.files.shop import CITY, FIRST_ID, NUMBER, Order, block, plan, rows

pytestmark = pytest.mark.share(3)

ORDERS = StreamId("shop", "orders")
REJECTS = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "shop", "orders")


def line(city: object, number: object) -> bytes:
    body = {"stream": "orders", "data": {"city": city, "number": number}, "emitted_at": 1_700_000_000_000}
    return json.dumps({"type": "RECORD", "record": body}).encode() + b"\n"


def encoded(cloud: Cloud, folder: Path, plan: FilePlan, *segments: bytes) -> UnitResult:
    paths = [folder / f"{number}.jsonl" for number in range(len(segments))]
    for path, segment in zip(paths, segments, strict=True):
        path.write_bytes(segment)
    [result] = encode(
        [EncodeTask((EncodeUnit(ORDERS, "batch", tuple(map(on_disk, paths)), plan, REJECTS),), cloud.access)]
    )
    return result


def test_rejects_have_the_ids_of_their_rows_and_refused_lines_are_in_no_partition(cloud: Cloud, tmp_path: Path) -> None:
    lines = [line("Rome", 1), line("Oslo", "none"), b"no record\n", line("Rome", "none either"), line("Oslo", 2)]

    result = encoded(cloud, tmp_path, plan(CITY), b"".join(lines))

    assert isinstance(result, Encoded)
    stored = [row for file in result.files for row in rows(cloud, file)]
    assert sorted(row.order for row in stored if row.order.number) == [Order("Oslo", 2), Order("Rome", 1)]
    publish_all([file.pending_upload for file in result.rejects], cloud.access.client("s3"))
    keys = [file.uri.removeprefix(f"s3://{BUCKET}/") for file in result.rejects]
    rejected = [json.loads(text) for key in keys for text in gzip.decompress(cloud.objects()[key]).splitlines()]
    city_of = {row.id: row.order.city for row in stored}
    assert [(reject["column_value"], city_of.get(reject["row_id"])) for reject in rejected] == [
        (None, None),
        ('"none"', "Oslo"),
        ('"none either"', "Rome"),
    ]
    assert (result.counts.records, sum(file.rows for file in result.files)) == (5, 4)


@contextmanager
def failing(cloud: Cloud, number: int) -> Iterator[list[str]]:
    """As long as this lasts, the object or part of this number is stored, but the answer is an error. Lists all."""
    operations = ("PutObject", "UploadPart")
    sent: list[str] = []

    def fail(request: AWSPreparedRequest, **_: object) -> Any:
        sent.append(str(request.url))
        if len(sent) - 1 == number:
            body = b"<Error><Code>NotImplemented</Code><Message>Not Implemented</Message></Error>"
            return AWSResponse(str(request.url), 501, HTTPHeaders(), MockRawResponse(body))
        return None

    events = cloud.access.client("s3").meta.events
    for operation in operations:
        events.register_first(f"before-send.s3.{operation}", fail)
    try:
        yield sent
    finally:
        for operation in operations:
            events.unregister(f"before-send.s3.{operation}", fail)


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_unit_that_fails_at_any_request_leaves_nothing(cloud: Cloud, format: FileFormat, deferred: bool) -> None:
    shape = plan(CITY, NUMBER, format=format, deferred=deferred, max_open=1)
    blocks = [block(Order("Rome", 1), Order("Oslo", 1), Order("Rome", 1)), block(Order("Bern", 2)), block(Order())]

    for number in range(5):
        with failing(cloud, number) as sent:
            writer = PartitionedFileWriter("part", shape, cloud.access.client("s3"), FIRST_ID, waiting_bytes=1)
            try:
                for decoded in blocks:
                    writer.write(decoded)
                files = writer.close()
            except cloud.access.client("s3").exceptions.ClientError:
                assert len(sent) > number
                writer.abort()
                assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])
            else:
                assert (len(files), number, len(sent)) == (4, 4, 4)


@pytest.mark.parametrize("deferred", [False, True])
def test_failed_unit_withdraws_the_parts_of_open_files(cloud: Cloud, deferred: bool) -> None:
    shape = plan(NUMBER, format="jsonl", deferred=deferred)
    writer = PartitionedFileWriter("part", shape, cloud.access.client("s3"), FIRST_ID, waiting_bytes=1)
    incompressible = random.Random(1).randbytes(PART_BYTES).hex()
    for number in (10, 20, 30):
        writer.write(block(Order(incompressible, number)))

    writer.abort()

    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


def test_disk_that_cannot_be_written_is_a_transient_error_that_names_the_folder(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/nowhere/spark")
    large = "x" * (WAITING_BYTES // 2)

    result = encoded(cloud, tmp_path, plan(CITY), *[line("Rome", 1) + line(large, 1)] * 3)

    assert isinstance(result, NotEncoded)
    assert result.failure.type == "transient_error"
    assert result.failure.message.startswith("Stream shop.orders could not be written: The disk for spilled rows")
    assert "/nowhere/spark" in result.failure.message
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


def test_values_that_no_folder_can_have_are_in_the_null_partition(cloud: Cloud, tmp_path: Path) -> None:
    hive = PartitionFolders.hive((PartitionKey(replace(CITY, name="city_key"), String(), String()),))
    shape = plan(CITY)
    assert shape.partitioning is not None
    shape = replace(shape, partitioning=replace(shape.partitioning, path=hive))
    cities = ["Rome", "R" * 2000, "\uffff", "é" * 600, ""]

    result = encoded(cloud, tmp_path, shape, b"".join(line(city, 1) for city in cities))

    assert isinstance(result, Encoded)
    folders = {row.order.city: file.uri.split("/")[-2] for file in result.files for row in rows(cloud, file)}
    assert folders == dict.fromkeys(cities, "city_key=__HIVE_DEFAULT_PARTITION__") | {"Rome": "city_key=Rome"}


def test_unit_without_partitions_is_sorted(cloud: Cloud, tmp_path: Path) -> None:
    order = SortOrder((SortField(("number",), ascending=False),))

    result = encoded(cloud, tmp_path, plan(sort_order=order), line("Rome", 1) + line("Oslo", 3), line("Bern", 2))

    assert isinstance(result, Encoded)
    [file] = result.files
    assert [row.order.number for row in rows(cloud, file)] == [3, 2, 1]
    assert (file.is_sorted, file.partition) == (True, ())
