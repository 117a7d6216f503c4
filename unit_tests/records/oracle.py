"""What was sent, and whether what was kept is that: knowing nothing of how it was read."""

from __future__ import annotations

import decimal
import json
import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from destination_datalake.records.decoded import ValueChange
from destination_datalake.records.values.rules import Floats
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
from unit_tests.strategies import everyday_types

few_columns = st.lists(everyday_types, min_size=1, max_size=3).map(
    lambda types: [Field(f"c{i}", f"C {i}", type_) for i, type_ in enumerate(types)]
)


def a_line(values: Mapping[str, str], number: int, emitted_at: str | None = None, suffix: str = "") -> bytes:
    """A RECORD line; `values` are JSON texts by key."""
    data = ",".join(f"{json.dumps(key)}: {text}" for key, text in values.items())
    when = str(1_700_000_000_000 + number) if emitted_at is None else emitted_at
    return f'{{"type":"RECORD","record":{{"stream":"s","data":{{{data}}},"emitted_at":{when}{suffix}}}}}\n'.encode()


def as_dict(change: ValueChange) -> dict[str, str | None]:
    return {"field": change.field, "change": change.change, "reason": change.reason}


class Oracle:
    """Compares what was kept with what was sent, knowing nothing of how it was read."""

    def __init__(self, changes: Iterable[ValueChange], floats: Floats = Floats.ANY) -> None:
        self._changes = {change.field: change for change in changes}
        self._floats = floats

    def holds(self, sent: Any, kept: Any, type_: ColumnType, path: str) -> bool:
        """Whether the value at this path is the one that was sent, or a change at this path has what was sent.

        A change without an original is of a blank text that became null.
        """
        change = self._changes.get(path)
        if change is not None:
            if change.original is None:
                return kept is None and isinstance(sent, str) and not sent.strip(" \t\r\n")
            # NaN is not equal to itself; its name is.
            if repr(exactly(change.original.decode())) != repr(sent):
                return False
        if kept is None:
            return (sent is None) == (change is None)
        if change is not None:
            return change.change == "TRUNCATED" and self._is_close(sent, kept)
        match type_:
            case Struct(fields):
                return all(self.holds(sent.get(f.source), kept[f.name], f.type, joined(path, f.source)) for f in fields)
            case List(element):
                pairs = enumerate(zip(sent, kept, strict=True))
                return all(self.holds(s, k, element, joined(path, str(i))) for i, (s, k) in pairs)
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


def joined(path: str, step: str) -> str:
    return f"{path}.{step}" if path else step


def exactly(text: str) -> Any:
    """A JSON text with every digit of its numbers."""
    return json.loads(text, parse_int=decimal.Decimal, parse_float=decimal.Decimal)


def moment(text: str) -> datetime:
    """An ISO 8601 date or time, as Python reads it, and midnight at the end of a day.

    It knows no commas, no era, no single digits.
    """
    if "T24:00" in text:
        return datetime.fromisoformat(text.replace("T24:00", "T00:00")) + timedelta(days=1)
    return datetime.fromisoformat(text)
