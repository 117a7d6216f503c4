"""The members of a record beside its data, read alone and by the block."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from destination_datalake.records.changes import ValueChange
from destination_datalake.records.envelope import (
    LATEST_EMITTED,
    RecordRefused,
    emitted_at,
    extracted_at,
    source_changes,
)
from destination_datalake.records.values.rules import BlockRefused


@pytest.mark.parametrize(
    ("raw", "milliseconds"),
    [
        ("1602637589100", 1602637589100),
        ("1602637589100.9", 1602637589100),
        ("1.6026375891e12", 1602637589100),
        ("1602637589", 1602637589000),
        ("1602637589.1239", 1602637589123),
        ("99999999999", 99999999999000),
        ("100000000000", 100000000000),
        ("0", 0),
        ("-1", -1000),
        ("-62135596800000", -62135596800000),
    ],
)
def test_emitted_at_is_in_milliseconds_or_in_seconds_if_too_small(raw: str, milliseconds: int) -> None:
    assert emitted_at(raw.encode()) == milliseconds


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("null", "the record has no emitted_at"),
        ('"secret"', "the record has no emitted_at"),
        ("253402300800000", "the record's emitted_at is out of range"),
        ("-62135596800001", "the record's emitted_at is out of range"),
        ("1e99999999999", "the record's emitted_at is out of range"),
    ],
)
def test_an_emitted_at_that_is_not_a_time_refuses_the_record(raw: str, message: str) -> None:
    with pytest.raises(RecordRefused, match=message):
        emitted_at(raw.encode())


@given(st.lists(st.none() | st.integers(-(2**41), 2**48)))
@example([-62_135_596_801])  # in seconds, the last one before the year 1
def test_the_times_of_a_block_are_those_of_its_records_or_refused(numbers: list[int | None]) -> None:
    try:
        found: Any = extracted_at(pa.array(numbers, pa.int64()))
    except BlockRefused:
        assert any(each is None or each < -62_135_596_800 or each > LATEST_EMITTED for each in numbers)
    else:
        assert found.type == pa.timestamp("us", "UTC")
        assert found.cast(pa.int64()).to_pylist() == [emitted_at(str(each).encode()) * 1000 for each in numbers]


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ("null", []),
        ("{}", []),
        ('{"changes":null}', []),
        ('{"changes":[]}', []),
        ('{"changes":[null]}', []),
        ('{"changes":"none"}', []),
        ("[]", []),
        ('{"changes":[{"field":"a","change":"NULLED","reason":null,"more":1}]}', [ValueChange("a", "NULLED", None)]),
        ('{"changes":[{"field":"\\ud800","change":"X","reason":"Y"}]}', [ValueChange(None, "X", "Y")]),
    ],
)
def test_irregular_source_changes_are_kept_as_far_as_they_fit(meta: str, expected: list[ValueChange]) -> None:
    assert source_changes(meta.encode()) == expected


def test_source_changes_with_too_many_wrong_entries_are_left_out() -> None:
    assert source_changes(f'{{"changes":[{",".join(["1"] * 20_000)}]}}'.encode()) == []
