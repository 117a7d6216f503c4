"""Columns that appear or become wider, within a sync and between syncs."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.tables.table import Reencode
from unit_tests.tables.behaviour.shop import WIDE, Shop, ids

NUMBERS = {"id": {"type": "integer"}, "value": {"type": "integer"}}
FLOATS = {"id": {"type": "integer"}, "value": {"type": "number"}}

promotions = pytest.mark.parametrize(
    ("schema", "narrow", "wide", "promoted_to"),
    [(NUMBERS, 1, WIDE, "bigint"), (FLOATS, 0.5, 0.1, "double")],
    ids=["int to bigint", "float to double"],
)
"""A narrow and a wide value of a column, and the type that holds both."""


@promotions
def test_a_column_is_promoted_before_a_value_would_change(
    shop: Shop, schema: dict[str, Any], narrow: float, wide: float, promoted_to: str, *, overwrite: bool
) -> None:
    sync = shop.sync(overwrite=overwrite, schema=schema)
    promises = shop.promises.promotions[promoted_to]

    assert sync.commit({"id": 1, "value": narrow}) == 1
    assert sync.commit({"id": 2, "value": wide}) == (2 if promises.reencodes_batch else 1)
    assert sync.executors.rewritten == (1 if promises.rewrites_files else 0)
    assert sync.commit({"id": 3, "value": narrow}) == 1
    sync.publish()

    assert shop.rows() == [{"id": 1, "value": narrow}, {"id": 2, "value": wide}, {"id": 3, "value": narrow}]
    assert shop.types() == {"id": "int", "value": promoted_to}


@promotions
def test_files_encoded_before_another_sync_promoted_a_column_are_committed_or_encoded_again(
    shop: Shop, schema: dict[str, Any], narrow: float, wide: float, promoted_to: str
) -> None:
    late, other = shop.sync(schema=schema), shop.sync(schema=schema)
    files = late.encode({"id": 1, "value": narrow})
    other.commit({"id": 2, "value": wide})

    answer = late.table.commit(files, late.executors.rewrite)
    assert isinstance(answer, Reencode) == shop.promises.promotions[promoted_to].outdates_files
    if isinstance(answer, Reencode):
        assert answer.reason.startswith(("its ", "another writer "))
        assert not any(key in files[0].uri for key in shop.objects())
        late.commit({"id": 1, "value": narrow})

    assert shop.rows() == [{"id": 1, "value": narrow}, {"id": 2, "value": wide}]


@promotions
def test_an_overwrite_promotes_nothing_that_readers_see_before_it_is_published(
    shop: Shop, schema: dict[str, Any], narrow: float, wide: float, promoted_to: str
) -> None:
    shop.sync(schema=schema).commit({"id": 1, "value": narrow})

    sync = shop.sync(2, overwrite=True, schema=schema)
    sync.commit({"id": 2, "value": wide})
    assert shop.rows() == [{"id": 1, "value": narrow}]
    sync.publish()

    assert shop.rows() == [{"id": 2, "value": wide}]
    assert shop.types() == {"id": "int", "value": promoted_to}


def test_a_new_column_is_null_in_earlier_rows(shop: Shop, *, overwrite: bool) -> None:
    sync = shop.sync(2, overwrite=overwrite)
    sync.commit(*ids(1))

    with_name = {"id": {"type": "integer"}, "name": {"type": "string"}}
    again = shop.sync(2, overwrite=overwrite, schema=with_name)
    again.commit({"id": 2, "name": "two"})
    again.publish()

    assert shop.rows() == [{"id": 1, "name": None}, {"id": 2, "name": "two"}]


def test_a_column_that_the_stream_no_longer_has_stays(shop: Shop) -> None:
    shop.sync(schema={"id": {"type": "integer"}, "name": {"type": "string"}}).commit({"id": 1, "name": "one"})

    shop.sync().commit(*ids(2))

    assert shop.rows() == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]


def test_syncs_that_append_may_disagree_on_the_columns(shop: Shop) -> None:
    """Two connections write the stream, one with a schema of before a field was added."""
    before = shop.sync()
    after = shop.sync(schema={"id": {"type": "integer"}, "name": {"type": "string"}})

    after.commit({"id": 1, "name": "one"})
    before.commit(*ids(2))

    assert shop.rows() == [{"id": 1, "name": "one"}, {"id": 2, "name": None}]
