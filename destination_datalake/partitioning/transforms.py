"""Apply partition transforms to Arrow arrays, and group rows by partition."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, assert_never, cast
from zoneinfo import ZoneInfo

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.partitioning.spec import (
    Bucket,
    CalendarPart,
    Identity,
    PartitionField,
    PartitionValue,
    Since1970,
    TimeUnit,
    Transform,
    Truncate,
    Void,
)
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
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

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


# --- Transforms -------------------------------------------------------------------------------------------------------
# Apply the transforms of partition fields to Arrow arrays, and determine the transforms that a column type supports.
#
# The results are values in Iceberg's representation (`PartitionValue`). Source: Iceberg spec, Partition Transforms.

_EXACT = ("identity", "bucket[N]", "truncate[W]")

PERMITTED: Mapping[type[ColumnType], tuple[str, ...]] = {
    Boolean: ("identity",),
    Int32: _EXACT,
    Int64: _EXACT,
    Float32: ("identity",),
    Float64: ("identity",),
    Decimal: _EXACT,
    String: _EXACT,
    Json: _EXACT,
    Date: ("identity", "bucket[N]", "year", "month", "day"),
    Timestamp: ("identity", "bucket[N]", "year", "month", "day", "hour"),
    Struct: (),
    List: (),
}
"""Maps each column type to the names of its supported transforms (Iceberg spec: Partition Transforms)."""


def permits(transform: Transform, column_type: ColumnType) -> bool:
    """Return whether a column type supports `transform`.

    Dates and timestamps support every `CalendarPart`. For a date, the part `hour` is 0.
    """
    match transform:
        case Void():
            return True
        case CalendarPart():
            return isinstance(column_type, Date | Timestamp)
        case Bucket():
            name = "bucket[N]"
        case Truncate():
            name = "truncate[W]"
        case Identity() | Since1970():
            name = str(transform)
        case _:
            assert_never(transform)
    return name in PERMITTED[type(column_type)]


def transformed(array: pa.Array[Any], transform: Transform) -> pa.Array[Any]:
    """Return an array with the result of `transform` for each element. The result for null is null.

    The returned array has the type bool, int32, int64, float, double, decimal128, string or binary. For an array of the
    type null, the function returns nulls of the type int32. Raises ValueError if the array's type does not support the
    transform.
    """
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), pa.int32())
    array = _plain(array)
    match transform:
        case Identity():
            return _in_iceberg_terms(array)
        case Void():
            return pa.nulls(len(array), pa.int32())
        case Bucket(buckets):
            # The mask removes the sign bit, so that no bucket is negative (Iceberg spec: Bucket Transform Details).
            return _integers((_hashes(array) & 0x7FFFFFFF) % buckets, array)
        case Truncate(width):
            return _truncated(array, width)
        case Since1970(unit):
            return _integers(_since_1970(array, unit), array)
        case CalendarPart(part, zone):
            return _integers(_CALENDAR[part](_local(array, zone)), array)
        case _:
            assert_never(transform)


def is_one_period(bounds: pa.Array[Any], calendar: CalendarPart) -> bool:
    """Return whether `calendar` has the same result for all times between two bounds.

    If the zone's offset from UTC changes between the bounds, may return False although all results are equal.
    """
    if _is_shifted(bounds, calendar.zone) and not is_offset_constant(_moments(bounds), calendar.zone):
        return False
    unit: TimeUnit = "day" if calendar.part == "date" else calendar.part
    first, last = _counted(_local(bounds, calendar.zone), unit).tolist()
    return bool(first == last)


def _plain(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return an array with the same values in a plain type: no extension type, dictionary, view or 64-bit offsets."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    if _is_binary(array.type):
        return array.cast(pa.binary())
    return array


def _is_binary(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(is_kind(type_) for is_kind in kinds)


def _is_counted(type_: pa.DataType) -> bool:
    """Return whether Iceberg represents values of this type as integers."""
    kinds = (pa.types.is_integer, pa.types.is_date32, pa.types.is_timestamp, pa.types.is_time64)
    return any(is_kind(type_) for is_kind in kinds)


def _in_iceberg_terms(array: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_date32(array.type):
        return array.view(pa.int32())
    if pa.types.is_timestamp(array.type) or pa.types.is_time64(array.type):
        return _in_microseconds(array)
    if pa.types.is_nested(array.type):
        raise _refusal("identity", array)
    return array


def _in_microseconds(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return timestamps or times of day as integers in microseconds, rounded down."""
    if array.type.unit == "us":
        return array.view(pa.int64())
    per = {"s": 1_000_000, "ms": 1000, "ns": 1}[array.type.unit]
    # NumPy rounds down, also before 1970, as Iceberg requires. Arrow's cast rounds towards zero.
    values = _numpy(array.cast(pa.int64()))
    return _integers(values // 1000 if per == 1 else values * per, array)


def _hashes(array: pa.Array[Any]) -> NDArray[np.int32]:
    type_ = array.type
    if pa.types.is_string(type_) or _is_binary(type_):
        return hashes_of_bytes(array.cast(pa.binary()))
    if pa.types.is_decimal(type_):
        return hashes_of_bytes(_minimal_bytes(array))
    if _is_counted(type_):
        return hashes_of_integers(_numpy(_in_iceberg_terms(array).cast(pa.int64())))
    raise _refusal("bucket", array)


def _truncated(array: pa.Array[Any], width: int) -> pa.Array[Any]:
    type_ = array.type
    if pa.types.is_string(type_) or _is_binary(type_):
        cut: Any = pc.utf8_slice_codeunits if pa.types.is_string(type_) else pc.binary_slice
        start: pa.Array[Any] = cut(array, 0, width)  # Despite its name, utf8_slice_codeunits counts code points.
        return start
    if pa.types.is_int32(type_) or pa.types.is_int64(type_):
        values = _numpy(array)
        # Iceberg's Java formula. Compute in the type of the column, so that sums and differences wrap around, as in
        # Java.
        size = values.dtype.type(width)
        return _integers(values - np.fmod(np.fmod(values, size) + size, size), array)
    if pa.types.is_decimal(type_):
        return _truncated_decimals(array, width)
    raise _refusal("truncate", array)


def _limbs(array: pa.Array[Any]) -> NDArray[np.uint64]:
    """Return the unscaled value of each decimal as two 64-bit words: the lower word, then the upper, with the sign."""
    values = array.cast(pa.decimal128(array.type.precision, array.type.scale))
    data = np.frombuffer(memoryview(values.buffers()[1] or b""), "<u8")
    return data[2 * values.offset : 2 * (values.offset + len(values))].reshape(-1, 2)


def _minimal_bytes(array: pa.Array[Any]) -> pa.Array[Any]:
    """Return the unscaled value of each decimal as a two's complement with as few bytes as possible.

    The bytes are in big-endian order (Iceberg spec, Appendix B).
    """
    # `_limbs` has the lower word first. Big-endian order needs the upper word and the highest byte first.
    data = np.ascontiguousarray(_limbs(array)[:, ::-1]).astype(">u8").view(np.uint8).reshape(-1, 16)
    # A leading byte is redundant if all its bits and the next byte's first bit equal the sign.
    sign = np.where(data[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    superfluous = (data[:, :-1] == sign) & ((data[:, 1:] >= 0x80) == (sign >= 0x80))
    # `accumulate` stops at the first byte that is not redundant, so the sum is the number of leading bytes to drop.
    leading = np.logical_and.accumulate(superfluous, axis=1).sum(axis=1)
    # Shape (rows, 16): which bytes to keep. Selecting by this mask concatenates the bytes of all rows.
    kept = np.arange(16) >= leading[:, None]
    offsets = np.concatenate([[0], np.cumsum(16 - leading)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(data[kept].data)]
    return pa.Array.from_buffers(pa.binary(), len(array), buffers)


def _truncated_decimals(array: pa.Array[Any], width: int) -> pa.Array[Any]:
    """Return the decimals, each rounded down so that its unscaled value is a multiple of `width`.

    A negative result may have one digit more than the precision of the column allows.
    """
    limbs = _limbs(array)
    # Long division of the 128-bit value by parts of 32 bits: each intermediate value fits in 64 bits, because `width`
    # is below 2^31.
    remainder = limbs[:, 1].view(np.int64) % width
    for half in (limbs[:, 0] >> np.uint64(32), limbs[:, 0] & np.uint64(0xFFFFFFFF)):
        remainder = ((remainder << 32) + half.astype(np.int64)) % width
    lower = limbs[:, 0] - remainder.astype(np.uint64)
    # If the lower word has become larger, it has borrowed from the upper word.
    upper = limbs[:, 1] - (lower > limbs[:, 0])
    data = pa.py_buffer(np.stack([lower, upper], axis=1).data)
    # The precision of the column may be too small for the result (see above), so use the highest.
    result = pa.Array.from_buffers(pa.decimal128(38, array.type.scale), len(array), [None, data])
    return pc.if_else(array.is_valid(), result, None) if array.null_count else result


_NUMPY_UNITS: Mapping[TimeUnit, str] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}


def _since_1970(array: pa.Array[Any], unit: TimeUnit) -> NDArray[np.int64]:
    if unit == "hour" and not pa.types.is_timestamp(array.type):
        raise _refusal(unit, array)
    return _counted(_moments(array), unit)


def _moments(array: pa.Array[Any]) -> NDArray[np.datetime64]:
    """Return dates as days and timestamps as microseconds, in the proleptic Gregorian calendar."""
    if pa.types.is_date32(array.type):
        return _numpy(array.view(pa.int32())).astype(np.int64).view("datetime64[D]")
    if pa.types.is_timestamp(array.type):
        return _numpy(_in_microseconds(array)).view("datetime64[us]")
    raise _refusal("a part of the date", array)


def _local(array: pa.Array[Any], zone: str) -> NDArray[np.datetime64]:
    """Return the local times in `zone`. Return dates, and timestamps without a zone, unchanged."""
    moments = _moments(array)
    return local_times(moments, zone) if _is_shifted(array, zone) else moments


def _is_shifted(array: pa.Array[Any], zone: str) -> bool:
    return zone != "UTC" and pa.types.is_timestamp(array.type) and array.type.tz is not None


def _counted(moments: NDArray[np.datetime64], unit: TimeUnit) -> NDArray[np.int64]:
    if moments.dtype == "datetime64[us]":
        # Compute with integers, because NumPy treats the earliest time as NaT (not a time).
        microseconds = moments.view(np.int64)
        if unit == "hour":
            return microseconds // (3600 * _MICROSECONDS)
        moments = (microseconds // (_DAY * _MICROSECONDS)).view("datetime64[D]")
    return moments.astype(f"datetime64[{_NUMPY_UNITS[unit]}]").view(np.int64)


_CALENDAR: Mapping[str, Callable[[NDArray[np.datetime64]], NDArray[np.int64]]] = {
    "year": lambda moments: _counted(moments, "year") + 1970,
    "month": lambda moments: _counted(moments, "month") % 12 + 1,
    "day": lambda moments: _counted(moments, "day") - _first_days(_counted(moments, "month")) + 1,
    "hour": lambda moments: _counted(moments, "hour") % 24,
    "date": lambda moments: _counted(moments, "day"),
}


def _first_days(months: NDArray[np.int64]) -> NDArray[np.int64]:
    return months.view("datetime64[M]").astype("datetime64[D]").view(np.int64)


def _numpy(array: pa.Array[Any]) -> NDArray[Any]:
    """Return the numbers of an array as a NumPy array, with 0 for null. Without nulls, return a view, not a copy."""
    values: NDArray[Any] = (array.fill_null(0) if array.null_count else array).to_numpy()
    return values


def _integers(values: NDArray[Any], source: pa.Array[Any]) -> pa.Array[Any]:
    nulls = source.is_null().to_numpy(zero_copy_only=False) if source.null_count else None
    integers: pa.Array[Any] = pa.array(values, mask=nulls)
    return integers


def _refusal(transform: str, array: pa.Array[Any]) -> ValueError:
    return ValueError(f"{transform} of {array.type} is not defined")


# Local times. Arrow's function `local_timestamp` is unsuitable: it ignores daylight saving time after 2037

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
_MICROSECONDS = 1_000_000
# The second day of the year 1, and the second to last day of the year 9999. Python can represent all local times on
# these days and the days between them.
_FIRST, _LAST = -719_161, 2_932_895


def local_times(moments: NDArray[np.datetime64], zone: str) -> NDArray[np.datetime64]:
    """Convert times in UTC to local times in `zone`, both in microseconds.

    For speed, looks up the zone's offset for each distinct day instead of each row. Raises ZoneInfoNotFoundError for an
    unknown zone.
    """
    times = moments.view(np.int64)
    # Times outside the range get the offset of the nearest day, because Python cannot represent them.
    days = pa.array((times // (_DAY * _MICROSECONDS)).clip(_FIRST, _LAST)).dictionary_encode()
    changes = [_change(zone, day) for day in days.dictionary.to_numpy().tolist()]
    # For each distinct day: the offset before the change, the time of the change, and the offset after it.
    before, at, after = np.array(changes, np.int64).reshape(-1, 3).T
    day_of = days.indices.to_numpy()
    local: NDArray[np.int64] = times + np.where(times < at[day_of], before[day_of], after[day_of])
    return local.view("datetime64[us]")


def is_offset_constant(bounds: NDArray[np.datetime64], zone: str) -> bool:
    """Return whether a zone's offset from UTC is constant between two times.

    Returns False for times that are more than 400 days apart, without reading the offsets.
    """
    first, last = (bounds.view(np.int64) // (_DAY * _MICROSECONDS)).clip(_FIRST, _LAST).tolist()
    if last - first > 400:
        return False
    offsets = {offset for day in range(first, last + 1) for offset in _change(zone, day)[::2]}
    return len(offsets) == 1


@lru_cache(maxsize=65_536)
def _change(zone: str, day: int) -> tuple[int, int, int]:
    """Return the change of a zone's offset from UTC on a day in UTC: offset before, time of the change, offset after.

    The unit of all three is microseconds. On a day without a change, both offsets are equal. In the IANA time zone
    database, no zone changes its offset more than once per day.
    """
    rules = ZoneInfo(zone)
    first, last = day * _DAY, (day + 1) * _DAY - 1
    before, after = _offset(rules, first), _offset(rules, last)
    if before != after:
        # Binary search for the first second with the new offset.
        while last - first > 1:
            middle = (first + last) // 2
            if _offset(rules, middle) == before:
                first = middle
            else:
                last = middle
    return before * _MICROSECONDS, last * _MICROSECONDS, after * _MICROSECONDS


def _offset(rules: ZoneInfo, second: int) -> int:
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(rules).utcoffset()
    return int((offset or timedelta()).total_seconds())


# The hash of the bucket transform: 32-bit Murmur3, x86 variant, seed 0 (Iceberg spec, Appendix B)


def hashes_of_integers(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the hash of each integer's eight bytes in little-endian order."""
    # Each integer is hashed as two 32-bit words. Products of unsigned numbers wrap around, as in C.
    words = np.ascontiguousarray(values, "<i8").view("<u4").reshape(-1, 2)
    hashes = np.zeros(len(words), np.uint32)
    for word in (words[:, 0], words[:, 1]):
        mixed = hashes ^ _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashes = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    # The length of the input, 8 bytes, is part of the hash. The steps that follow mix its bits (fmix32).
    hashes ^= np.uint32(8)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashes ^ (hashes >> np.uint32(16))).view(np.int32)


def hashes_of_bytes(values: pa.Array[Any]) -> NDArray[np.int32]:
    """Return the hash of each byte string, and an arbitrary number for null. Computes each distinct hash only once."""
    distinct = values.dictionary_encode()
    texts = cast("list[bytes]", distinct.dictionary.to_pylist())
    # NumPy cannot take from an empty array, so there is always one hash, to which nulls refer.
    hashes = np.array([mmh3.hash(text) for text in texts] or [0], np.int32)
    return hashes.take(distinct.indices.fill_null(0).to_numpy())


def _rotated(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))


# --- Grouping ---------------------------------------------------------------------------------------------------------
# Group the rows of an Arrow table by partition, with vectorised operations.


def by_partition(
    table: pa.Table, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[PartitionValue, ...], pa.Table]]:
    """Yield the partition values and the rows of each partition of `table`.

    Values are in the order of `fields`. Rows keep the order that they have in `table`. Partitions are in the order of
    their first rows. If `table` lacks the source column of a field, the field's value is null. If the rows of every
    partition are contiguous in `table`, the results are slices without a copy. Raises ValueError in the same cases as
    `transformed`.

    0.0 and -0.0 are different partitions, as in Iceberg. The caller must distinguish them by `repr`, because they are
    equal in Python.
    """
    if table.num_rows == 0:
        return
    sources = [(source_values(table, field.source), field.transform) for field in fields]
    # A batch often has rows of a single partition. Then no row needs to be encoded or moved.
    if all(_is_constant(source, transform) for source, transform in sources):
        (values,) = _rows([transformed(source[:1], transform) for source, transform in sources])
        yield values, table
        return
    columns = [transformed(source, transform) for source, transform in sources]
    codes = _codes(columns)
    # The rows at which the code differs from that of the row before.
    starts = firsts = np.flatnonzero(np.diff(codes, prepend=-1))
    # More changes than codes: the rows of a partition are not contiguous.
    if len(starts) > codes.max() + 1:
        # NumPy uses the faster radix sort for 16-bit integers.
        order = np.argsort(codes.astype(np.uint16) if codes.max() < 2**16 else codes, kind="stable")
        sizes = np.bincount(codes)
        table = table.combine_chunks().take(order)
        starts = np.cumsum(sizes) - sizes
        firsts = order[starts]
    rows = _rows([column.take(firsts) for column in columns])
    for values, start, end in zip(rows, starts.tolist(), [*starts[1:].tolist(), table.num_rows], strict=True):
        yield values, table.slice(start, end - start)


def source_values(table: pa.Table, path: tuple[str, ...]) -> pa.Array[Any]:
    """Return the values of the column or nested field at a path of names.

    If a struct on the path is null in a row, the row's value is null. If the table has no field at the path, all values
    are null.
    """
    if path[0] not in table.column_names:
        return pa.nulls(table.num_rows)
    values: Any = table.column(path[0]).combine_chunks()
    for name in path[1:]:
        if values.type.get_field_index(name) < 0:
            return pa.nulls(table.num_rows)
        values = pc.struct_field(values, name)
    array: pa.Array[Any] = values
    return array


def _is_constant(source: pa.Array[Any], transform: Transform) -> bool:
    """Return whether a cheap check proves that `transform` has the same result for all rows.

    If it returns False, the results may still be equal.
    """
    if isinstance(transform, Void) or source.null_count == len(source):
        return True
    if source.null_count:
        return False
    if pa.types.is_floating(source.type):  # Compare bits: NaN equals itself, and -0.0 differs from 0.0.
        source = source.view(pa.int64() if source.type.bit_width == 64 else pa.int32())
    # Compare two rows first: this rejects most columns without a pass over all values.
    if not _is_equal(transformed(pa.concat_arrays([source[:1], source[-1:]]), transform)):
        return False
    extremes = pc.min_max(source)
    bounds: pa.Array[Any] = pa.array([extremes["min"], extremes["max"]], source.type)
    # A calendar part repeats, and buckets are not in order, so equal results for the bounds prove nothing. The other
    # transforms keep the order of values.
    match transform:
        case CalendarPart():
            return is_one_period(bounds, transform)
        case Bucket():
            return _is_equal(transformed(bounds, Identity()))
    return _is_equal(transformed(bounds, transform))


def _is_equal(pair: pa.Array[Any]) -> bool:
    return bool(pair[0] == pair[1])


def _codes(columns: Sequence[pa.Array[Any]]) -> NDArray[np.int64]:
    """Return a number for each row, which identifies the row's combination of values in `columns`.

    The first row's combination has the number 0. Each new combination gets the next number.
    """
    codes: NDArray[np.int64] | None = None
    for column in columns:
        # Nulls get a code of their own.
        encoded = column.dictionary_encode("encode")
        indices = encoded.indices.to_numpy().astype(np.int64)
        if codes is None:
            codes = indices
        else:
            # Pairs of codes are unique, but far apart. Encoding them again numbers them in the order of their first
            # rows.
            pairs = pa.array(codes * len(encoded.dictionary) + indices)
            codes = pairs.dictionary_encode().indices.to_numpy().astype(np.int64)
    assert codes is not None
    return codes


def _rows(columns: Sequence[pa.Array[Any]]) -> list[tuple[PartitionValue, ...]]:
    if not columns:
        return [()]
    # Tuples that contain NaN are only equal if all NaN values are the same object.
    lists = [[math.nan if value != value else value for value in column.to_pylist()] for column in columns]
    return list(zip(*lists, strict=True))
