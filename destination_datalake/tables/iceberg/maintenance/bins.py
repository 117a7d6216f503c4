"""Bin-packing: which small files of a partition become one.

A file is small below three quarters of the target size, as Iceberg's own rewrite has it (`min-file-size-bytes`). A bin
is worth its rewriting in two cases. It is full: what comes of it is not small any more, and not rewritten again. Or it
has five files (`min-input-files`) of which none is larger than all others together: what comes of it is at least twice
as large as each of them, so that a row is rewritten once for each doubling, not once for each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

MIN_FILES = 5

MAX_FILES = 1000
"""A bin of more files would keep one task busy for long while others wait."""

_LOOK_BACK = 16
"""So many bins are open at a time. More would cost time, and put files together that were written long apart."""

_File = TypeVar("_File")


def is_small(size: int, target: int) -> bool:
    """Whether a file of `size` bytes is small for a target size in bytes."""
    return 4 * size < 3 * target


def bins(files: Iterable[_File], size_of: Callable[[_File], int], target: int) -> list[list[_File]]:
    """Return which of the files, all of one partition, should become one, in their order.

    Each file is put into the first open bin with room for it, so neighbours stay together.
    """
    open_bins: list[_Bin[_File]] = []
    full: list[_Bin[_File]] = []
    partial: list[_Bin[_File]] = []
    for file in files:
        size = size_of(file)
        if not is_small(size, target):
            continue
        bin_ = next((each for each in open_bins if each.bytes + size <= target), None)
        if bin_ is None:
            if len(open_bins) == _LOOK_BACK:
                partial.append(open_bins.pop(0))
            open_bins.append(bin_ := _Bin([], 0))
        bin_.files.append(file)
        bin_.bytes += size
        if not is_small(bin_.bytes, target):
            open_bins.remove(bin_)
            full.append(bin_)
        elif len(bin_.files) == MAX_FILES:
            open_bins.remove(bin_)
            partial.append(bin_)
    rest = [_without_the_largest(each.files, size_of) for each in (*partial, *open_bins)]
    return [each.files for each in full] + [each for each in rest if len(each) >= MIN_FILES]


@dataclass(eq=False, slots=True)
class _Bin(Generic[_File]):
    files: list[_File]
    bytes: int


def _without_the_largest(files: Iterable[_File], size_of: Callable[[_File], int]) -> list[_File]:
    """Return the files, in their order, without those that are larger than all smaller ones together."""
    kept = list(files)
    by_size = sorted(kept, key=size_of)
    total = sum(map(size_of, kept))
    while by_size and 2 * size_of(by_size[-1]) > total:
        total -= size_of(largest := by_size.pop())
        kept.remove(largest)
    return kept
