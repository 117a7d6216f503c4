"""Records whose primary key or cursor cannot be kept as it was sent are rejects as a whole."""

from __future__ import annotations

import base64
import decimal
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.files.encode import KeyGuard, columns_to_read, encode
from destination_datalake.files.ids import canonical_keys
from destination_datalake.files.plan import KEY_CHANGED, Deduplication, Encoded, EncodeTask, EncodeUnit, FilePlan
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.schema.types import ColumnType, Decimal, Field, Float32, Float64, Int64, Struct, Timestamp
from unit_tests.cloud import BUCKET, Cloud, on_disk

COLUMNS = (
    Field("id", "Id", Int64()),
    Field("code", "the.code", Decimal(38, 2)),
    Field("at", "at", Timestamp(zoned=True)),
    Field("note", "note", Int64()),
    Field("deleted", "deleted", Timestamp(zoned=True)),
    Field("number", "number", Float64()),
    Field("address", "the", Struct((Field("zip", "zip", Int64()),))),
)
DEDUP = Deduplication(("id", "code", "number"), "at", "deleted")


def plan(dedup: Deduplication | None = DEDUP) -> FilePlan:
    folder = f"s3://{BUCKET}/shop/orders"
    return FilePlan("parquet", "ZSTD", COLUMNS, {}, folder, False, 1 << 27, None, None, dedup=dedup)


READ = columns_to_read(plan())


def line(changes: list[dict[str, str]] | None = None, code: object = 1, **values: object) -> bytes:
    data = {"Id": 1, "the.code": code, "at": "2026-01-01T00:00:00Z", "note": 1, **values}
    record: dict[str, Any] = {"stream": "orders", "data": data, "emitted_at": 1_700_000_000_000}
    if changes is not None:
        record["meta"] = {"changes": changes}
    return json.dumps({"type": "RECORD", "record": record}).encode() + b"\n"


def reported(field: str, change: str = "NULLED") -> list[dict[str, str]]:
    return [{"field": field, "change": change, "reason": "SOURCE_SERIALIZATION_ERROR"}]


KEPT = {
    "whole": line(),
    "a null key": line(Id=None),
    "a null cursor": line(at=None),
    "another column is nulled": line(note="many"),
    "a field inside an object is nulled": line(the={"zip": "none"}),
    "a cursor is cut": line(at="2026-01-01T00:00:00.123456789Z"),
    "a cursor is cut by the source": line(reported("at", "TRUNCATED")),
    "a time of deletion is cut": line(deleted="2026-01-01T00:00:00.123456789Z"),
    "the source has nulled another": line(reported("note")),
    "the source reports nothing of a field": line([{"change": "NULLED"}]),
}
REFUSED = {
    "a key is nulled": line(Id="one"),
    "a key is rounded": line(number=2**53 + 1),
    "a key is out of range": line(Id=2**70),
    "a key is cut": line(code=1.234),
    "a cursor is nulled": line(at="yesterday"),
    "a time of deletion is nulled": line(deleted="yesterday"),
    "the source has nulled a key": line(reported("the.code")),
    "the source has cut a key": line(reported("Id", "TRUNCATED")),
    "the source has nulled the cursor": line(reported("at")),
    "a key and another column are nulled": line(Id="one", note="many"),
}


@pytest.mark.parametrize("kind", KEPT)
def test_record_is_kept_if_its_key_is_unchanged_and_its_cursor_is_not_lost(kind: str) -> None:
    assert refusals(KEPT[kind]) == []


@pytest.mark.parametrize("kind", REFUSED)
def test_a_record_is_refused_if_its_key_was_changed_or_its_cursor_lost(kind: str) -> None:
    """The message quotes nothing of it: keys are content of records."""
    [(received, reason, message)] = refusals(REFUSED[kind])

    assert received + b"\n" == REFUSED[kind]
    assert reason == KEY_CHANGED
    assert message == "the primary key, the cursor or the time of deletion cannot be stored unchanged"


def refusals(block: bytes) -> list[tuple[bytes, str, str]]:
    keys = KeyGuard.from_plan(plan())
    assert keys is not None
    refused = [reject for decoded in BlockDecoder(READ).decode(block) for reject in keys.refuse(decoded).rejected]
    return [(reject.line, reject.reason, reject.message) for reject in refused]


ODD_NUMBERS = [
    "1.0",
    "-0",
    "1e-400",
    "2e-400",
    "1e3",
    "5.00000000000000000001",
    "0.1",
    "0.10000000000000001",
    "1e23",
    "1e22",
    "0E-9",
    "9007199254740993.0",
    "9007199254740992.5",
    "4503599627370496.4",
    "4503599627370496",
    '"7"',
    '"007"',
]
NUMBERS = (
    st.integers(2**53 - 2, 2**53 + 9).map(str)
    | st.integers(-(2**70), 2**70).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(json.dumps)
    | st.sampled_from(ODD_NUMBERS)
)


@pytest.mark.parametrize("type_", [Float32(), Float64(), Decimal(38, 18), Int64()], ids=str)
@given(texts=st.lists(NUMBERS, min_size=1, max_size=12))
def test_different_numbers_are_different_keys_or_rejects(type_: ColumnType, texts: list[str]) -> None:
    # Given records whose keys are numbers in any notation
    numbered = FilePlan("parquet", "ZSTD", (Field("n", "n", type_),), {}, "", False, 1, None, None)
    given_plan = replace(numbered, dedup=Deduplication(("n",)))
    lines = [b'{"type":"RECORD","record":{"stream":"s","data":{"n":%b},"emitted_at":1}}' % t.encode() for t in texts]

    # When they are read
    keys = KeyGuard.from_plan(given_plan)
    assert keys is not None
    parts = [*map(keys.refuse, BlockDecoder(columns_to_read(given_plan)).decode(b"\n".join([*lines, b""])))]

    # Then each is a row, whose key no other number has, or a reject
    sent: dict[Any, set[decimal.Decimal]] = {}
    for part in parts:
        for place, key in zip(part.lines.numbers, canonical_keys(part.columns[0]).to_pylist(), strict=True):
            sent.setdefault(key, set()).add(decimal.Decimal(json.loads(texts[place], parse_float=str, parse_int=str)))
    assert all(len(numbers) == 1 for numbers in sent.values())
    refused = sorted(reject.line for part in parts for reject in part.rejected)
    assert len(refused) + sum(part.rows for part in parts) == len(texts)
    # And integers that a double holds are rows
    held = {t for t in texts if t.lstrip("-").isdigit() and abs(int(t)) <= 2**53}
    assert not [line for line in refused for t in held if line == lines[texts.index(t)]]


def test_without_deduplication_nothing_is_guarded() -> None:
    assert KeyGuard.from_plan(plan(None)) is None


def test_without_a_cursor_only_keys_are_guarded() -> None:
    keys = KeyGuard.from_plan(plan(Deduplication(("id",))))
    assert keys is not None

    [decoded] = BlockDecoder(READ).decode(REFUSED["a cursor is nulled"] + REFUSED["a key is cut"])

    assert keys.refuse(decoded) is decoded


@pytest.mark.slow
@settings(max_examples=40)
@given(kinds=st.lists(st.sampled_from([*KEPT, *REFUSED]), max_size=30))
def test_rejected_records_do_not_change_other_rows(kinds: list[str]) -> None:
    """Values, times, changes, lines and places."""
    keys = KeyGuard.from_plan(plan())
    assert keys is not None
    lines = [{**KEPT, **REFUSED}[kind] for kind in kinds]
    kept = [number for number, kind in enumerate(kinds) if kind in KEPT]

    guarded = [keys.refuse(decoded) for decoded in BlockDecoder(READ).decode(b"".join(lines))]
    alone = [*BlockDecoder(READ).decode(b"".join(lines[number] for number in kept))]

    assert sorted(place for part in guarded for place in part.lines.numbers) == kept
    assert rows(guarded) == rows(alone)
    refused = [reject.line + b"\n" for decoded in guarded for reject in decoded.rejected]
    assert sorted(refused) == sorted(line_ for line_, kind in zip(lines, kinds, strict=True) if kind in REFUSED)


def rows(parts: list[Any]) -> list[tuple[Any, ...]]:
    entries = []
    for decoded in parts:
        changed = {row: (decoded.lines[row], tuple(changes)) for row, changes in decoded.changed.items()}
        for row in range(decoded.rows):
            values = [column[row].as_py() for column in (decoded.extracted_at, *decoded.columns)]
            changes = [] if decoded.changes is None else decoded.changes[row].as_py()
            entries.append((decoded.lines.numbers[row], decoded.lines[row], values, changes, changed.get(row)))
    return [entry[1:] for entry in sorted(entries, key=lambda entry: entry[0])]


def test_every_record_is_a_row_or_a_reject(cloud: Cloud, tmp_path: Path) -> None:
    """Rejects have the lines as they were received, and count whole records, whatever else was changed in them."""
    path = tmp_path / "segment.jsonl"
    path.write_bytes(b"".join([*KEPT.values(), *REFUSED.values()]))
    rejects = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "shop", "orders")
    unit = EncodeUnit(StreamId("shop", "orders"), "batch", (on_disk(path),), plan(), rejects)

    [result] = encode([EncodeTask((unit,), cloud.access)])

    assert isinstance(result, Encoded), result
    [file] = result.files
    table = pq.read_table(cloud.arrow(file.uri.removeprefix(f"s3://{BUCKET}/")))
    assert table.num_rows == file.rows == len(KEPT)
    assert (result.counts.records, result.counts.refused) == (len(KEPT) + len(REFUSED), len(REFUSED))
    assert result.counts.reasons[None, KEY_CHANGED] == len(REFUSED)
    for reject in result.rejects:
        reject.pending_upload.publish(cloud.access.client("s3"))
    [key] = [key for key in cloud.objects() if KEY_CHANGED in key]
    written = [json.loads(text) for text in gzip.decompress(cloud.objects()[key]).splitlines()]
    assert [base64.b64decode(reject["rawData"]) + b"\n" for reject in written] == [*REFUSED.values()]
    assert {reject["row_id"] for reject in written} == {None}
    assert pa.types.is_string(table.schema.field("_airbyte_raw_id").type)
