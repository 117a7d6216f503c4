"""The file of ids whose rows are erased: one id a line, in UTF-8, any number of them, typed as a column is.

An id of which the column's type would make another value is refused, with the number of its line: messages never have
an id. Memory is bounded: ids are divided among the parts of an index by their hashes, on a disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.errors import ConfigError
from destination_datalake.files.dedup.index import bounds_of
from destination_datalake.files.dedup.keys import canonical_keys, key_hashes, one_array, part_numbers
from destination_datalake.files.dedup.tasks import KeyBounds
from destination_datalake.files.ids import Ids, digests_of, ranges_of, write_ids

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_LINES = 65_536
_LONGEST = 64 * 1024
"""Bytes of a line, at most: what is longer is no file of ids."""

_PART_BYTES = 16 * 1024 * 1024
"""About so many bytes of the file make one part of the index."""

_MOST_PARTS = 512
_BOM = b"\xef\xbb\xbf"

_NAMES = (
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "whole numbers, as 1 or -1, within the range of the column"),
    (pa.types.is_floating, "numbers that the column holds as they are"),
    (pa.types.is_decimal, "numbers with no more digits than the column has"),
    (pa.types.is_date, "dates, as 2000-12-31"),
    (pa.types.is_timestamp, "times, as 2000-12-31T23:59:59Z (with a zone if the column has one, else without)"),
    (pa.types.is_time, "times of day, as 12:00:00"),
)


@dataclass(frozen=True, slots=True)
class IdsFile:
    """A file of ids. An empty line is no id; a carriage return before the line's end is not part of it, spaces are."""

    path: Path

    def require(self) -> int:
        """Return how many ids there are. Raises ConfigError if there are none, or the file cannot be read as one."""
        count = sum(len(block) for _, block in self._blocks())
        if not count:
            raise ConfigError(f"--ids-file {self.path}: it has no ids. Nothing was done.")
        return count

    def typed(self, type_: pa.DataType, column: str, folder: str, access: AwsAccess) -> Ids:
        """Return the ids as values of a column's type; an index that is not small lies in `folder`.

        `folder` is a URI, `file:` or `s3:`, without a slash at its end. Raises ConfigError for an id that the type
        cannot hold as it is, and for a type that ids cannot be of; and errors of AWS.
        """
        parts = min(_MOST_PARTS, max(1, -(-self.path.stat().st_size // _PART_BYTES)))
        if parts == 1:
            blocks = [*self._typed(type_, column)]
            values = _distinct(pa.concat_arrays(blocks) if blocks else pa.array([], type_))
            if not len(values):
                return Ids(type_, 0, (), (), access)
            part = write_ids(canonical_keys([values]), 0, 1, folder, access)
            return Ids(type_, len(values), (part,), ranges_of(values), access)
        return self._divided(type_, column, parts, folder, access)

    def values(self, type_: pa.DataType, column: str) -> list[Any]:
        """Return the ids as Python values, which takes memory for each. Raises as `typed` does."""
        return [value for values in self._typed(type_, column) for value in values.to_pylist()]

    def digests(self, type_: pa.DataType, column: str, salt: bytes) -> Iterator[bytes]:
        """Yield the salted hash of each id (`files.ids.digests_of`). Raises as `typed` does."""
        for values in self._typed(type_, column):
            yield from digests_of(values, salt)

    def _divided(self, type_: pa.DataType, column: str, parts: int, folder: str, access: AwsAccess) -> Ids:
        """Write one part of the index at a time, from files on the disk that have the ids of each."""
        lowest_highest: list[KeyBounds] = []
        with tempfile.TemporaryDirectory() as scratch, ExitStack() as files:
            schema = pa.schema([pa.field("id", type_)])
            paths = [Path(scratch) / str(number) for number in range(parts)]
            writers = [files.enter_context(pa.ipc.new_file(str(path), schema)) for path in paths]
            for values in self._typed(type_, column):
                numbers = part_numbers(key_hashes(canonical_keys([values])), parts)
                lowest_highest.append(bounds_of(values))
                for number in np.unique(numbers).tolist():
                    chosen = pa.array(np.flatnonzero(numbers == number), pa.int64())
                    writers[number].write_batch(pa.RecordBatch.from_arrays([values.take(chosen)], schema=schema))
            files.close()
            index, count = [], 0
            for number, path in enumerate(paths):
                with pa.ipc.open_file(str(path)) as part:
                    values = _distinct(one_array(part.read_all().column(0)))
                if len(values):
                    count += len(values)
                    index.append(write_ids(canonical_keys([values]), number, parts, folder, access))
        return Ids(type_, count, tuple(index), (_around(lowest_highest),), access)

    def _typed(self, type_: pa.DataType, column: str) -> Iterator[pa.Array[Any]]:
        """Yield blocks of ids as values, none of them null."""
        parse = _parser(type_)
        if parse is None:
            raise ConfigError(f"--column {column}: a column of type {type_} has no values that could be ids.")
        for lines, texts in self._blocks():
            try:
                values, exact = parse(texts)
            except pa.ArrowException:
                exact = None
            if exact is None or not exact.all():
                raise ConfigError(
                    f"--ids-file {self.path}, line {_first_refused(parse, texts, lines)}: this is no value of column "
                    f"{column}, which has {_what(type_)}. Nothing was changed."
                ) from None
            yield values

    def _blocks(self) -> Iterator[tuple[np.ndarray[Any, Any], pa.Array[Any]]]:
        """Yield ids as they are in the file, and the numbers of their lines, from 1."""
        try:
            with self.path.open("rb") as file:
                lines = enumerate(iter(lambda: file.readline(_LONGEST + 1), b""), 1)
                while block := list(islice(lines, _LINES)):
                    numbers, ids = [], []
                    for number, line in block:
                        if len(line) > _LONGEST:
                            raise ConfigError(f"--ids-file {self.path}, line {number}: the line is longer than 64 KiB.")
                        id_ = line.removeprefix(_BOM) if number == 1 else line
                        id_ = id_.removesuffix(b"\n").removesuffix(b"\r")
                        if id_:
                            numbers.append(number)
                            ids.append(id_)
                    if ids:
                        yield np.array(numbers), self._texts(ids, numbers)
        except OSError as error:
            raise ConfigError(f"--ids-file {self.path} cannot be read: {error.strerror or error}.") from error

    def _texts(self, ids: list[bytes], numbers: list[int]) -> pa.Array[Any]:
        array: Any = pa.array(ids, pa.binary())
        try:
            texts: pa.Array[Any] = array.cast(pa.string())
        except pa.ArrowInvalid:
            for number, id_ in zip(numbers, ids, strict=True):
                try:
                    id_.decode()
                except UnicodeDecodeError:
                    raise ConfigError(f"--ids-file {self.path}, line {number}: the line is not UTF-8.") from None
            raise
        return texts


_Parse = Callable[["pa.Array[Any]"], "tuple[pa.Array[Any], Any]"]
"""Returns values of texts, and a mask of those that say the same as their text. Raises Arrow's errors."""


def _parser(type_: pa.DataType) -> _Parse | None:
    types = pa.types
    if types.is_string(type_) or types.is_large_string(type_):
        return lambda texts: (texts.cast(type_), np.ones(len(texts), np.bool_))
    if types.is_integer(type_) or types.is_boolean(type_) or types.is_date32(type_):
        return lambda texts: _if_same_text(texts, type_)
    if types.is_floating(type_):
        return lambda texts: _if_same_number(texts, type_)
    if types.is_decimal(type_) or types.is_timestamp(type_) or types.is_time(type_):
        return lambda texts: (texts.cast(type_), np.ones(len(texts), np.bool_))
    return None


def _if_same_text(texts: pa.Array[Any], type_: pa.DataType) -> tuple[pa.Array[Any], Any]:
    values: Any = texts.cast(type_)
    same: Any = pc.equal(values.cast(pa.string()), texts)
    return values, same.to_numpy(zero_copy_only=False)


def _if_same_number(texts: pa.Array[Any], type_: pa.DataType) -> tuple[pa.Array[Any], Any]:
    """A float is written with the fewest digits that tell it from others: that number must be the text's."""
    values: Any = texts.cast(type_)
    written: Any = values.cast(pa.string())
    pairs: Any = zip(written.to_pylist(), texts.to_pylist(), strict=True)
    return values, np.array([_same(*pair) for pair in pairs], np.bool_)


def _same(written: str, text: str) -> bool:
    try:
        number = Decimal(text)
        return number.is_finite() and number == Decimal(written)
    except InvalidOperation:
        return False


def _first_refused(parse: _Parse, texts: pa.Array[Any], lines: np.ndarray[Any, Any]) -> int:
    for place in range(len(texts)):
        try:
            if parse(texts.slice(place, 1))[1].all():
                continue
        except pa.ArrowException:
            pass
        return int(lines[place])
    return int(lines[0])


def _what(type_: pa.DataType) -> str:
    return next((text for is_, text in _NAMES if is_(type_)), f"values of type {type_}")


def _distinct(values: pa.Array[Any]) -> pa.Array[Any]:
    distinct: Any = pc.unique(values)
    return one_array(distinct)


def _around(bounds: list[KeyBounds]) -> KeyBounds:
    """Return bounds around those of all blocks; unknown ones have no order, and stand for all."""
    known = [each for each in bounds if isinstance(each.lowest, type(bounds[0].lowest))]
    if len(known) < len(bounds) or bounds[0].lowest is ...:
        return KeyBounds(..., ..., has_null=False, has_nan=False)
    return KeyBounds(
        min(each.lowest for each in known), max(each.highest for each in known), has_null=False, has_nan=False
    )
