"""Every value lands exactly as it was sent, or its row says what became of it and a reject keeps what was sent.

Laws over random columns and records.
"""

from __future__ import annotations

import base64
import decimal
import gzip
import itertools
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent
from pyiceberg.manifest import FileFormat as IcebergFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from destination_datalake.files.encode import encode
from destination_datalake.files.plan import FileFormat, FilePlan
from destination_datalake.files.tasks import Encoded, EncodeTask, EncodeUnit
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.changes import Floats, ValueChange
from destination_datalake.records.reader import BlockDecoder
from destination_datalake.records.record import record_coercer
from destination_datalake.records.values.registry import coerce_value
from destination_datalake.rejects.location import RejectLocation
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.iceberg import iceberg_field
from destination_datalake.schema.narrowest import widest
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account
from unit_tests.strategies import ONE_OF_EACH, column_types, decimals, everyday_types, json_texts, strange_texts

EPOCH = datetime(1970, 1, 1)
A = Field("a", "a", Float64())

few_columns = st.lists(everyday_types, min_size=1, max_size=3).map(
    lambda types: [Field(f"c{i}", f"C {i}", type_) for i, type_ in enumerate(types)]
)


def a_line(values: Mapping[str, str], number: int, emitted_at: str | None = None, rest: str = "") -> bytes:
    """A RECORD line; `values` are JSON texts by key."""
    data = ",".join(f"{json.dumps(key)}: {text}" for key, text in values.items())
    when = str(1_700_000_000_000 + number) if emitted_at is None else emitted_at
    return f'{{"type":"RECORD","record":{{"stream":"s","data":{{{data}}},"emitted_at":{when}{rest}}}}}\n'.encode()


# --- What was sent


class Oracle:
    """Compares what was kept with what was sent, knowing nothing of how it was read."""

    def __init__(self, changes: Iterable[ValueChange], floats: Floats = Floats.ANY) -> None:
        self._changes = {change.field: change for change in changes}
        self._floats = floats

    def holds(self, sent: Any, kept: Any, type_: ColumnType, place: str) -> bool:
        """Whether the value at this place is the one that was sent, or a change says that it is not and has that."""
        change = self._changes.get(place)
        if change is not None:
            assert change.original is not None
            # NaN is not equal to itself; its name is.
            if repr(exactly(change.original.decode())) != repr(sent):
                return False
        if kept is None:
            return (sent is None) == (change is None)
        if change is not None:
            return change.change == "TRUNCATED" and self._is_close(sent, kept)
        match type_:
            case Struct(fields):
                return all(
                    self.holds(sent.get(f.source), kept[f.name], f.type, joined(place, f.source)) for f in fields
                )
            case List(element):
                pairs = enumerate(zip(sent, kept, strict=True))
                return all(self.holds(s, k, element, joined(place, str(i))) for i, (s, k) in pairs)
        return self._is_same(sent, kept, type_)

    def _is_same(self, sent: Any, kept: Any, type_: ColumnType) -> bool:
        match type_:
            case Boolean():
                return kept is sent
            case Int32() | Int64() | Decimal():
                return bool(decimal.Decimal(sent) == kept)
            case Float32() | Float64():
                if not math.isfinite(kept):
                    return self._floats is Floats.ANY and str(kept) == str(sent).replace("Infinity", "inf").lower()
                return bool(float(decimal.Decimal(sent)) == kept)
            case String() if isinstance(sent, str):
                return bool(kept == sent)
            case String() | Json():
                return bool(exactly(kept) == sent)
            case Date():
                return bool(moment(sent).replace(tzinfo=None) == datetime.combine(kept, datetime.min.time()))
            case Timestamp(zoned=True):
                aware = moment(sent)
                return bool((aware if aware.tzinfo else aware.replace(tzinfo=UTC)) == kept)
            case Timestamp():
                return bool(moment(sent).replace(tzinfo=None) == kept)
        raise AssertionError(type_)

    def _is_close(self, sent: Any, kept: Any) -> bool:
        """Cut values are the nearest that the column can hold, or the beginning of what was sent."""
        if isinstance(kept, decimal.Decimal):
            return abs(decimal.Decimal(sent) - kept) <= decimal.Decimal(1).scaleb(kept.as_tuple().exponent)  # type: ignore[arg-type]
        return isinstance(kept, date) and str(sent).startswith(f"{kept.year:04}")


def joined(place: str, step: str) -> str:
    return f"{place}.{step}" if place else step


def exactly(text: str) -> Any:
    """A JSON text with every digit of its numbers."""
    return json.loads(text, parse_int=decimal.Decimal, parse_float=decimal.Decimal)


def moment(text: str) -> datetime:
    """An ISO 8601 date or time, as Python reads it; it knows no commas, no era, no single digits."""
    return datetime.fromisoformat(text)


def as_python(value: Any, type_: ColumnType) -> Any:
    """What the careful path keeps, in Python's own terms."""
    match type_, value:
        case _, None:
            return None
        case Date(), _:
            return EPOCH.date() + timedelta(days=value)
        case Timestamp(zoned=zoned), _:
            instant = EPOCH + timedelta(microseconds=value)
            return instant.replace(tzinfo=UTC) if zoned else instant
        case Struct(fields), _:
            return {f.name: as_python(value[f.name], f.type) for f in fields}
        case List(element), _:
            return [as_python(each, element) for each in value]
    return value


def sent_to(types: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[tuple[ColumnType, str]]:
    """A column's type and a JSON text for it."""
    return types.flatmap(lambda column_type: st.tuples(st.just(column_type), json_texts(column_type)))


@settings(max_examples=10_000)
@given(sent_to(st.sampled_from(ONE_OF_EACH)) | sent_to(decimals), st.sampled_from(Floats))
def test_a_value_is_kept_exactly_or_its_place_is_on_record(sent: tuple[ColumnType, str], floats: Floats) -> None:
    kept_or_on_record(*sent, floats)


@given(sent_to(column_types), st.sampled_from(Floats))
def test_a_value_inside_others_is_kept_exactly_or_its_place_is_on_record(
    sent: tuple[ColumnType, str], floats: Floats
) -> None:
    kept_or_on_record(*sent, floats)


def kept_or_on_record(column_type: ColumnType, text: str, floats: Floats) -> None:
    value, changes = coerce_value(text.encode(), column_type, floats)

    oracle = Oracle(changes, floats)
    assert oracle.holds(exactly(text), as_python(value, column_type), column_type, "")


# --- What a number becomes

PROMISE = (
    "A `number` becomes the IEEE 754 double that is nearest to what was sent, as JSON parsers read it: 17 significant "
    "digits come back as they went. Integers are kept exactly, and so are numbers with `numeric_types: decimal`. What "
    "is beyond the range of a double is null, with a change and a reject; below its smallest, zero is the nearest."
)

_digits = st.integers(0, 10**25).map(str)
_powers = st.just("") | st.integers(-345, 330).map(lambda power: f"e{power}")
number_texts = st.builds(
    lambda sign, whole, fraction, power: f"{sign}{whole}{fraction}{power}",
    st.sampled_from(["", "-"]),
    _digits,
    st.just("") | _digits.map(lambda text: f".{text}"),
    _powers,
)


@pytest.mark.parametrize("page", ["docs/types.md", "docs/rooms.md"])
def test_the_promise_for_numbers_is_the_same_on_every_page(page: str) -> None:
    assert PROMISE in " ".join((Path(__file__).parents[3] / page).read_text().split())


@settings(max_examples=2000)
@given(number_texts, st.booleans())
@example("9007199254740993", False)
@example("1e-400", False)
@example("-2.4703282292062327e-324", True)
@example("1.7976931348623158e308", False)
@example("1.7976931348623159e308", False)
def test_a_number_becomes_the_nearest_double(text: str, quoted: bool) -> None:
    sent, raw = Fraction(text), f'"{text}"' if quoted else text

    value, changes = coerce_value(raw.encode(), Float64())
    [column] = [part.columns[0] for part in BlockDecoder([A]).decode(a_line({"a": raw}, 1))]

    assert column.to_pylist() == [value]
    if value is None:
        assert abs(sent) > Fraction(sys.float_info.max)
        assert [(change.change, change.reason) for change in changes] == [
            ("NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")
        ]
        return
    assert isinstance(value, float)
    assert math.copysign(1, value) == (-1 if text.startswith("-") else 1)
    below, above = math.nextafter(value, -math.inf), math.nextafter(value, math.inf)
    assert all(
        abs(sent - Fraction(value)) <= abs(sent - Fraction(other)) for other in (below, above) if math.isfinite(other)
    )
    assert not changes


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_17_significant_digits_come_back_as_they_went(number: float) -> None:
    text = f"{number:.16e}"

    value, _ = coerce_value(text.encode(), Float64())

    assert isinstance(value, float)
    assert f"{value:.16e}" == text


@settings(max_examples=1000)
@given(st.integers(-(10**25), 10**25), st.sampled_from(["", ".0", "e0", ".000e1"]), st.booleans())
def test_an_integer_is_exactly_what_was_sent_or_null(number: int, form: str, quoted: bool) -> None:
    raw = f'"{number}{form}"' if quoted else f"{number}{form}"
    sent = number * 10 if form.endswith("e1") else number

    value, changes = coerce_value(raw.encode(), Int64())
    [column] = [part.columns[0] for part in BlockDecoder([replace(A, type=Int64())]).decode(a_line({"a": raw}, 1))]

    assert column.to_pylist() == [value]
    assert (value, len(changes)) == ((sent, 0) if -(2**63) <= sent < 2**63 else (None, 1))


# --- However it is read

odd_envelopes = st.sampled_from(
    [
        ("1700000000", ""),
        ("1700000000.5", ""),
        ("1.7e12", ""),
        (None, ',"meta":null'),
        (None, ',"meta":{"changes":[null]}'),
        (None, ',"meta":{"changes":[{"field":"C 0","change":"NULLED","reason":"SOURCE_RETRIEVAL_ERROR"}]}'),
        (None, ',"meta":{"changes":[{"field":"C 0","change":"NULLED","reason":"DESTINATION_TYPECAST_ERROR"}]}'),
        (None, ',"meta":{"changes":[{"field":5}]}'),
        (None, ',"undeclared":"\\udc00"'),
    ]
)
envelopes = st.one_of(st.just((None, "")), st.just((None, "")), st.just((None, "")), odd_envelopes)


@settings(max_examples=1000)
@given(st.data(), few_columns)
def test_one_decoder_reads_block_after_block_as_if_each_record_were_read_alone(
    data: st.DataObject, columns: list[Field]
) -> None:
    # Given a decoder that learns from each block, and blocks of which some hold only what sources usually send
    decoder, coerce = BlockDecoder(columns), record_coercer(columns)
    record = st.tuples(
        st.fixed_dictionaries({}, optional={column.source: strange_texts(column.type) for column in columns}), envelopes
    )
    blocks = data.draw(st.lists(st.lists(record, min_size=1, max_size=6), min_size=1, max_size=3))
    for block in blocks:
        lines = [a_line(values, n, at, rest) for n, (values, (at, rest)) in enumerate(block)]
        # When
        decoded = list(decoder.decode(b"".join(lines)))
        # Then
        alone = [coerce(line.rstrip(b"\n")) for line in lines]
        wanted = [
            [at * 1000 for at, _, _, _ in alone],
            *(pylist([row.values[i] for row in alone], c.type) for i, c in enumerate(columns)),
            [[as_dict(change) for change in row.changes] for row in alone],
        ]
        found: list[list[Any]] = [[] for _ in wanted]
        for part in decoded:
            changes = part.changes.to_pylist() if part.changes is not None else [[]] * part.rows
            at: Any = part.extracted_at.cast(pa.int64())
            parts = [at.to_pylist(), *(c.to_pylist() for c in part.columns), changes]
            for column, values in zip(found, parts, strict=True):
                column += values
        assert sorted(map(repr, zip(*found, strict=True))) == sorted(map(repr, zip(*wanted, strict=True)))
        # And what is told of a changed row is the line it came in, and what stood in it
        told = [
            (bytes(row.line), change.field, change.original)
            for part in decoded
            for row in part.changed
            for change in row.changes
        ]
        assert sorted(told) == sorted(
            (line.rstrip(b"\n"), change.field, change.original)
            for line, row in zip(lines, alone, strict=True)
            for change in row.changes[row.reported :]
        )


def as_dict(change: ValueChange) -> dict[str, str | None]:
    return {"field": change.field, "change": change.change, "reason": change.reason}


def pylist(values: Sequence[Any], type_: ColumnType) -> list[Any]:
    """The values as Arrow gives them back."""
    array: Any = pa.array(values, arrow_type(widest(type_)))
    return list(array.to_pylist())


# --- As other engines read the files


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def files_of(
    cloud: Cloud, folder: Path, lines: Sequence[bytes], columns: Sequence[Field], format: FileFormat
) -> tuple[Sequence[Path], Sequence[Mapping[str, Any]]]:
    """The data files that these lines become, as local files, and the rejects; the account is left empty."""
    codec = "UNCOMPRESSED" if format == "jsonl" else "ZSTD"
    ids = index_by_name(iceberg_schema(columns)) if format == "parquet" else {}
    plan = FilePlan(format, codec, tuple(columns), ids, f"s3://{BUCKET}/t", False, 1 << 27, 3, 4)
    place = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "db", "t")
    segment = folder / "segment"
    segment.write_bytes(b"".join(lines))
    unit = EncodeUnit(StreamId(None, "s"), "part", (str(segment),), plan, place)
    [result] = encode([EncodeTask((unit,), cloud.access)])
    assert isinstance(result, Encoded), result
    paths, rejects = [], []
    for key, content in cloud.objects().items():
        if key.startswith("_errors/"):
            rejects += [json.loads(line) for line in gzip.decompress(content).splitlines()]
        else:
            paths.append(folder / Path(key).name)
            paths[-1].write_bytes(content)
        cloud.access.client("s3").delete_object(Bucket=BUCKET, Key=key)
    assert sum(file.rows for file in result.files) == result.counts.records == len(lines)
    assert sum(result.counts.reasons.values()) == len(rejects)
    # Each reason has its object; a record's rejects are numbered across them.
    return paths, sorted(rejects, key=lambda reject: int(reject["subSequenceNumber"]))


def by_pyarrow(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]


def by_pyiceberg(paths: Sequence[Path], columns: Sequence[Field]) -> list[dict[str, Any]]:
    """The rows of an Iceberg table of these files, in the widest types that its columns can come to have."""
    schema = iceberg_schema(columns)
    metadata = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///nowhere")
    files = [
        IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=str(path),
            file_format=IcebergFormat.PARQUET,
            partition=Record(),
            record_count=pq.read_metadata(path).num_rows,
            file_size_in_bytes=path.stat().st_size,
        )
        for path in paths
    ]
    for file in files:
        file.spec_id = metadata.default_spec_id
    scan = ArrowScan(metadata, PyArrowFileIO(), schema, AlwaysTrue())
    return list(scan.to_table([FileScanTask(file) for file in files]).to_pylist())


def iceberg_schema(columns: Sequence[Field]) -> Schema:
    ids = itertools.count(1)
    wide = (replace(column, type=widest(column.type)) for column in columns)
    return Schema(*(iceberg_field(column, lambda: next(ids)) for column in (*METADATA_COLUMNS, *wide)))


def holds_list_of_structs(type_: ColumnType) -> bool:
    """Whether PyIceberg 0.12 reads nulls in it as empty lists (apache/iceberg-python, `list<struct>`)."""
    match type_:
        case List(element):
            return isinstance(element, Struct) or holds_list_of_structs(element)
        case Struct(fields):
            return any(holds_list_of_structs(field.type) for field in fields)
    return False


def by_duckdb(paths: Sequence[Path], columns: Sequence[Field]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for path in paths:
            if path.suffix == ".parquet":
                relation = engine.read_parquet(str(path))
            else:
                empty = engine.from_arrow(pa.schema([(c.name, json_type(c.type)) for c in columns]).empty_table())
                types = dict(zip(empty.columns, map(str, empty.types), strict=True))
                meta = "STRUCT(sync_id BIGINT, changes STRUCT(field VARCHAR, change VARCHAR, reason VARCHAR)[])"
                own = {"_airbyte_raw_id": "VARCHAR", "_airbyte_extracted_at": "TIMESTAMP", "_airbyte_meta": meta}
                relation = engine.read_json(str(path), format="newline_delimited", columns={**own, **types})
            found = relation.to_arrow_table().to_pylist()
            if path.suffix != ".parquet":
                written = [json.loads(line, parse_float=decimal.Decimal) for line in path.read_bytes().splitlines()]
                found = [
                    {**row, **{c.name: with_decimals(row[c.name], text[c.name], c.type) for c in columns}}
                    for row, text in zip(found, written, strict=True)
                ]
            rows += found
    return rows


def with_decimals(value: Any, written: Any, type_: ColumnType) -> Any:
    """The value with its decimals, which were read as text, as the file spells them."""
    match type_, value:
        case _, None:
            return None
        case Decimal(), _:
            return decimal.Decimal(written)
        case Struct(fields), _:
            return {f.name: with_decimals(value[f.name], written[f.name], f.type) for f in fields}
        case List(element), _:
            return [with_decimals(each, text, element) for each, text in zip(value, written, strict=True)]
    return value


def json_type(type_: ColumnType) -> pa.DataType:
    """The type in which a reader of JSON lines finds the values: wide numbers, clocks in UTC without a zone."""
    match type_:
        case Timestamp():
            return pa.timestamp("us")
        case Decimal():
            # DuckDB's JSON reader takes a detour over floats, on which the largest decimals become too large.
            return pa.string()
        case Struct(fields):
            return pa.struct([pa.field(f.name, json_type(f.type)) for f in fields])
        case List(element):
            return pa.list_(json_type(element))
    return arrow_type(widest(type_))


def as_typed(value: Any, type_: ColumnType) -> Any:
    """The value with what JSON lines leave out put back: the zone."""
    match type_, value:
        case _, None:
            return None
        case Timestamp(zoned=True), datetime(tzinfo=None):
            return value.replace(tzinfo=UTC)
        case Struct(fields), _:
            return {f.name: as_typed(value[f.name], f.type) for f in fields}
        case List(element), _:
            return [as_typed(each, element) for each in value]
    return value


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_other_engines_read_from_the_files_what_was_sent(
    cloud: Cloud, format: FileFormat, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=60)
    @given(st.data(), few_columns)
    def law(data: st.DataObject, columns: list[Field]) -> None:
        folder = tmp_path_factory.mktemp("files")
        record = st.fixed_dictionaries({}, optional={c.source: json_texts(c.type) for c in columns})
        records = data.draw(st.lists(record, min_size=1, max_size=30))
        lines = [a_line(values, number) for number, values in enumerate(records)]

        paths, rejects = files_of(cloud, folder, lines, columns, format)

        readings = [(by_duckdb(paths, columns), columns)]
        if format == "parquet":
            # Nulls that PyIceberg turns into empty lists are its own.
            kept = [column for column in columns if not holds_list_of_structs(column.type)]
            readings += [(by_pyarrow(paths), columns), (by_pyiceberg(paths, columns), kept)]
        for rows, read in readings:
            assert len(rows) == len(records)
            for row in rows:
                sent_as = int(row["_airbyte_extracted_at"].timestamp() * 1000 + 0.5) % 1000
                sent = records[sent_as]
                own = [reject for reject in rejects if reject["row_id"] == row["_airbyte_raw_id"]]
                raw = [base64.b64decode(each["rawData"]) + b"\n" for each in own if each["rawData"] is not None]
                assert raw == [lines[sent_as]] * bool(own)
                changes = [
                    ValueChange(each["column_name"], each["change"], each["reason"], each["column_value"].encode())
                    for each in own
                ]
                assert [as_dict(change) for change in changes] == row["_airbyte_meta"]["changes"]
                oracle = Oracle(changes, Floats.FINITE if format == "jsonl" else Floats.ANY)
                for column in read:
                    value = exactly(sent.get(column.source, "null"))
                    assert oracle.holds(value, as_typed(row[column.name], column.type), column.type, column.source)

    law()
