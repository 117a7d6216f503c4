"""Results of the connector's jobs, as data that a server sends."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.aws.access import Usage, metered
from destination_datalake.aws.objects import DeferredUpload, PendingUpload
from destination_datalake.errors import Failure, MissingPermission
from destination_datalake.files.dedup.remove import remove
from destination_datalake.files.dedup.tasks import UNKNOWN, IndexPart, KeyBounds, Removed, RowSet, Winners
from destination_datalake.files.dedup.winners import consume_versions, winners
from destination_datalake.files.encode import encode as encode_files
from destination_datalake.files.ids import Ids, with_ids
from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import (
    Compacted,
    DataFile,
    Encoded,
    LineFile,
    NotCompacted,
    NotEncoded,
    Rewritten,
    SkippedFile,
    UnitLines,
    WrittenFile,
)
from destination_datalake.files.rewrite import compact, rewrite
from destination_datalake.files.scan import (
    ColumnMatches,
    FileMatches,
    RowIdMatches,
    find_by_column_value,
    find_by_row_id,
)
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import Partition, RejectCounts, RejectFile
from destination_datalake.schema import types
from destination_datalake.spark.connect.values import InvalidResults, decode, encode, result_type
from unit_tests.examples import examples

_BOUNDS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.dates(),
    st.times(),
    st.just(UNKNOWN),
)
_COLUMN_TYPES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([types.Boolean(), types.Int32(), types.Float64(), types.String(), types.Json(), types.Date()])
    | st.builds(types.Decimal, st.integers(1, 38), st.integers(0, 38))
    | st.builds(types.Timestamp, st.sampled_from([None, True, False])),
    lambda inner: (
        st.builds(types.List, inner)
        | st.lists(st.builds(types.Field, st.text(), st.text(), inner), max_size=3).map(tuple).map(types.Struct)
    ),
    max_leaves=5,
)

UPLOAD = PendingUpload("lake", "shop/orders/1", "upload", ("etag-1", "etag-2"))
FAILED = Failure("m", "d", "config_error", MissingPermission("s3:GetObject"))
ROWS = {0: RowSet(b"\x00\xff")}
NEW = WrittenFile("s3://lake/new", 1, 2, b"PAR1")
ORDERS = StreamId("shop", "orders")
FILE = DataFile(
    "s3://lake/a",
    2**40,
    3,
    (types.Field("id", "id", types.Int64(), ("a", "b")),),
    b"PAR1",
    UPLOAD,
    frozenset(("id",)),
    (None, True, 1, 1.5, Decimal("1.50"), "京都", b"\x00"),
    1,
    is_sorted=True,
)
REJECTS = RejectFile(Partition("REASON", "shop.orders", "2026-11-22"), "s3://lake/_errors/1", UPLOAD)
HELD = DeferredUpload("lake", "_raw/shop.orders/1", "/tmp/held", {"stream": '"caf\\u00e9"', "lines": "2"})
ARCHIVED = LineFile("s3://lake/_raw/shop.orders/1", UnitLines("1", 2, 2**40, 0, "ab" * 16), HELD)
INDEX = IndexPart(3, (KeyBounds(date(1, 1, 1), UNKNOWN, has_null=True, has_nan=False),), "", 4, b"PAR1")
SEARCH = partial(with_ids, find_by_column_value, Ids.from_array(pa.array([1])))
RESULTS: list[tuple[Callable[..., Any], Any]] = [
    (
        encode_files,
        Encoded(ORDERS, (FILE,), RejectCounts(5, 1, 2, {(None, "A"): 1, ("id", "B"): 2}), (REJECTS,), ("x",)),
    ),
    (encode_files, Encoded(ORDERS, (), RejectCounts(), (), (), (ARCHIVED,), 3)),
    (encode_files, Encoded(ORDERS, (), RejectCounts(), (), (), (replace(ARCHIVED, pending_upload=UPLOAD),))),
    (encode_files, NotEncoded(FAILED, StreamId(None, "orders"))),
    (rewrite, Rewritten("s3://lake/b", 1, 2, b"PAR1", UPLOAD, "s3://lake/a")),
    (rewrite, Failed(FAILED)),
    (
        compact,
        Compacted(
            "s3://lake/a",
            1,
            2,
            b"PAR1",
            None,
            "a",
            ("s3://lake/b",),
            (SkippedFile("s3://lake/c", "is open"),),
            False,
            3,
        ),
    ),
    (compact, NotCompacted((SkippedFile("s3://lake/c", "is open"),))),
    (compact, Failed(FAILED)),
    (remove, Removed("a", (0, 2), NEW, {1: NEW}, replaced=1, deleted=2, superseded=ROWS)),
    (winners, Winners(1, 2, ROWS, ROWS, INDEX)),
    (consume_versions, Failed(FAILED)),
    (find_by_row_id, RowIdMatches({"unit": RowSet(b"\x00\xff"), "": RowSet(b"")}, 3)),
    (find_by_row_id, Failed(FAILED)),
    (SEARCH, ColumnMatches({"s3://lake/a": FileMatches(RowSet(b"\x01"), 1)}, ("s3://lake/b",), searched=3)),
    (SEARCH, RowSet(b"\x00\xff")),
    (partial(metered, SEARCH), Usage({"s3.GetObject": 1}, 0.5, 2**30)),
    (partial(metered, SEARCH), Failed(FAILED)),
]


@pytest.mark.parametrize(("job", "result"), RESULTS, ids=lambda value: type(value).__name__)
def test_results_are_decoded_unchanged(job: Callable[..., Any], result: Any) -> None:
    (read,) = decode(encode([result]), result_type(job))

    assert repr(read) == repr(result)
    assert read == result


@pytest.mark.law
@given(_COLUMN_TYPES)
@settings(max_examples=examples(500))
def test_types_of_columns_are_read_as_they_were(column: types.ColumnType) -> None:
    assert decode(encode([column]), types.ColumnType) == [column]


@pytest.mark.law
@given(st.lists(_BOUNDS))
@settings(max_examples=examples(500))
def test_bounds_of_keys_are_read_as_they_were(bounds: list[Any]) -> None:
    ranges = [KeyBounds(bound, bound, has_null=False, has_nan=False) for bound in bounds]

    read = decode(encode(ranges), KeyBounds)

    assert read == ranges
    assert [type(key_bounds.lowest) for key_bounds in read] == list(map(type, bounds))


@pytest.mark.parametrize("text", ["", "京都", "\ud800", "a\udfff\x00", "\ud7ff"])
def test_texts_with_any_characters_are_decoded_unchanged(text: str) -> None:
    assert decode(encode([text]), str) == [text]


NOT_COMPACTED = NotCompacted((SkippedFile("s3://lake/a", "is open"),))


def sent(name: str, *fields: object) -> bytes:
    """Return one result of a class of `files.plan` as a server may send it."""
    return msgspec.msgpack.encode([[f"destination_datalake.files.plan.{name}", *fields]])


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(pickle.dumps([NOT_COMPACTED]), id="a pickle"),
        pytest.param(msgspec.msgpack.encode({"NotCompacted": 1}), id="no list"),
        pytest.param(encode([1]), id="numbers"),
        pytest.param(encode([FAILED]), id="a part of a result"),
        pytest.param(encode([NotEncoded(FAILED, ORDERS)]), id="the result of another job"),
        pytest.param(encode([Failed(UPLOAD), Failed(ORDERS)]), id="a class of no result of the job"),  # type: ignore[arg-type]
        pytest.param(encode([NOT_COMPACTED])[:-1], id="no end"),
        pytest.param(sent("NotCompacted"), id="a field too few"),
        pytest.param(sent("NotCompacted", ["builtins.tuple"], 1), id="a field too many"),
        pytest.param(sent("NotCompacted", []), id="a value of no class"),
        pytest.param(sent("NotCompacted", [1]), id="a class without a name"),
        pytest.param(sent("NotCompacted", ["os.system", "ls"]), id="a function"),
        pytest.param(sent("NotCompacted", ["decimal.Decimal", "one"]), id="no decimal number"),
        pytest.param(sent("NotCompacted", msgspec.msgpack.Ext(9, b"")), id="an extension"),
        pytest.param(b"\x91" * 100_000 + b"\xc0", id="a value in a value, and so on"),
    ],
)
def test_what_no_job_answers_is_refused(sent: bytes) -> None:
    with pytest.raises(InvalidResults):
        decode(sent, result_type(compact))


def test_a_value_without_an_encoding_is_refused_where_it_arises() -> None:
    with pytest.raises(TypeError, match="object cannot be part of a result"):
        encode([object()])
