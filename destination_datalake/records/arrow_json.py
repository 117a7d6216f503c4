"""What Arrow's JSON parser is asked for, and what of its answer is as a column has it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from destination_datalake.records.envelope import require
from destination_datalake.records.values.canonical import parse_vectorised
from destination_datalake.records.values.exponents import far_exponent
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.types import (
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
    Struct,
    Timestamp,
)

REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What is raised where a block is not as it was asked for."""


class ReadStrategy(Enum):
    """How a column's values are got at; each takes all that the one before it takes."""

    NATIVE = "Arrow reads the values as what they are"
    TEXT = "Arrow reads the numbers as strings: protocol v1 sends them so"
    RAW_JSON = "msgspec cuts the JSON texts out of the lines"


def first_strategy(column: Field) -> ReadStrategy:
    """How to begin with a column: open JSON, kept as text exactly as received, is nothing that Arrow can read.

    Nor are keys with lone surrogates, which no text can hold that is UTF-8.
    """
    return ReadStrategy.NATIVE if arrow_reads(Struct((column,))) else ReadStrategy.RAW_JSON


def next_strategy(reading: ReadStrategy, type_: ColumnType) -> ReadStrategy | None:
    """What to try when values of the column were refused, or None if there is nothing left to try."""
    if reading is ReadStrategy.NATIVE and _holds(type_, _NUMBERS):
        return ReadStrategy.TEXT
    return None if reading is ReadStrategy.RAW_JSON else ReadStrategy.RAW_JSON


_NUMBERS = (Int32, Int64, Float32, Float64, Decimal)


def _holds(type_: ColumnType, kinds: tuple[type[ColumnType], ...]) -> bool:
    match type_:
        case Struct(fields):
            return any(_holds(field.type, kinds) for field in fields)
        case List(element):
            return _holds(element, kinds)
        case _:
            return isinstance(type_, kinds)


def arrow_reads(type_: ColumnType) -> bool:
    """Whether Arrow's JSON parser can be asked for the type."""
    match type_:
        case Struct(fields):
            return all(_SURROGATE.search(field.source) is None and arrow_reads(field.type) for field in fields)
        case List(element):
            return arrow_reads(element)
        case _:
            return not isinstance(type_, Json)


_SURROGATE = re.compile(r"[\ud800-\udfff]")


def parsed(block: bytes | memoryview, member: pa.Field[Any]) -> Any:
    """One member of each of the block's objects. Raises one of `REFUSALS`, or BlockRefused."""
    require(not _holds_decimals(member.type) or not far_exponent(block))
    options = pj.ParseOptions(explicit_schema=pa.schema([member]), unexpected_field_behavior="ignore")
    source: Any = pa.BufferReader(pa.py_buffer(block))
    # One block: what Arrow gives back is one chunk.
    read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pj.read_json(source, read, options).column(member.name).chunk(0)


def _holds_decimals(type_: pa.DataType) -> bool:
    """Whether Arrow's JSON parser is asked for decimals; what it is asked for as strings is judged by `plain`."""
    children = (type_.field(i).type for i in range(type_.num_fields))
    return pa.types.is_decimal(type_) or any(map(_holds_decimals, children))


def from_texts(texts: Sequence[str], type_: ColumnType) -> Any:
    """JSON texts as `arrow_type(type_)`. Raises one of `REFUSALS`, or BlockRefused, where they need a careful look."""
    if not texts:
        return pa.array([], arrow_type(type_))
    block = ('{"v":' + '}\n{"v":'.join(texts) + "}\n").encode()
    array = parsed(block, pa.field("v", read_type(type_, ReadStrategy.NATIVE)))
    require(len(array) == len(texts))
    return conform(array, type_)


def read_type(type_: ColumnType, reading: ReadStrategy) -> pa.DataType:
    """What Arrow's JSON parser is asked for.

    Dates it cannot parse, and of a wall clock it would apply the offset. A decimal of 128 bits it lets wrap around when
    the digits that the scale adds are too many; 256 bits hold them all, for `validate` to find.
    """
    match type_:
        case Decimal(precision, scale) if reading is ReadStrategy.NATIVE:
            return pa.decimal256(precision, scale)
        case Date() | Timestamp():
            return pa.string()
        case Struct(fields):
            return pa.struct([pa.field(f.source, read_type(f.type, reading)) for f in fields])
        case List(element):
            return pa.list_(read_type(element, reading))
        case _:
            is_text = reading is ReadStrategy.TEXT and isinstance(type_, _NUMBERS)
            return pa.string() if is_text else arrow_type(type_)


def conform(array: Any, type_: ColumnType) -> Any:
    """What Arrow read, as `arrow_type(type_)`. Raises BlockRefused where that needs a careful look."""
    match type_:
        case Struct(fields):
            children = [conform(array.field(f.source), f.type) for f in fields]
            named = [pa.field(f.name, arrow_type(f.type)) for f in fields]
            return pa.StructArray.from_arrays(children, fields=named, mask=array.is_null())
        case List(element):
            values = conform(array.values, element)
            return pa.ListArray.from_arrays(array.offsets, values, type=arrow_type(type_), mask=array.is_null())
        case Date() | Timestamp() | Int64() | Float64() | Decimal() if pa.types.is_string(array.type):
            values, odd = parse_vectorised(array, type_)
            require(odd is None)
            return values
        case Float64():
            require(pc.all(pc.is_finite(array)).as_py() is not False)  # NaN is no JSON, but Arrow takes it
        case Decimal():
            array.validate(full=True)
            return array.cast(arrow_type(type_))
    return array
