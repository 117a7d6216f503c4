"""The hash of Iceberg's bucket transform, for whole arrays: 32-bit Murmur3, x86 variant, seed 0.

Source: Iceberg spec, Appendix B: 32-bit hash requirements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import mmh3
import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


def hashes_of_integers(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Return the hash of each integer as eight little-endian bytes, whatever the width of its column."""
    words = np.ascontiguousarray(values, "<i8").view("<u4").reshape(-1, 2)
    hashes = np.zeros(len(words), np.uint32)
    for word in (words[:, 0], words[:, 1]):
        mixed = hashes ^ _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashes = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashes ^= np.uint32(8)
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (hashes ^ (hashes >> np.uint32(16))).view(np.int32)


def hashes_of_bytes(values: pa.Array[Any]) -> NDArray[np.int32]:
    """Return the hash of each byte string; of null, anything. Each distinct value is hashed once."""
    distinct = values.dictionary_encode()
    texts = cast("list[bytes]", distinct.dictionary.to_pylist())
    hashes = np.array([mmh3.hash(text) for text in texts] or [0], np.int32)
    return hashes.take(distinct.indices.fill_null(0).to_numpy())


def _rotated(values: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
