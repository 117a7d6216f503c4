"""Column types as Arrow types."""

from __future__ import annotations

import pyarrow as pa

from destination_datalake.schema.arrow import arrow_field
from destination_datalake.schema.types import Field, Int64, List, String, Struct


def test_a_field_has_the_column_s_name_and_is_nullable_at_every_level() -> None:
    order = Struct((Field("id", "Id", Int64()), Field("tags", "tags", List(String()))))

    field = arrow_field(Field("order", "Order", order))

    assert field.name == "order"
    assert field.nullable
    assert isinstance(field.type, pa.StructType)
    assert field.type.field(0).nullable
