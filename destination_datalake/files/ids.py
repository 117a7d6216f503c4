"""Sets of ids that rows are looked up in, as jobs are given them: the ids themselves, or salted hashes of them."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.files.dedup.index import KeySet, bounds_of, key_table, open_keys, write_index
from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, mask, one_array, part_numbers
from destination_datalake.files.dedup.probe import may_have_keys
from destination_datalake.files.dedup.tasks import IndexPart, KeyBounds

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

    from destination_datalake.aws.access import AwsAccess

_RANGES = 64
"""By so many ranges of ids files are left out: few ids are a range each."""

_OPEN_BYTES = 96 * 1024 * 1024
"""Parts of the index up to this size in all stay open."""


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of the Arrow type `type`, in an index of one or more parts. Travels to executors; memory is bounded.

    `ranges` are ranges of values that have all ids between them, in ascending order; none is null or NaN.
    """

    type: pa.DataType
    count: int
    parts: tuple[IndexPart, ...]
    ranges: tuple[KeyBounds, ...]
    access: AwsAccess

    def contains(self, values: pa.Array[Any] | pa.ChunkedArray[Any]) -> NDArray[np.bool_]:
        """Return a mask of the values that are ids. They may be of a type from which `type` was promoted.

        Raises TypeError for nested values, OSError if the index is gone from the disk, and errors of AWS.
        """
        column = one_array(values)
        found = np.zeros(len(column), np.bool_)
        if not self.parts or column.null_count == len(column):
            return found
        rows = np.flatnonzero(mask(column.is_valid()))
        keys = canonical_keys([column if len(rows) == len(column) else column.take(pa.array(rows, pa.int64()))])
        hashes = key_hashes(keys)
        numbers = part_numbers(hashes, self.parts[0].parts)
        for part in self.parts:
            if len(self.parts) == 1:
                found[rows[_open(part, self.access).lookup(keys, hashes) >= 0]] = True
                continue
            chosen = np.flatnonzero(numbers == part.number)
            if len(chosen):
                at = _open(part, self.access).lookup(keys.take(pa.array(chosen, pa.int64())), hashes[chosen])
                found[rows[chosen[at >= 0]]] = True
        return found

    def may_be_in(self, group: pq.RowGroupMetaData, column: str | None) -> bool:
        """Whether a row group may have an id in a column, by its statistics. None: the file lacks it."""
        return column is not None and may_have_keys(group, [column], [(each,) for each in self.ranges])


def write_ids(keys: pa.Array[Any], number: int, parts: int, folder: str, access: AwsAccess) -> IndexPart:
    """Write an index of distinct canonical keys, as `write_index` writes one of winners."""
    return write_index(key_table(keys), number, parts, (), folder, access)


def ranges_of(values: pa.Array[Any]) -> tuple[KeyBounds, ...]:
    """Return at most 64 ranges that have all of the values, which are not null, between them."""
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    if pa.types.is_decimal(values.type) or pa.types.is_boolean(values.type):
        return (bounds_of(values),)
    in_order = values.take(pc.sort_indices(values))
    size = -(-len(in_order) // _RANGES)
    return tuple(bounds_of(in_order.slice(begin, size)) for begin in range(0, len(in_order), max(size, 1)))


_opened: dict[str, tuple[KeySet, int]] = {}
"""The parts of the index that this process has open, the latest last."""


def _open(part: IndexPart, access: AwsAccess) -> KeySet:
    if part.content:
        return open_keys(part, access)
    if (found := _opened.pop(part.uri, None)) is None:
        while _opened and sum(size for _, size in _opened.values()) + part.size > _OPEN_BYTES:
            del _opened[next(iter(_opened))]
        found = open_keys(part, access), part.size
    _opened[part.uri] = found
    return found[0]


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
    canonical = canonical_keys([values])
    keys: list[Any] = canonical.to_pylist()
    if pa.types.is_integer(canonical.type):
        return [_digest(b"n%d" % key, salt) for key in keys]
    return [_digest(b"t" + key, salt) for key in keys]


def _digest(value: bytes, salt: bytes) -> bytes:
    return hmac.digest(salt, value, "sha256")
