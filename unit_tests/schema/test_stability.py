"""A table that once came to fit a stream fits it ever after, whatever a catalog remembers of its types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

import pytest

from destination_datalake.schema.evolution import apply_changes, evolve
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.iceberg import from_iceberg, iceberg_type
from destination_datalake.schema.types import ColumnType, Field, List, Struct
from unit_tests.schema.strategies import ONE_OF_EACH


def inside(type_: ColumnType) -> Struct:
    return Struct((Field("inside", "Inside", type_),))


SCALARS = [type_ for type_ in ONE_OF_EACH if not isinstance(type_, List | Struct)]
TYPES: list[ColumnType] = [
    *SCALARS,
    *map(List, SCALARS),
    *map(inside, SCALARS),
    *(List(inside(type_)) for type_ in SCALARS),
    *(inside(List(type_)) for type_ in SCALARS),
]

CATALOGS: Mapping[str, Callable[[ColumnType], ColumnType | None]] = {
    "Glue": lambda type_: parse_glue_type(glue_type(type_)),
    "Iceberg": lambda type_: from_iceberg(iceberg_type(type_, count(1).__next__)),
}


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("there", TYPES, ids=glue_type)
def test_after_one_evolution_the_same_stream_changes_nothing(catalog: str, there: ColumnType) -> None:
    """For every type that a table's column has, and every type that a stream sends for it; three syncs long."""
    remembered = CATALOGS[catalog]
    for sent in TYPES:
        stream = [Field("x", "X", sent), Field("y", "Y", sent)]
        table: dict[str, ColumnType | None] = {"x": remembered(there)}
        first = evolve(table, stream)
        for _ in range(2):
            table = {name: type_ and remembered(type_) for name, type_ in apply_changes(table, first.changes).items()}
            again = evolve(table, stream)
            assert again.changes == (), f"{glue_type(sent)} into {glue_type(there)}"
            assert again.columns == first.columns
            first = again
