"""Sets of IDs that erasure jobs search for. A set contains either the IDs or their salted hashes."""

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

from destination_datalake.files.dedup.index import key_bounds, may_have_keys
from destination_datalake.files.dedup.tasks import KeyBounds, RowSet

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from _typeshed import DataclassInstance
    from numpy.typing import NDArray

_Task = TypeVar("_Task", bound="DataclassInstance")
_Result = TypeVar("_Result")

_MAX_RANGES = 64
"""Maximum number of value ranges that a search compares with the statistics of files and row groups. Each of up to 64
IDs gets its own range. If there are more IDs, each range covers several of them."""


@dataclass(frozen=True)
class Ids:
    """A set of IDs to search for. `type` is their Arrow type.

    `keys` contains the distinct IDs in canonical form (see `canonical_keys`), without nulls. `ranges` are ascending
    value ranges that together include all IDs except NaN.
    """

    type: pa.DataType
    keys: pa.Array[Any] = field(repr=False)
    ranges: tuple[KeyBounds, ...] = field(repr=False)
    matched: BitMap = field(default_factory=BitMap, repr=False, compare=False)
    """The IDs that this process or the jobs of `search` have found so far, as positions in `keys`."""

    def __len__(self) -> int:
        return len(self.keys)

    def __reduce__(self) -> tuple[Callable[..., Ids], tuple[Any, ...]]:
        # Executors need neither the IDs that the driver has found nor its cached dict.
        return Ids, (self.type, self.keys, self.ranges)

    @classmethod
    def from_array(cls, values: pa.Array[Any]) -> Self:
        """Return the set of these IDs. The array must not contain nulls."""
        distinct = one_array(cast("Any", pc.unique(values)))
        return cls(values.type, canonical_keys(distinct), ranges_of(distinct) if len(distinct) else ())

    @cached_property
    def _rows(self) -> dict[Any, int]:
        """Maps each canonical ID to its position in `keys`."""
        return {key: row for row, key in enumerate(self.keys.to_pylist())}

    def contains(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the values that are in the set, and add the matching IDs to `matched`.

        The values may have a narrower type than `type`, if the column was promoted later. Raises TypeError for nested
        values.
        """
        column = one_array(values)
        is_id = np.zeros(len(column), np.bool_)
        if not len(self) or column.null_count == len(column):
            return is_id
        rows = np.flatnonzero(mask(column.is_valid()))
        keys: Any = canonical_keys(column.drop_null())
        # Use a dict, because Arrow's `index_in` would build a hash table of all IDs for every batch.
        positions = np.fromiter((self._rows.get(key, -1) for key in keys.to_pylist()), np.int64, len(keys))
        is_id[rows] = positions >= 0
        self.matched.update(positions[positions >= 0].astype(np.uint32))
        return is_id

    def matched_texts(self) -> set[str]:
        """Return the IDs that have been matched so far, as strings."""
        keys: Any = self.keys.take(pa.array(self.matched, pa.int64()))
        return {key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in keys.to_pylist()}

    def may_be_in(self, group: pq.RowGroupMetaData, column: str | None) -> bool:
        """Return whether a row group may contain an ID in `column`, according to the statistics of the row group.

        If the file lacks the column, `column` is None and the result is False.
        """
        return column is not None and may_have_keys(group, [column], [(bounds,) for bounds in self.ranges])


def search(
    run: Callable[[Callable[[Iterable[_Task]], Iterable[Any]], Sequence[_Task]], list[Any]],
    work: Callable[[Iterable[_Task]], Iterable[Any]],
    ids: Ids,
    tasks: Sequence[_Task],
) -> list[Any]:
    """Run a job whose tasks search for `ids`. Return the job's results, and add the IDs that matched to `ids.matched`.

    `run` is a function that runs `work` on tasks in Spark. Spark sends the IDs once, as an argument of `work`, not in
    each task. Spark keeps several copies of each task in the driver's memory, so tasks that contain many IDs would
    exhaust this memory.
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
    """Run `work` on an executor, after adding `ids` to each task.

    Yield the results of `work`, then the positions of the IDs that matched.
    """
    yield from work(replace(task, ids=ids) for task in tasks)
    yield RowSet.from_bitmap(ids.matched)


def ranges_of(values: pa.Array[Any]) -> tuple[KeyBounds, ...]:
    """Return at most 64 ranges that together include all values except NaN. The values must not contain nulls."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    ordered = values.take(pc.sort_indices(values))
    # Division that rounds up.
    size = max(1, -(-len(ordered) // _MAX_RANGES))
    ends = ((start, min(start + size, len(ordered)) - 1) for start in range(0, len(ordered), size))
    return tuple(key_bounds(ordered[first], ordered[last], values.type) for first, last in ends)


NO_IDS = Ids(pa.null(), pa.nulls(0), ())


# --- Canonical values -------------------------------------------------------------------------------------------------


def canonical_keys(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return each value as a 64-bit integer or bytes. Results are equal if and only if the original values are equal.

    Null stays null. -0.0 equals 0.0, and NaN equals NaN. The canonical value does not change when a column is promoted
    (Iceberg spec: Schema Evolution; int to long, float to double, decimals with more digits). Does not copy 64-bit
    integers and strings. Raises TypeError for nested columns.
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
    # Adding 0.0 copies the values, so the next line may change them.
    values = column.cast(pa.float64()).fill_null(0).to_numpy() + 0.0  # -0.0 becomes 0.0.
    values[np.isnan(values)] = np.nan  # NaN has many bit patterns.
    return pa.array(values.view(np.int64), mask=mask(column.is_null()) if column.null_count else None)


def one_array(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> pa.Array[Any]:
    """Return a column as one array. Copies the values only if the column has several chunks."""
    if isinstance(column, pa.ChunkedArray):
        combined: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return cast("pa.Array[Any]", combined)
    return column


def mask(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """Return a Boolean array without nulls as a NumPy array."""
    return cast("NDArray[np.bool_]", array.to_numpy(zero_copy_only=False))


# --- Hashed IDs -------------------------------------------------------------------------------------------------------

_SALT_BYTES = 32
_DIGEST = np.dtype("S32")


@dataclass(frozen=True, slots=True)
class HashedIds:
    """A set of IDs as salted hashes: the HMAC-SHA256 of each canonical ID. Each erasure request has its own salt.

    Anyone who has the hashes and the salt can check whether a given value is one of the IDs. The hashes do not reveal
    the IDs, unless a column has so few possible values that someone can try them all. `digests` contains the hashes, 32
    bytes each, sorted and concatenated.
    """

    salt: bytes
    digests: bytes = field(repr=False)

    @classmethod
    def from_digests(cls, digests: bytes, salt: bytes) -> Self:
        """Return the set of these hashes. `digests` contains the concatenated results of `digests_of` for this salt."""
        return cls(salt, np.unique(np.frombuffer(digests, _DIGEST)).tobytes())

    def __len__(self) -> int:
        return len(self.digests) // _DIGEST.itemsize

    def contains(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the values whose hashes are in the set. The mask is False for nulls.

        Raises TypeError for nested values.
        """
        column = one_array(values)
        is_id = np.zeros(len(column), np.bool_)
        if not self.digests or not len(column):
            return is_id
        known = np.frombuffer(self.digests, _DIGEST)
        # Each distinct value is hashed only once.
        encoded: Any = column.dictionary_encode()
        digests = np.frombuffer(b"".join(digests_of(encoded.dictionary, self.salt)), _DIGEST)
        # For digests above all known ones, `searchsorted` returns len(known).
        is_known = known[np.minimum(np.searchsorted(known, digests), len(known) - 1)] == digests
        codes = encoded.indices
        valid = mask(codes.is_valid())
        is_id[valid] = is_known[codes.drop_null().to_numpy()]
        return is_id


def new_salt() -> bytes:
    """Return 32 random bytes as the salt of an erasure request."""
    return secrets.token_bytes(_SALT_BYTES)


def digests_of(values: pa.Array[Any], salt: bytes) -> Sequence[bytes]:
    """Return the salted hash of each value, 32 bytes long. The values must not contain nulls.

    A value keeps its hash when its column is promoted. A number and a string of its digits have different hashes.
    """
    canonical = canonical_keys(values)
    keys: list[Any] = canonical.to_pylist()
    if pa.types.is_integer(canonical.type):
        return [_digest(b"n%d" % key, salt) for key in keys]
    return [_digest(b"t" + key, salt) for key in keys]


def _digest(value: bytes, salt: bytes) -> bytes:
    return hmac.digest(salt, value, "sha256")
