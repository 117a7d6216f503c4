"""The file of ids whose rows are erased: one id a line, in UTF-8, typed as a column is.

An id of which the column's type would make another value is refused, with the number of its line: messages never have
an id. Ids stay in memory, and Spark's jobs carry them: no file and no object has them. So their number is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.errors import ConfigError
from destination_datalake.files.ids import Ids, digests_of

_LINES = 65_536
_LONGEST = 64 * 1024
"""Bytes of a line, at most: what is longer is no file of ids."""

MAX_IDS = 1_000_000
MAX_BYTES = 64 * 1024 * 1024
"""Limits of a file."""

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

    def typed(self, type_: pa.DataType, column: str) -> Ids:
        """Return the ids as values of a column's type.

        Raises ConfigError for an id that the type cannot hold as it is, and for a type that ids cannot be of.
        """
        return Ids.of(pa.concat_arrays([pa.array([], type_), *self._typed(type_, column)]))

    def possible(self, type_: pa.DataType, column: str) -> Ids:
        """Return those of the ids that a column's type can hold as they are. Raises ConfigError as `typed` does."""
        parse, values = self._require_parser(type_, column), [pa.array([], type_)]
        for _, texts in self._blocks():
            blocks = [texts] if _all_exact(parse, texts) else [texts.slice(place, 1) for place in range(len(texts))]
            values += [parse(block)[0] for block in blocks if _all_exact(parse, block)]
        return Ids.of(pa.concat_arrays(values))

    def values(self, type_: pa.DataType, column: str) -> list[Any]:
        """Return the ids as Python values, which takes memory for each. Raises as `typed` does."""
        return [value for values in self._typed(type_, column) for value in values.to_pylist()]

    def digests(self, type_: pa.DataType, column: str, salt: bytes) -> Iterator[bytes]:
        """Yield the salted hash of each id (`files.ids.digests_of`). Raises as `typed` does."""
        for values in self._typed(type_, column):
            yield from digests_of(values, salt)

    def _require_parser(self, type_: pa.DataType, column: str) -> _Parse:
        if (parse := _parser(type_)) is None:
            raise ConfigError(f"--column {column}: a column of type {type_} has no values that could be ids.")
        return parse

    def _typed(self, type_: pa.DataType, column: str) -> Iterator[pa.Array[Any]]:
        """Yield blocks of ids as values, none of them null."""
        parse = self._require_parser(type_, column)
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
            if self.path.stat().st_size > MAX_BYTES:
                raise self._too_many()
            count = 0
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
                    if (count := count + len(ids)) > MAX_IDS:
                        raise self._too_many()
                    if ids:
                        yield np.array(numbers), self._texts(ids, numbers)
        except OSError as error:
            raise ConfigError(f"--ids-file {self.path} cannot be read: {error.strerror or error}.") from error

    def _too_many(self) -> ConfigError:
        return ConfigError(
            f"--ids-file {self.path}: it has more than {MAX_IDS:,} ids, or more than {MAX_BYTES // 1024**2} MiB. "
            "Divide it, and run the command once for each part. Nothing was done."
        )

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
    wrong = (place for place in range(len(texts)) if not _all_exact(parse, texts.slice(place, 1)))
    return int(lines[next(wrong, 0)])


def _all_exact(parse: _Parse, texts: pa.Array[Any]) -> bool:
    try:
        return bool(parse(texts)[1].all())
    except pa.ArrowException:
        return False


def _what(type_: pa.DataType) -> str:
    return next((text for is_, text in _NAMES if is_(type_)), f"values of type {type_}")
