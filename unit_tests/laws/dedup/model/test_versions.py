"""The model itself, case by case: what Airbyte's destinations for BigQuery, Snowflake and Postgres do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from unit_tests.laws.dedup.model.versions import Definition, Value, Version, deduplicated, merged

BY = Definition(("id",), "at", "gone")

Row = tuple[str, dict[str, Value], int]
"""A version's name, its values, and when it was extracted."""


class Table:
    """Versions by names, in the order in which they are named first."""

    def __init__(self) -> None:
        self.versions: dict[str, Version] = {}

    def add(self, *rows: Row) -> frozenset[Version]:
        for name, values, extracted in rows:
            self.versions[name] = Version(len(self.versions), extracted, values)
        return frozenset(self.versions[name] for name, *_ in rows)

    def names(self, rows: frozenset[Version]) -> list[str]:
        return sorted(name for name, version in self.versions.items() if version in rows)


def row(name: str, id_: Value, at: Value = None, extracted: int = 1, **more: Value) -> Row:
    return name, {"id": id_, "at": at, **more}, extracted


@pytest.mark.parametrize(
    ("stored", "pending", "remaining"),
    [
        pytest.param([], [row("a", 1, 1), row("b", 1, 2)], ["b"], id="the higher cursor wins"),
        pytest.param([], [row("a", 1, 2), row("b", 1, 1, 9)], ["a"], id="whatever is extracted or arrives later"),
        pytest.param([], [row("a", 1, 0), row("b", 1, None, 9)], ["a"], id="a null cursor is older than any"),
        pytest.param([], [row("a", 1, math.nan), row("b", 1, None, 9)], ["a"], id="even than NaN"),
        pytest.param([], [row("a", 1, -math.inf), row("b", 1, math.nan, 9)], ["a"], id="which is older than numbers"),
        pytest.param([], [row("a", 1, 1, 2), row("b", 1, 1, 1)], ["a"], id="then the later extraction wins"),
        pytest.param([], [row("a", 1, 1), row("b", 1, 1)], ["b"], id="then the later arrival"),
        pytest.param([row("a", 1, 2)], [row("b", 1, 1, 9)], ["a"], id="a stored row with a higher cursor stays"),
        pytest.param([row("a", 1, None)], [row("b", 1, 0, 0)], ["b"], id="one without a cursor goes"),
        pytest.param([row("a", 1, 0)], [row("b", 1, None, 9)], ["a"], id="one with a cursor stays for none"),
        pytest.param([row("a", 1, 1, 2)], [row("b", 1, 1, 1)], ["a"], id="one that was extracted later stays"),
        pytest.param([row("a", 1, 1, 1)], [row("b", 1, 1, 1)], ["b"], id="at a full tie the incoming row wins"),
        pytest.param([row("a", None, 1)], [row("b", None, 2)], ["b"], id="null is a key"),
        pytest.param([row("a", math.nan, 1)], [row("b", math.nan, 2)], ["b"], id="NaN is one key"),
        pytest.param([row("a", -0.0, 1)], [row("b", 0.0, 2)], ["b"], id="zero has no sign"),
        pytest.param([row("a", "", 1)], [row("b", None, 2)], ["a", "b"], id="empty is not null"),
        pytest.param([row("a", 1, 1)], [row("b", 2, 1)], ["a", "b"], id="other keys are inserted"),
        pytest.param([row("a", 1, 1)], [row("b", 1, 2, gone="x")], [], id="a newer deletion deletes"),
        pytest.param([row("a", 1, 2)], [row("b", 1, 1, gone="x")], ["a"], id="an older one does not"),
        pytest.param([], [row("b", 1, 1, gone="x")], [], id="an unmatched one inserts nothing"),
        pytest.param([], [row("a", 1, 1), row("b", 1, 2, gone="x")], [], id="inserted and deleted at once: nothing"),
        pytest.param([], [row("b", 1, 1, gone="x"), row("c", 1, 2)], ["c"], id="deleted and inserted again"),
        pytest.param([row("a", 1, 1)], [row("b", 1, 1, gone="x")], [], id="at a full tie the deletion comes later"),
    ],
)
def test_a_merge_keeps_the_latest_version_of_each_key(
    stored: Sequence[Row],
    pending: Sequence[Row],
    remaining: Sequence[str],
) -> None:
    table = Table()

    assert table.names(merged(table.add(*stored), table.add(*pending), BY)) == remaining


def test_deletions_are_rows_like_others_if_the_definition_does_not_know_them() -> None:
    table = Table()
    stored, pending = table.add(row("a", 1, 1)), table.add(row("b", 1, 2, gone="x"))

    assert table.names(merged(stored, pending, Definition(("id",), "at"))) == ["b"]


def test_without_a_cursor_the_time_of_extraction_decides() -> None:
    table = Table()
    stored, pending = table.add(row("a", 1, 9, 1)), table.add(row("b", 1, 2, 2), row("c", 1, 3, 1))

    assert table.names(merged(stored, pending, Definition(("id",)))) == ["b"]


def test_all_parts_of_a_key_count() -> None:
    table, by = Table(), Definition(("id", "of"))
    stored = table.add(row("a", 1, of="x"), row("b", 1, of=None), row("c", None, of="x"))

    assert table.names(merged(stored, table.add(row("d", 1, of=None)), by)) == ["a", "c", "d"]


def test_texts_are_ordered_by_their_bytes() -> None:
    table = Table()
    pending = table.add(row("a", 1, "é"), row("b", 1, "z"))

    assert table.names(merged(frozenset(), pending, BY)) == ["a"]


def test_a_table_that_was_appended_to_is_deduplicated_as_a_whole() -> None:
    table = Table()
    rows = table.add(row("a", 1, 1), row("b", 1, 3), row("c", 1, 2), row("d", 2, 1), row("e", 3, 1, gone="x"))

    assert table.names(deduplicated(rows, BY)) == ["b", "d"]
