"""Read the IDs to erase from a file, convert them to column types, and mask them in all output."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.errors import ConfigError
from destination_datalake.files.ids import Ids, digests_of

# --- Reading ----------------------------------------------------------------------------------------------------------
# The file contains one ID per line, in UTF-8. If the column's type cannot represent an ID exactly, the command fails.
#
# Messages contain the line number of an ID, but never the ID. The connector keeps the IDs in memory, and sends them to
# executors with Spark jobs. It never writes them to files or objects, so it limits the size of the file.

_LINES = 65_536
_MAX_LINE_BYTES = 64 * 1024
"""Maximum length of a line in the file of IDs, in bytes."""

MAX_IDS = 1_000_000
MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of the file of IDs, in bytes."""

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class IdsFile:
    """A file with the IDs to erase, one per line, in UTF-8.

    All methods skip empty lines. They ignore a carriage return at the end of a line, but spaces are part of the ID.
    """

    path: Path

    def require(self) -> int:
        """Return the number of IDs in the file. Raises ConfigError if the file is unreadable, invalid or empty."""
        count = sum(len(block) for _, block in self._blocks())
        if not count:
            raise ConfigError(
                f"--ids-file {self.path}: the file contains no IDs. Write one ID per line. Nothing was changed."
            )
        return count

    def typed(self, type_: pa.DataType, column: str) -> Ids:
        """Return the IDs as values of `type_`, the Arrow type of a column.

        Raises ConfigError if the type cannot represent an ID exactly, or if values of this type cannot be IDs. The
        message names `column`.
        """
        return Ids.from_array(pa.concat_arrays([pa.array([], type_), *self._typed(type_, column)]))

    def representable(self, type_: pa.DataType, column: str) -> Ids:
        """Return the IDs that the Arrow type `type_` can represent exactly, as values of this type. Skip all others.

        Raises ConfigError if values of this type cannot be IDs. The message names `column`.
        """
        (parse, _), values = _require_kind(type_, column), [pa.array([], type_)]
        for _, texts in self._blocks():
            is_exact = _all_exact(parse, texts, type_)
            blocks = [texts] if is_exact else [texts.slice(index, 1) for index in range(len(texts))]
            values += [parse(block, type_)[0] for block in blocks if _all_exact(parse, block, type_)]
        return Ids.from_array(pa.concat_arrays(values))

    def values(self, type_: pa.DataType, column: str) -> list[Any]:
        """Return the IDs as Python values, which need much more memory than Arrow values.

        Raises the same errors as `typed`.
        """
        return [value for values in self._typed(type_, column) for value in values.to_pylist()]

    def digests(self, type_: pa.DataType, column: str, salt: bytes) -> Iterator[bytes]:
        """Yield the salted hash of each ID as a value of `type_` (see `files.ids.digests_of`).

        Raises the same errors as `typed`.
        """
        for values in self._typed(type_, column):
            yield from digests_of(values, salt)

    def _typed(self, type_: pa.DataType, column: str) -> Iterator[pa.Array[Any]]:
        """Yield the IDs in blocks, as values of `type_` without nulls. Raises the same errors as `typed`."""
        parse, description = _require_kind(type_, column)
        for lines, texts in self._blocks():
            try:
                values, exact = parse(texts, type_)
            except pa.ArrowException:
                exact = None
            if exact is None or not exact.all():
                raise ConfigError(
                    f"--ids-file {self.path}, line {_first_invalid(parse, texts, type_, lines)}: invalid value for "
                    f"column {column}, which contains {description}. Correct the line. Nothing was changed."
                ) from None
            yield values

    def _blocks(self) -> Iterator[tuple[np.ndarray[Any, Any], pa.Array[Any]]]:
        """Yield the IDs in blocks: the line number of each ID, starting at 1, and the IDs as strings.

        Raises ConfigError if the file is unreadable, invalid or too large.
        """
        try:
            if self.path.stat().st_size > MAX_BYTES:
                raise self._too_many()
            count = 0
            with self.path.open("rb") as file:
                lines = enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES + 1), b""), 1)
                while block := list(islice(lines, _LINES)):
                    numbers, ids = [], []
                    for number, line in block:
                        if len(line) > _MAX_LINE_BYTES:
                            raise ConfigError(
                                f"--ids-file {self.path}, line {number}: the line exceeds the limit of 64 KiB. "
                                "Correct the line. Nothing was changed."
                            )
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
            raise ConfigError(
                f"Cannot read --ids-file {self.path}: {error.strerror or error}. Check the path."
            ) from error

    def _too_many(self) -> ConfigError:
        return ConfigError(
            f"--ids-file {self.path}: the file exceeds the limit of {MAX_IDS:,} IDs or {MAX_BYTES // 1024**2} MiB. "
            "Split the file, and run the command once for each part. Nothing was changed."
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
                    raise ConfigError(
                        f"--ids-file {self.path}, line {number}: the line is not valid UTF-8. Save the file as UTF-8. "
                        "Nothing was changed."
                    ) from None
            raise
        return texts


_Parse = Callable[["pa.Array[Any]", pa.DataType], "tuple[pa.Array[Any], Any]"]
"""A function that converts strings to values of a type. It returns the values, and an array of booleans that marks the
strings that it has converted exactly. It raises Arrow's errors for strings that it cannot convert."""


def _cast(texts: pa.Array[Any], type_: pa.DataType) -> tuple[pa.Array[Any], Any]:
    return texts.cast(type_), np.ones(len(texts), np.bool_)


def _parse_exact_text(texts: pa.Array[Any], type_: pa.DataType) -> tuple[pa.Array[Any], Any]:
    values: Any = texts.cast(type_)
    exact: Any = pc.equal(values.cast(pa.string()), texts)
    return values, exact.to_numpy(zero_copy_only=False)


def _parse_exact_number(texts: pa.Array[Any], type_: pa.DataType) -> tuple[pa.Array[Any], Any]:
    """Convert strings to floating-point numbers. Also return an array of booleans that marks the exact conversions.

    A conversion is exact if the shortest decimal form of the number is numerically equal to the string.
    """
    values: Any = texts.cast(type_)
    shortest: Any = values.cast(pa.string())
    pairs: Any = zip(shortest.to_pylist(), texts.to_pylist(), strict=True)
    return values, np.array([_is_same_number(*pair) for pair in pairs], np.bool_)


def _is_same_number(shortest: str, text: str) -> bool:
    try:
        number = Decimal(text)
        return number.is_finite() and number == Decimal(shortest)
    except InvalidOperation:
        return False


_KINDS: Sequence[tuple[Callable[[pa.DataType], bool], _Parse, str]] = (
    (pa.types.is_string, _cast, "strings"),
    (pa.types.is_large_string, _cast, "strings"),
    (pa.types.is_boolean, _parse_exact_text, "true or false"),
    (pa.types.is_integer, _parse_exact_text, "whole numbers within the range of the column, such as 1 or -1"),
    (pa.types.is_floating, _parse_exact_number, "numbers that the column can represent exactly"),
    (pa.types.is_decimal, _cast, "numbers with at most as many digits as the column allows"),
    (pa.types.is_date32, _parse_exact_text, "dates such as 2000-12-31"),
    (
        pa.types.is_timestamp,
        _cast,
        "timestamps such as 2000-12-31T23:59:59Z (without Z if the column's type has no time zone)",
    ),
    (pa.types.is_time, _cast, "times of day such as 12:00:00"),
)
"""The kinds of types whose values can be IDs. Each entry contains a function that recognizes the types, the function
that converts strings to their values, and a description of these values for messages."""


def _require_kind(type_: pa.DataType, column: str) -> tuple[_Parse, str]:
    """Return the conversion to a type, and a description of its values, from `_KINDS`.

    Raises ConfigError if values of this type cannot be IDs. The message names `column`.
    """
    for matches, parse, description in _KINDS:
        if matches(type_):
            return parse, description
    raise ConfigError(f"--column {column}: values of type {type_} cannot be IDs. Choose another column.")


def _first_invalid(parse: _Parse, texts: pa.Array[Any], type_: pa.DataType, lines: np.ndarray[Any, Any]) -> int:
    """Return the line number of the first string that `parse` cannot convert exactly.

    `lines` contains the line number of each string.
    """
    invalid = (index for index in range(len(texts)) if not _all_exact(parse, texts.slice(index, 1), type_))
    return int(lines[next(invalid, 0)])


def _all_exact(parse: _Parse, texts: pa.Array[Any], type_: pa.DataType) -> bool:
    try:
        return bool(parse(texts, type_)[1].all())
    except pa.ArrowException:
        return False


# --- Masks ------------------------------------------------------------------------------------------------------------
# Names of objects can contain IDs. A mask replaces these IDs in user-facing output and in the ledger.


@dataclass(slots=True)
class Mask:
    """Masks IDs in S3 URIs: path segments that equal an ID, and partition values that can reveal an ID.

    `column` is the name of the column with the IDs. `fields` contains the names, in lower case, of the partition fields
    whose values reveal values of this column. `dropped` contains the folders of dropped tables. In these folders, the
    mask replaces all partition values, because the partition fields of dropped tables are unknown.
    """

    column: str
    ids: Ids
    fields: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)

    def __call__(self, text: str) -> str:
        """Return the text, with the IDs masked in each S3 URI in the text."""
        return _URI.sub(lambda match: self.uri(match[0]), text)

    def uri(self, uri: str) -> str:
        """Return the URI with an ellipsis (…) in place of each ID."""
        is_dropped = uri.startswith(tuple(f"{folder}/" for folder in self.dropped))
        *start, path = uri.split("/", 3) if _URI.match(uri) else (uri,)
        segments = (self._segment(segment, is_dropped=is_dropped) for segment in path.split("/"))
        return "/".join((*start, *segments))

    def _segment(self, segment: str, *, is_dropped: bool) -> str:
        name, equals_sign, value = segment.partition("=")
        if not equals_sign:
            return "…" if self._is_id(segment) else segment
        field_name = unquote_plus(name).lower()
        leaf = self.column.rpartition(".")[2].lower()
        is_revealing = is_dropped or field_name in self.fields or leaf in field_name or self._is_id(value)
        return f"{name}=…" if is_revealing else segment

    def _is_id(self, text: str) -> bool:
        return bool(self.ids.contains(pa.array([text, unquote(text), unquote_plus(text)])).any())


_URI = re.compile(r"s3[an]?://\S+")
