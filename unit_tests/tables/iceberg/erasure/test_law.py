"""A law of erasure: whatever the type of the column, the layout, the rows and the branches, what has an id is gone from
every object, and all other rows are as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from destination_datalake.schema.types import (
    ColumnType,
    Date,
    Field,
    Float64,
    Int32,
    Int64,
    String,
    Struct,
    Timestamp,
)
from destination_datalake.schema.types import Decimal as DecimalColumn
from unit_tests.examples import long_examples
from unit_tests.tables.iceberg.erasure.people import People
from unit_tests.tables.iceberg.lake import Lake

_DAY = date(2031, 1, 1)
_NOON = datetime(2031, 1, 1, 12, tzinfo=UTC)


class Kind(NamedTuple):
    """A type of the column: its values by number, how the file of ids has them, and transforms of partitions."""

    type: ColumnType
    value: Callable[[int], Any]
    text: Callable[[Any], str]
    transforms: Sequence[str]


KINDS = {
    # Odd, and so no multiple of four: what others' ids are truncated to is not an id of somebody whose rows are erased.
    "int": Kind(Int32(), lambda n: 1_700_000_001 + 2 * n, str, ("identity", "bucket[3]", "truncate[4]")),
    "long": Kind(Int64(), lambda n: 7_000_000_000_001 + 2 * n, str, ("identity", "bucket[3]", "truncate[4]")),
    "double": Kind(Float64(), lambda n: 1e9 + n + 0.5, repr, ()),
    "decimal": Kind(DecimalColumn(20, 2), lambda n: Decimal(10**12 + n) / 4, str, ("bucket[3]",)),
    "string": Kind(String(), lambda n: f"u-{n:03}@x.org", str, ("identity", "bucket[3]", "truncate[4]")),
    "date": Kind(Date(), lambda n: _DAY + timedelta(n), str, ("identity", "month", "year")),
    "timestamp": Kind(
        Timestamp(zoned=True), lambda n: _NOON + timedelta(hours=n), lambda v: v.isoformat(), ("day", "hour")
    ),
}


class World(NamedTuple):
    """A table and its branches: batches of rows by number, None for no id; and whose rows are erased."""

    kind: str
    nested: bool
    transform: str | None
    batches: Sequence[Sequence[int | None]]
    overwrite: Sequence[int | None]
    hidden: bool
    erased: frozenset[int]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    kind = draw(st.sampled_from(sorted(KINDS)))
    nested = draw(st.booleans())
    rows = st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=6)
    return World(
        kind,
        nested,
        None if nested else draw(st.sampled_from([*KINDS[kind].transforms, None])),
        draw(st.lists(rows, min_size=1, max_size=3)),
        draw(st.just([]) | rows),
        draw(st.booleans()),
        frozenset(draw(st.sets(st.integers(0, 11), min_size=1, max_size=5))),
    )


@pytest.mark.law
@given(worlds())
@settings(max_examples=long_examples(60, 6), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_with_an_id_are_gone_and_all_others_stay(lake: Lake, world: World) -> None:
    own, kind = Lake(lake.access), KINDS[world.kind]
    people = People(own)
    key = Field("key", "key", kind.type)
    column = (
        Field("o", "o", Struct((Field("key", "key", kind.type), Field("n", "n", Int64())))) if world.nested else key
    )
    columns = (Field("id", "id", Int64()), column)
    number = iter(range(10_000))

    def row(key: int | None) -> dict[str, Any]:
        value = None if key is None else kind.value(key)
        return {"id": next(number), **({"o": {"key": value, "n": 1}} if world.nested else {"key": value})}

    by = [{"source": "key", "transform": world.transform}] if world.transform is not None else None
    opened = own.open(columns=columns, partition_by=by)
    sent = [[row(key) for key in batch] for batch in world.batches]
    for batch in sent:
        own.commit_rows(opened, *batch)
    branches = {"main": [record for batch in sent for record in batch]}
    if world.hidden:
        own.delete_first_row()
    if world.overwrite:
        overwrite = own.open(generation=2, overwrite=True, columns=columns, partition_by=by)
        branches["airbyte_generation_2"] = [row(key) for key in world.overwrite]
        own.commit_rows(overwrite, *branches["airbyte_generation_2"])
    ids = {kind.value(key) for key in world.erased}
    before = {branch: people.rows(branch) for branch in branches}

    name = "o.key" if world.nested else "key"
    report = people.erase(*map(kind.text, ids), column=name)

    def value_of(record: dict[str, Any]) -> Any:
        return record["o"]["key"] if world.nested else record["key"]

    assert report.complete, report
    after = {branch: people.rows(branch) for branch in branches}
    assert after == {
        branch: [record for record in rows if value_of(record) not in ids] for branch, rows in before.items()
    }
    table = own.load()
    for path in [key for key in own.objects() if key.endswith(".parquet")]:
        stored_rows = people.parquet(path).to_pylist()
        assert not [
            record
            for record in stored_rows
            if record.get("o" if world.nested else "key") is not None and value_of(record) in ids
        ]
    assert {ref.snapshot_id for ref in table.metadata.refs.values()} <= {
        e.snapshot_id for e in table.metadata.snapshots
    }
    if world.kind in ("int", "long", "string"):
        assert people.traces(*ids) == {}
