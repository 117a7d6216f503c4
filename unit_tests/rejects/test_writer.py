"""The objects that the rejects of a unit are written to, and what remains of them when the unit fails."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from destination_datalake.aws.objects import ObjectFailed, publish_all
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.decoded import Decoded, Lines, RejectedLine, ValueChange
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.rejects import writer
from destination_datalake.rejects.ledger import RejectCounts, RejectFile, RejectLocation
from destination_datalake.rejects.writer import RejectFormatter, RejectWriter
from destination_datalake.schema.types import ColumnType, Date, Decimal, Field, Float64, Int64, Timestamp
from unit_tests.cloud import BUCKET, Cloud

LOCATION = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "shop", "orders")
WRONG, LARGE = "DESTINATION_SERIALIZATION_ERROR", "DESTINATION_FIELD_SIZE_LIMITATION"


def rejects_of(cloud: Cloud, location: RejectLocation = LOCATION) -> RejectWriter:
    formatter = RejectFormatter(location, StreamId(None, "orders"), [Field("id", "id", Int64())], "unit", 0)
    return RejectWriter(formatter, location, "unit", cloud.access.client("s3"))


def decoded(
    rows: int, changed: Sequence[tuple[int, Sequence[str]]] = (), refused: Sequence[str] = ()
) -> tuple[Decoded, pa.Array[Any]]:
    """Records, some rows of which have changes for these reasons, and the ids of the rows."""
    at = pa.array(range(rows), pa.timestamp("us", "UTC"))
    rows_changed = {
        row: [ValueChange("id", "NULLED", reason, b'"x"') for reason in reasons] for row, reasons in changed
    }
    lines_refused = [RejectedLine(b"line", reason, "why") for reason in refused]
    lines = Lines(b"line", np.zeros(rows, np.int64), np.full(rows, 4), np.arange(rows))
    return Decoded(at, [], None, rows_changed, lines_refused, lines), pa.array([f"id-{row}" for row in range(rows)])


def publish(cloud: Cloud, files: Sequence[RejectFile]) -> None:
    publish_all([file.pending_upload for file in files], cloud.access.client("s3"))


def written(cloud: Cloud) -> dict[str, list[dict[str, Any]]]:
    """The lines of every object, by key."""
    return {
        key: [json.loads(line) for line in gzip.decompress(content).splitlines()]
        for key, content in cloud.objects().items()
    }


def key(reason: str) -> str:
    return f"_errors/{reason}/shop.orders/dt=2026-11-21/unit.jsonl.gz"


def test_each_reason_has_an_object_with_a_line_for_each_reject(cloud: Cloud) -> None:
    rejects = rejects_of(cloud)
    rejects.write(*decoded(3, [(0, [WRONG]), (2, [WRONG, LARGE])]))
    rejects.write(*decoded(2, [(1, [LARGE])], refused=["R", "R"]))

    files = rejects.close()
    publish(cloud, files)

    row_ids = {key: [line["row_id"] for line in lines] for key, lines in written(cloud).items()}
    assert row_ids == {key(WRONG): ["id-0", "id-2"], key(LARGE): ["id-2", "id-1"], key("R"): [None, None]}
    assert {file.uri for file in files} == {f"s3://{BUCKET}/{name}" for name in row_ids}
    assert {file.folder for file in files} == {f"s3://{BUCKET}/{name.rpartition('/')[0]}/" for name in row_ids}
    assert rejects.counts() == RejectCounts(7, 2, 5, {("id", WRONG): 2, ("id", LARGE): 2, (None, "R"): 2})


@pytest.mark.parametrize("empty", [b'""', b'" "', b'"\\t \\r\\n"'])
def test_text_without_a_value_that_became_null_is_no_reject(cloud: Cloud, empty: bytes) -> None:
    rejects, (records, row_ids) = rejects_of(cloud), decoded(2)
    nothing, wrong = (ValueChange("id", "NULLED", WRONG, original) for original in (empty, b'"x"'))
    changed = {0: [nothing], 1: [nothing, wrong]}

    rejects.write(replace(records, changed=changed), row_ids)

    publish(cloud, rejects.close())
    assert [line["column_value"] for lines in written(cloud).values() for line in lines] == ['"x"']
    assert rejects.counts() == RejectCounts(2, 0, 1, {("id", WRONG): 1})


@pytest.mark.parametrize(
    ("column_type", "text", "stored"),
    [
        (Date(), "", None),
        (Float64(), "", None),
        (Decimal(38, 18), " ", None),
        (Timestamp(zoned=True), "2016-12-31T23:59:60Z", datetime(2017, 1, 1, tzinfo=UTC)),
        (Timestamp(zoned=False), "2016-12-31T23:59:60", datetime(2017, 1, 1)),
        (Date(), "2016-12-31T23:59:60Z", date(2017, 1, 1)),
    ],
)
def test_change_that_loses_no_value_is_in_the_row_and_not_among_the_rejects(
    cloud: Cloud, column_type: ColumnType, text: str, stored: object
) -> None:
    decoded_row = decoded_with(column_type, text)
    rejects = rejects_of(cloud)

    rejects.write(decoded_row, pa.array(["id-0"]))

    assert decoded_row.changes is not None
    changes: list[Any] = decoded_row.changes.to_pylist()
    [[change]] = changes
    assert (decoded_row.columns[0].to_pylist(), change["field"]) == ([stored], "id")
    assert rejects.close() == []
    assert rejects.counts() == RejectCounts(1)


@pytest.mark.parametrize(
    ("column_type", "text"),
    [(Timestamp(zoned=True), "2016-12-31T23:59:60.5Z"), (Date(), "2017-01-01T00:59:60+01:00")],
)
def test_leap_second_that_loses_digits_or_a_time_is_a_reject(cloud: Cloud, column_type: ColumnType, text: str) -> None:
    rejects = rejects_of(cloud)

    rejects.write(decoded_with(column_type, text), pa.array(["id-0"]))

    assert rejects.counts() == RejectCounts(1, 0, 1, {("id", LARGE): 1})


def decoded_with(column_type: ColumnType, text: str) -> Decoded:
    """Decode a record with this text in the column `id`."""
    record = {"stream": "orders", "data": {"id": text}, "emitted_at": 1}
    line = json.dumps({"type": "RECORD", "record": record}).encode() + b"\n"
    [decoded_row] = BlockDecoder([Field("id", "id", column_type)]).decode(line)
    return decoded_row


def test_values_without_a_line_are_counted_too(cloud: Cloud) -> None:
    rejects = rejects_of(cloud)
    rejects.write(*decoded(1, [(0, [WRONG] * 1000)]))

    publish(cloud, rejects.close())

    assert rejects.counts() == RejectCounts(1, 0, 1, {("id", WRONG): 1000})
    [lines] = written(cloud).values()
    assert len(lines) + lines[0]["values_not_listed"] == 1000


def test_without_rejects_nothing_is_written(cloud: Cloud) -> None:
    rejects = rejects_of(cloud)
    rejects.write(*decoded(5))

    assert rejects.close() == []
    assert cloud.objects() == {}
    assert rejects.counts() == RejectCounts(records=5)


def test_nobody_sees_the_rejects_of_an_attempt_before_they_are_published(cloud: Cloud) -> None:
    rejects = rejects_of(cloud)
    rejects.write(*decoded(1, [(0, [WRONG])]))

    files = rejects.close()

    assert cloud.objects() == {}
    publish(cloud, files)
    publish(cloud, files)
    assert [len(lines) for lines in written(cloud).values()] == [1]


@pytest.mark.parametrize("closed", [False, True])
def test_an_aborted_unit_leaves_neither_objects_nor_uploads(cloud: Cloud, closed: bool) -> None:
    rejects = rejects_of(cloud)
    rejects.write(*decoded(1, [(0, [WRONG, LARGE])]))
    if closed:
        rejects.close()

    rejects.abort()

    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


def test_the_error_names_the_object_that_cannot_be_written(cloud: Cloud) -> None:
    location = RejectLocation("s3://nobody-s-bucket/_errors", "run", "2026-11-21", "shop", "orders")
    rejects = rejects_of(cloud, location)
    rejects.write(*decoded(1, [(0, [WRONG])]))

    with pytest.raises(ObjectFailed) as failed:
        rejects.close()
    rejects.abort()

    assert failed.value.uri == location.uri(WRONG, "unit")
    assert failed.value.__cause__ is not None


def test_more_text_than_is_buffered_is_written_completely(cloud: Cloud) -> None:
    rejects = rejects_of(cloud)
    rows = 3 * writer.BUFFER_BYTES // 500
    rejects.write(*decoded(rows, [(row, [WRONG]) for row in range(rows)]))

    publish(cloud, rejects.close())

    [lines] = written(cloud).values()
    assert [line["row_id"] for line in lines] == [f"id-{row}" for row in range(rows)]
