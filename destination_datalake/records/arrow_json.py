"""Arrow's JSON parser: in C++, against an explicit schema. It refuses all of a block for one value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.json as pj

from destination_datalake.records.values.exponents import far_exponent
from destination_datalake.records.values.rules import BlockRefused, ReadStrategy, TypeRules, require

REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What Arrow and msgspec raise where a block is not as they were asked to read it."""


def parse_member(block: bytes | memoryview, member: pa.Field[Any]) -> Any:
    """Return one member of each of the block's objects, as one array. Raises one of `REFUSALS`, or BlockRefused."""
    require(not _holds_decimals(member.type) or not far_exponent(block))
    options = pj.ParseOptions(explicit_schema=pa.schema([member]), unexpected_field_behavior="ignore")
    source: Any = pa.BufferReader(pa.py_buffer(block))
    # One block: what Arrow gives back is one chunk.
    read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pj.read_json(source, read, options).column(member.name).chunk(0)


def _holds_decimals(type_: pa.DataType) -> bool:
    """Whether Arrow parses decimals itself; those that it reads as strings are judged by their canonical pattern."""
    children = (type_.field(i).type for i in range(type_.num_fields))
    return pa.types.is_decimal(type_) or any(map(_holds_decimals, children))


def parse_texts(texts: Sequence[str], rules: TypeRules) -> Any:
    """Return JSON texts as `rules.arrow_type`. Raises one of `REFUSALS`, or BlockRefused, if one is irregular."""
    if not texts:
        return pa.array([], rules.arrow_type)
    native = rules.read_type(ReadStrategy.NATIVE)
    if native is None:
        raise BlockRefused
    block = ('{"v":' + '}\n{"v":'.join(texts) + "}\n").encode()
    array = parse_member(block, pa.field("v", native))
    require(len(array) == len(texts))
    return rules.conform(array)
