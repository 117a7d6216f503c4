"""Call the native decoder of RECORD lines (`native/decoder.c`), which is compiled during installation.

The native decoder converts lines to Arrow arrays. The slower rules in `records.values` define the correct result for
every value. The native decoder accepts a value only if it returns the same result as these rules. The caller applies
the rules to all other values and lines.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from destination_datalake import native
from destination_datalake.records.decoded import Lines
from destination_datalake.records.values.numbers import ExactFloat
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.columns import CHANGE, has_whole_record
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

_META = Struct((Field("changes", "changes", List(CHANGE)),))
_EXTRACTED_AT = pa.timestamp("us", "UTC")
_NUMBERS = 10
"""Number of arrays with positions and line numbers in the decoder's result, between extraction times and columns."""

_LOWEST_POWER, _HIGHEST_POWER = -342, 308
_LOWEST_EXACT = -27


class Cell(NamedTuple):
    """A value that the native decoder did not accept. The value's JSON text is `block[start:end]`.

    Column number -1 stands for the record's `meta`.
    """

    row: int
    column: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class NativeBlock:
    """The native decoder's result for a block, which is a piece of text with whole lines.

    - `line_count`: the number of lines, including empty lines.
    - `lines`: the lines that became rows.
    - `extracted_at`: the time at which the source extracted the record of each row, as timestamp[us, UTC].
    - `source_changes`: the changes that the source reported for each row, as CHANGES_TYPE.
    - `columns`: an array for each column, with one value per row. If the decoder did not accept a value, the array
      contains null.
    - `cells`: the values that the decoder did not accept, ordered by row, then by column.
    - `refused`: the lines that the decoder rejected.
    """

    line_count: int
    extracted_at: Any
    source_changes: Any
    columns: Sequence[Any]
    lines: Lines
    cells: Sequence[Cell]
    refused: Lines


class NativeDecoder:
    """A decoder that converts blocks of one stream's RECORD lines with the native library."""

    def __init__(self, columns: Sequence[Field]) -> None:
        keys = bytearray()
        nodes = [*_nodes(Field("meta", "meta", _META), keys)]
        for column in columns:
            nodes += _nodes(column, keys)
        self._nodes = (_Node * len(nodes))(*nodes)
        self._keys = bytes(keys)
        self._is_whole = has_whole_record(columns)
        # If the decoder does not support a column's type, it returns only nulls for the column.
        self._types = [arrow_type(_META), *(arrow_type(widest(column.type)) for column in columns)]
        self._is_known = [True, *(_is_known(column.type) for column in columns)]

    def decode(self, block: bytes | memoryview, first_number: int = 0) -> NativeBlock:
        """Decode a block of whole lines, each ending with a newline. `first_number` is the number of the first line.

        Line numbers also count empty lines. But empty lines are neither in `lines` nor in `refused` of the result.
        Raises MemoryError if memory is exhausted.
        """
        # The extraction times, the number arrays, `meta` and the columns, in this order.
        arrays = (_ArrowArray * (1 + _NUMBERS + len(self._types)))()
        octets = np.frombuffer(block, np.uint8)
        line_count = _library().decode_records(
            self._nodes,
            len(self._nodes),
            len(self._types),
            self._keys,
            self._is_whole,
            _powers_of_five(),
            octets.ctypes.data,
            len(octets),
            arrays,
        )
        if line_count < 0:
            raise MemoryError("Not enough memory to decode a block of records.")
        extracted_at = _imported(arrays[0], _EXTRACTED_AT)
        numbers = [_imported(array, pa.int64()).to_numpy() for array in arrays[1 : 1 + _NUMBERS]]
        # Even if an array is not used, import it: only then does Arrow call the release function of the C data
        # interface.
        meta, *columns = [
            _imported(array, type_) if is_known else _nulls(len(_imported(array, pa.int64())), type_)
            for array, type_, is_known in zip(arrays[1 + _NUMBERS :], self._types, self._is_known, strict=True)
        ]
        lines, refused = (
            Lines(block, starts, ends, relative + first_number) for starts, ends, relative in (numbers[:3], numbers[7:])
        )
        # `lines` starts at 0, cells at 3, and refused lines at 7. The C code numbers `meta` as column 0.
        rows, cell_columns, starts, ends = numbers[3:7]
        # Within a row, cells are in the order of the record's keys. `lexsort` takes the primary key last.
        order = np.lexsort((cell_columns, rows))
        cells = np.stack([rows, cell_columns - 1, starts, ends], axis=1)[order].tolist()
        parsed_cells = [Cell(*cell) for cell in cells]
        return NativeBlock(line_count, extracted_at, meta.field("changes"), columns, lines, parsed_cells, refused)


def _imported(array: _ArrowArray, type_: pa.DataType) -> Any:
    # A private function of PyArrow, which takes the address of a C struct. It takes over the ownership of the buffers.
    importing: Any = pa.Array
    return importing._import_from_c(ctypes.addressof(array), type_)


def _nulls(count: int, type_: pa.DataType) -> Any:
    return pa.array([None] * count, type_)


def is_available() -> bool:
    """Return whether Python can load the native library. Otherwise, the slower rules must convert all values."""
    return _library() is not None


@cache
def _library() -> Any:
    library: Any = native.library()
    if library is None:
        return None
    library.decode_records.restype = ctypes.c_int64
    library.decode_records.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_char_p,
        ctypes.c_bool,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_void_p,
    ]
    return library


# --- The declarations of columns -------------------------------------------------------------------------------------


class _Node(ctypes.Structure):
    """The C struct `Node` in decoder.c."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("children", ctypes.c_int32),
        ("precision", ctypes.c_int32),
        ("scale", ctypes.c_int32),
        ("key", ctypes.c_int64),
        ("key_length", ctypes.c_int64),
    )


class _ArrowArray(ctypes.Structure):
    """The C struct `ArrowArray` of Arrow's C data interface."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")),
        *((name, ctypes.c_void_p) for name in ("buffers", "children", "dictionary", "release", "private_data")),
    )


(
    _BOOLEAN,
    _INTEGER,
    _FLOAT,
    _EXACT_FLOAT,
    _DECIMAL,
    _STRING,
    _JSON,
    _DATE,
    _TIMESTAMP,
    _LOCAL_TIMESTAMP,
    _STRUCT,
    _LIST,
    _CAREFUL,
) = range(13)


def _nodes(field: Field, keys: bytearray) -> list[_Node]:
    """Return the nodes by which the decoder knows a column and its nested fields. Append the fields' keys to `keys`."""
    start = len(keys)
    # A key with a lone surrogate never matches, because the decoder rejects lines that contain such keys.
    keys += field.source.encode("utf-8", "surrogatepass")
    children = _children(field.type) if _is_known(field.type) else ()
    kind, precision, scale = _kind(field.type)
    node = _Node(kind, len(children), precision, scale, start, len(keys) - start)
    return [node, *(inner for child in children for inner in _nodes(child, keys))]


def _children(type_: ColumnType) -> Sequence[Field]:
    match type_:
        case Struct(fields):
            return fields
        case List(element):
            return [Field("", "", element)]
    return ()


def _is_known(type_: ColumnType) -> bool:
    """Return whether the native decoder supports a type and all types nested in it.

    If the decoder does not support a column's type, it returns every value of the column as a cell.
    """
    return type(type_) in _KINDS and all(_is_known(child.type) for child in _children(type_))


def _kind(type_: ColumnType) -> tuple[int, int, int]:
    """Return the decoder's code for a type, a precision and a scale. For other types than decimals, both are 0."""
    match type_:
        case Decimal(precision, scale):
            return _DECIMAL, precision, scale
        case Timestamp(False):
            return _LOCAL_TIMESTAMP, 0, 0
    return _KINDS[type(type_)] if _is_known(type_) else _CAREFUL, 0, 0


_KINDS = {
    Boolean: _BOOLEAN,
    Int32: _INTEGER,
    Int64: _INTEGER,
    Float32: _FLOAT,
    Float64: _FLOAT,
    ExactFloat: _EXACT_FLOAT,
    String: _STRING,
    Json: _JSON,
    Date: _DATE,
    Decimal: _DECIMAL,
    Timestamp: _TIMESTAMP,
    Struct: _STRUCT,
    List: _LIST,
}


@cache
def _powers_of_five() -> bytes:
    """Return the highest 128 bits of powers of five, from which the native decoder computes doubles.

    Each power consists of two 64-bit words, the higher word first. The words equal those in the table of the library
    fast_float: this table truncates powers with positive exponents, and rounds powers with negative exponents up.
    """
    words: list[int] = []
    for exponent in range(_LOWEST_POWER, _HIGHEST_POWER + 1):
        power = 5 ** abs(exponent)
        if exponent < 0:
            # As in fast_float, cut reciprocals of small powers to 128 bits before rounding up, and others afterwards.
            bits = (power - 1).bit_length()
            power = (1 << (bits + 127 if exponent >= _LOWEST_EXACT else 2 * bits + 128)) // power + 1
        shift = power.bit_length() - 128
        power = power >> shift if shift >= 0 else power << -shift
        words += power >> 64, power & (1 << 64) - 1
    return np.array(words, np.uint64).tobytes()
