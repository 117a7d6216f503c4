"""Tables that another engine has created: which are written to, and which are refused before the first record."""

from __future__ import annotations

import pytest

from destination_datalake.tables.table import TableConflict
from integration_tests.harness.table_kinds import TABLE_KINDS
from unit_tests.tables.behaviour import other_engines
from unit_tests.tables.behaviour.shop import Shop, ids


def test_a_table_that_fits_keeps_its_rows_columns_and_properties(shop: Shop) -> None:
    other_engines.create(shop)
    other_engines.append(shop, id=1, theirs="kept")

    shop.sync().commit(*ids(2))

    assert shop.rows() == [{"id": 1, "theirs": "kept"}, {"id": 2, "theirs": None}]
    assert shop.types() == {"id": "bigint", "theirs": "string"}
    assert other_engines.property_of(shop) == "7"


def test_overwriting_a_table_keeps_its_columns_and_properties(shop: Shop) -> None:
    other_engines.create(shop)
    other_engines.append(shop, id=1, theirs="replaced")

    sync = shop.sync(2, overwrite=True)
    sync.commit(*ids(2))
    sync.publish()

    assert shop.rows() == [{"id": 2, "theirs": None}]
    assert shop.types() == {"id": "bigint", "theirs": "string"}
    assert other_engines.property_of(shop) == "7"


def test_a_value_that_a_column_cannot_hold_gets_a_column_of_its_own(shop: Shop) -> None:
    other_engines.create(shop, id_type="string")

    shop.sync().commit(*ids(1))

    [row] = shop.rows()
    assert row.pop("id__int") == 1
    assert row == {"id": None, "theirs": None}


def test_a_column_of_another_type_is_refused_if_schema_conflicts_is_fail(shop: Shop) -> None:
    other_engines.create(shop, id_type="string")
    before = shop.lake.glue_table(*shop.name)

    with pytest.raises(TableConflict, match=f"to table {shop.name}: column id is string and int is sent"):
        shop.sync(schema_conflicts="fail")

    assert shop.lake.glue_table(*shop.name) == before


@pytest.mark.parametrize("other", [1, 2])
def test_a_table_of_another_type_is_refused_and_left_as_it_is(shop: Shop, other: int) -> None:
    existing = TABLE_KINDS[(TABLE_KINDS.index(shop.kind) + other) % len(TABLE_KINDS)]
    shop.sync(kind=existing).commit(*ids(1))
    before = shop.lake.glue_table(*shop.name)

    with pytest.raises(TableConflict, match=f"to table {shop.name}: it"):
        shop.sync()

    assert shop.lake.glue_table(*shop.name) == before
    assert shop.ids() == [1]
