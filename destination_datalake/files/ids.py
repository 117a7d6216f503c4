"""Sets of ids that rows are looked up in, as jobs are given them: the ids themselves, or salted hashes of them."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from destination_datalake.files.dedup.index import bounds_of
from destination_datalake.files.dedup.probe import may_have_keys
from destination_datalake.files.dedup.tasks import KeyBounds, RowSet

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from _typeshed import DataclassInstance
    from numpy.typing import NDArray

_Task = TypeVar("_Task", bound="DataclassInstance")
_Result = TypeVar("_Result")

_RANGES = 64
"""By so many ranges of ids files are left out: few ids are a range each."""


@dataclass(frozen=True)
class Ids:
    """Distinct ids of the Arrow type `type`, as canonical `keys` without nulls.

    `ranges` are ranges of values that have all ids between them, in ascending order; none is null or NaN.
    """

    type: pa.DataType
    keys: pa.Array[Any] = field(repr=False)
    ranges: tuple[KeyBounds, ...] = field(repr=False)
    matched: BitMap = field(default_factory=BitMap, repr=False, compare=False)
    """Which ids were values so far, in this process and in the jobs of `search`: rows of the set."""

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[Callable[..., Ids], tuple[Any, ...]]:
        return Ids, (self.type, self.keys, self.ranges)

    @classmethod
    def of(cls, values: pa.Array[Any]) -> Self:
        """Return the set of these values, none of which is null."""
        distinct = one_array(cast("Any", pc.unique(values)))
        return cls(values.type, canonical_keys(distinct), ranges_of(distinct) if len(distinct) else ())

    @cached_property
    def _rows(self) -> dict[Any, int]:
        """The row of each id in the set."""
        return {key: row for row, key in enumerate(self.keys.to_pylist())}

    def contains(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the values that are ids. They may be of a type from which `type` was promoted.

        Raises TypeError for nested values.
        """
        column = one_array(values)
        found = np.zeros(len(column), np.bool_)
        if not len(self) or column.null_count == len(column):
            return found
        rows = np.flatnonzero(mask(column.is_valid()))
        keys: Any = canonical_keys(column.drop_null())
        at = np.fromiter((self._rows.get(key, -1) for key in keys.to_pylist()), np.int64, len(keys))
        found[rows] = at >= 0
        self.matched.update(at[at >= 0].astype(np.uint32))
        return found

    def matched_texts(self) -> set[str]:
        """Return the ids that were values so far."""
        keys: Any = self.keys.take(pa.array(self.matched, pa.int64()))
        return {key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in keys.to_pylist()}

    def may_be_in(self, group: pq.RowGroupMetaData, column: str | None) -> bool:
        """Whether a row group may have an id in a column, by its statistics. None: the file lacks it."""
        return column is not None and may_have_keys(group, [column], [(each,) for each in self.ranges])


def search(
    run: Callable[[Callable[[Iterable[_Task]], Iterable[Any]], Sequence[_Task]], list[Any]],
    work: Callable[[Iterable[_Task]], Iterable[Any]],
    ids: Ids,
    tasks: Sequence[_Task],
) -> list[Any]:
    """Run a job's function, by `run`, on tasks that have no ids yet; return its results.

    Spark sends the ids once, with the function. Tasks are in the memory of its driver, each several times: with many
    ids in each of them it ends.
    """
    results = []
    for result in run(partial(with_ids, work, ids), tasks):
        if isinstance(result, RowSet):
            ids.matched.update(result.rows())
        else:
            results.append(result)
    return results


def with_ids(
    work: Callable[[Iterable[_Task]], Iterable[_Result]], ids: Ids, tasks: Iterable[_Task]
) -> Iterator[_Result | RowSet]:
    """Run a job's function on tasks that are given ids; yield its results, and at the end which ids were found."""
    yield from work(replace(task, ids=ids) for task in tasks)
    yield RowSet.of(ids.matched)


def ranges_of(values: pa.Array[Any]) -> tuple[KeyBounds, ...]:
    """Return at most 64 ranges that have all of the values, which are not null, between them."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    if pa.types.is_decimal(values.type) or pa.types.is_boolean(values.type):
        return (bounds_of(values),)
    in_order = values.take(pc.sort_indices(values))
    size = -(-len(in_order) // _RANGES)
    return tuple(bounds_of(in_order.slice(begin, size)) for begin in range(0, len(in_order), max(size, 1)))


NO_IDS = Ids(pa.null(), pa.nulls(0), ())


# --- values in canonical form -----------------------------------------------------------------------------------------


def canonical_keys(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return values as 64-bit integers or as binary values, null where they are: equal if, and only if, they are.

    -0.0 equals 0.0, and NaN equals NaN. A column that is promoted (Iceberg spec: Schema Evolution, int to long, float
    to double, decimals of more digits) gives the same. Integers and texts share the memory of the column. Raises
    TypeError for nested columns.
    """
    types, type_ = pa.types, column.type
    if types.is_integer(type_) or types.is_boolean(type_) or types.is_null(type_):
        return column.cast(pa.int64())
    if types.is_floating(type_):
        return _bits_of_floats(column)
    if types.is_date32(type_) or types.is_time32(type_):
        return column.view(pa.int32()).cast(pa.int64())
    if types.is_timestamp(type_) or types.is_time64(type_) or types.is_date64(type_):
        return column.view(pa.int64())
    if types.is_decimal(type_):
        return column.view(pa.binary(type_.byte_width)).cast(pa.binary())
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if any(is_(type_) for is_ in (*texts, types.is_fixed_size_binary)):
        return column.cast(pa.binary())
    raise TypeError(f"{type_} cannot be a key")


def _bits_of_floats(column: pa.Array[Any]) -> pa.Array[Any]:
    values = column.cast(pa.float64()).fill_null(0).to_numpy() + 0.0  # -0.0 becomes 0.0.
    values[np.isnan(values)] = np.nan  # There are many NaNs.
    return pa.array(values.view(np.int64), mask=mask(column.is_null()) if column.null_count else None)


def one_array(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Return a column as one array, without a copy if it is in one piece."""
    if isinstance(column, pa.ChunkedArray):
        combined: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return cast("pa.Array[Any]", combined)
    return column


def mask(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """Return an array of Booleans without nulls as numpy has it."""
    return cast("NDArray[np.bool_]", array.to_numpy(zero_copy_only=False))


# --- ids that nobody can read back ------------------------------------------------------------------------------------

_SALT_BYTES = 32
_DIGEST = np.dtype("S32")


@dataclass(frozen=True, slots=True)
class HashedIds:
    """Ids by their salted hashes: HMAC-SHA256 of the canonical value, with a salt of the request's own.

    Who has the hashes and the salt can tell whether a given value is among them, and cannot list them (unless all
    possible values are few). `digests` are sorted, 32 bytes each, one after the other.
    """

    salt: bytes
    digests: bytes = field(repr=False)

    @classmethod
    def of(cls, digests: bytes, salt: bytes) -> Self:
        """Return the set of the digests that `digests_of` has returned for this salt, one after the other."""
        return cls(salt, np.unique(np.frombuffer(digests, _DIGEST)).tobytes())

    def __len__(self) -> int:
        return len(self.digests) // _DIGEST.itemsize

    def contains(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the values whose hashes are in the set; null never is. Raises TypeError for nested ones."""
        column = one_array(values)
        found = np.zeros(len(column), np.bool_)
        if not self.digests or not len(column):
            return found
        known = np.frombuffer(self.digests, _DIGEST)
        encoded: Any = column.dictionary_encode()
        digests = np.frombuffer(b"".join(digests_of(encoded.dictionary, self.salt)), _DIGEST)
        is_known = known[np.minimum(np.searchsorted(known, digests), len(known) - 1)] == digests
        codes = encoded.indices
        valid = mask(codes.is_valid())
        found[valid] = is_known[codes.drop_null().to_numpy()]
        return found


def new_salt() -> bytes:
    """Return a salt for a request."""
    return secrets.token_bytes(_SALT_BYTES)


def digests_of(values: pa.Array[Any], salt: bytes) -> Sequence[bytes]:
    """Return the salted hash of each value: the same for a promoted type, and not the same for a text of a number.

    Null has none, and must not be among them.
    """
    canonical = canonical_keys(values)
    keys: list[Any] = canonical.to_pylist()
    if pa.types.is_integer(canonical.type):
        return [_digest(b"n%d" % key, salt) for key in keys]
    return [_digest(b"t" + key, salt) for key in keys]


def _digest(value: bytes, salt: bytes) -> bytes:
    return hmac.digest(salt, value, "sha256")
