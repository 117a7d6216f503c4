"""The rules that reading one type of column takes. A type family is a module that states them side by side.

The law between them: what the vectorised rules take, they turn into exactly what `coerce` makes of it. They may take
less: a text that they do not take is irregular, costs a call of `coerce`, and is never wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.records.changes import Floats, Value, ValueChange
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.narrowest import widest
from destination_datalake.schema.types import ColumnType


class ReadStrategy(Enum):
    """How the values of a column are read; each strategy takes all that the one before it takes."""

    NATIVE = "Arrow's JSON parser reads the values"
    TEXT = "Arrow's JSON parser reads the numbers as strings: protocol v1 sends them so"
    RAW_JSON = "msgspec cuts the values' JSON texts out of the lines"


class BlockRefused(Exception):
    """A block holds values that cannot be read with the present strategies."""


def require(condition: bool) -> None:
    """Raise BlockRefused unless the condition holds."""
    if not condition:
        raise BlockRefused


class Parsed(NamedTuple):
    """Values as the `arrow_type` of their rules, null where `irregular` is true: such texts are left to `coerce`."""

    values: pa.Array[Any]
    irregular: pa.Array[Any] | None


class TypeRules(ABC):
    """How the values of one column type are read: by Arrow together, or one by one."""

    arrow_type: pa.DataType
    """What the values are read as, with numbers as wide as they can become."""

    native_type: pa.DataType | None
    """What Arrow's JSON parser is asked for; None if it cannot read the type."""

    text_type: pa.DataType | None
    """What Arrow's JSON parser is asked for where numbers are sent as strings."""

    shape: Any
    """The type that msgspec checks a value inside an object or a list for, before Arrow parses it."""

    def __init__(self, type_: ColumnType, floats: Floats) -> None:
        self.arrow_type = arrow_type(widest(type_))
        self.floats = floats

    @abstractmethod
    def conform(self, array: Any) -> Any:
        """Return what Arrow read, as `arrow_type`. Raises BlockRefused, or ArrowInvalid, if a value is irregular."""

    @abstractmethod
    def coerce(self, raw: bytes, changes: list[ValueChange]) -> Value:
        """Return the value of one JSON text: the careful rule, a `Coercer`."""

    def read_type(self, strategy: ReadStrategy) -> pa.DataType | None:
        """Return what Arrow's JSON parser is asked for with this strategy; None if it does not read the values."""
        return {ReadStrategy.NATIVE: self.native_type, ReadStrategy.TEXT: self.text_type}.get(strategy)

    @cached_property
    def strategies(self) -> tuple[ReadStrategy, ...]:
        """The strategies for the type, fastest first."""
        if self.native_type is None:
            return (ReadStrategy.RAW_JSON,)
        has_numbers = self.text_type != self.native_type  # They may be sent as strings.
        return tuple(ReadStrategy) if has_numbers else (ReadStrategy.NATIVE, ReadStrategy.RAW_JSON)


class ScalarRules(TypeRules):
    """Rules for values without values inside."""

    canonical: str
    """A pattern (RE2) of texts that Arrow casts to the very value that `coerce` gives."""

    def conform(self, array: Any) -> Any:
        """Return strings parsed, all else as it is. Raises BlockRefused, or ArrowInvalid, if a value is irregular."""
        if not self.is_unparsed(array):
            return self.verified(array)
        parsed = self.parse_vectorised(array)
        require(parsed.irregular is None)
        return parsed.values

    def is_unparsed(self, array: Any) -> bool:
        """Whether Arrow read strings that are yet to become the type's values."""
        return pa.types.is_string(array.type) and array.type != self.arrow_type

    def verified(self, array: Any) -> Any:
        """Return values that Arrow's JSON parser read. Raises as `conform` does where the parser is too lenient."""
        return array

    def parse_vectorised(self, texts: Any) -> Parsed:
        """Return the values of an array of strings; null is null."""
        values = self.parse_all(texts)
        if values is not None:
            return Parsed(values, None)
        canonical: Any = pc.match_substring_regex(texts, self.canonical)
        if pc.all(canonical).as_py() is not False:
            return Parsed(self.cast(texts), None)
        return Parsed(self.cast(pc.if_else(canonical, texts, None)), pc.fill_null(pc.invert(canonical), False))

    def parse_all(self, texts: Any) -> Any:  # noqa: ARG002
        """Return the values if a cast alone is known to give them; None if the texts have to be looked at."""
        return None

    def cast(self, texts: Any) -> Any:
        """Return the values of canonical texts."""
        return texts.cast(self.arrow_type)

    def parse_json(self, texts: Any) -> Parsed:
        """Return the values of an array of JSON texts; null is null."""
        # The text of a string without escapes is its content; a number needs no quotes to be one.
        return self.parse_vectorised(pc.ascii_trim(texts, characters='"'))
