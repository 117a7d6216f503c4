"""The law: each value that is sent is what other engines read from the table, or a reject has it; nothing stops."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.records.decoded import ValueChange
from destination_datalake.records.values.rules import Floats
from destination_datalake.schema.types import ColumnType, Date, Field, List, String, Struct, Timestamp
from unit_tests.cloud import Cloud
from unit_tests.cloud import cloud as an_account
from unit_tests.examples import IS_EXHAUSTIVE, long_examples
from unit_tests.laws.values.readers import as_typed, by_duckdb, by_pyarrow, holds_list_of_structs
from unit_tests.laws.values.tables import Kind, Landing
from unit_tests.records.oracle import Oracle, a_line, as_dict, exactly, few_columns
from unit_tests.strategies import everyday_types, json_texts

EXAMPLES = 160
VALUES = 50_000 / 9
"""The values that each of the nine are tried on by `make test-all`, at least."""

DATES: st.SearchStrategy[ColumnType] = st.sampled_from([Date(), Timestamp(zoned=True), Timestamp(zoned=False)])
SCALARS = everyday_types.filter(lambda type_: not isinstance(type_, Struct | List))
ODD_TEXTS = ["", ".", "..", " ", "/", "a/b=c%2F", "null", "__HIVE_DEFAULT_PARTITION__", "\x00\x1f\x7f\x85"]
ODD_TEXTS += ["\ufffe\uffff", "\ud7ff" * 20, "\uffff" * 20]
LONG_TEXTS = ["x" * 900, "é" * 600, "😀" * 300, "%" * 400, "\U0010ffff" * 20, "=" * 300]
TEXTS = st.text(max_size=40) | st.sampled_from(ODD_TEXTS) | st.sampled_from(LONG_TEXTS)
SMALL, LARGE = [0, 0, 17, 900], [0] * 60 + [70_000, 3_000_000, 22_000_000]
"""Characters of a text that each row has besides. The last are more than the encoder of JSON Lines has room for."""

Records = Sequence[Mapping[str, str]]
"""JSON texts by key."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def texts(type_: ColumnType) -> st.SearchStrategy[str]:
    return json_texts(type_) | TEXTS.map(json.dumps) if isinstance(type_, String) else json_texts(type_)


@st.composite
def batches(draw: st.DrawFn, partitioned: str | None) -> tuple[tuple[Field, ...], Records]:
    """Columns, and records with few different values of each, so that partitions have several rows."""
    of_partition = DATES if partitioned == "day" else SCALARS
    named = [replace(column, name=f"c_{number}") for number, column in enumerate(draw(few_columns))]
    columns = (*named, Field("p", "p", draw(of_partition)), Field("t", "t", String()))
    pools = {column.source: draw(st.lists(texts(column.type), min_size=1, max_size=12)) for column in columns}
    size = draw(st.sampled_from(LARGE if IS_EXHAUSTIVE else SMALL))
    random = draw(st.randoms(use_true_random=False))
    records = []
    for number in range(draw(st.integers(1, 80 if size < 1_000_000 else 12))):
        record = {key: random.choice(pool) for key, pool in pools.items() if random.random() < 0.9}
        if size:
            record["t"] = json.dumps(f"{'x' * size}{number}")
        records.append(record)
    return columns, records


@pytest.mark.law
@pytest.mark.share(3)
@pytest.mark.parametrize("partitioned", [None, "day", "identity"])
@pytest.mark.parametrize("kind", get_args(Kind))
def test_other_engines_read_what_was_sent(
    cloud: Cloud,
    kind: Kind,
    partitioned: Literal["day", "identity"] | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    tried = 0

    @settings(max_examples=long_examples(EXAMPLES, more=3))
    @given(batches(partitioned))
    def law(batch: tuple[tuple[Field, ...], Records]) -> None:
        nonlocal tried
        columns, records = batch
        tried += sum(map(len, records))
        folder = tmp_path_factory.mktemp("files")
        lines = [a_line(values, number) for number, values in enumerate(records)]
        landing = Landing(cloud, kind, columns, partitioned)
        landing.forget()

        rejects = landing.land(lines, folder)

        paths = landing.files(folder)
        readings: list[tuple[list[dict[str, Any]], Sequence[Field]]] = [(by_duckdb(paths, columns), columns)]
        if kind != "HIVE, JSONL":
            readings.append((by_pyarrow(paths), columns))
        if kind == "ICEBERG":
            # Nulls that PyIceberg turns into empty lists are its own.
            kept = [column for column in columns if not holds_list_of_structs(column.type)]
            readings.append((landing.iceberg().scan().to_arrow().to_pylist(), kept))
        for rows, read in readings:
            assert sorted(map(sent_as, rows)) == [*range(len(records))]
            for row in rows:
                check(row, records[sent_as(row)], lines[sent_as(row)], rejects, read, kind)

    law()
    assert not IS_EXHAUSTIVE or tried >= VALUES


def sent_as(row: Mapping[str, Any]) -> int:
    """The number of the record that a row was."""
    return int(row["_airbyte_extracted_at"].timestamp() * 1000 + 0.5) % 1000


def check(
    row: Mapping[str, Any],
    sent: Mapping[str, str],
    line: bytes,
    rejects: Sequence[Mapping[str, Any]],
    read: Sequence[Field],
    kind: Kind,
) -> None:
    own = [reject for reject in rejects if reject["row_id"] == row["_airbyte_raw_id"]]
    raw = [base64.b64decode(reject["rawData"]) + b"\n" for reject in own if reject["rawData"] is not None]
    assert raw == [line] * bool(own)
    originals = {reject["column_name"]: reject["column_value"].encode() for reject in own}
    changes = [
        ValueChange(**change, original=originals.get(change["field"])) for change in row["_airbyte_meta"]["changes"]
    ]
    # A blank text that became null is a change without a reject: the oracle checks that it was blank.
    assert [as_dict(change) for change in changes if change.original is not None] == [
        {"field": reject["column_name"], "change": reject["change"], "reason": reject["reason"]} for reject in own
    ]
    oracle = Oracle(changes, Floats.FINITE if kind == "HIVE, JSONL" else Floats.ANY)
    for column in read:
        value = exactly(sent.get(column.source, "null"))
        assert oracle.holds(value, as_typed(row[column.name], column.type), column.type, column.source)
