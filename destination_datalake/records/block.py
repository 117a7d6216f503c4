"""One block of record lines as Arrow columns, each read with the strategy that its values have been found to need.

Arrow parses the block in C++ against an explicit schema, and refuses all of it for one value that it does not take. A
column with such values is left out of that schema: msgspec cuts its JSON texts out of the lines, they are parsed
together, and only those that are irregular go through the coercer, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.records.arrow_json import REFUSALS, parse_member, parse_texts
from destination_datalake.records.changes import Coercer, Floats, ValueChange, change_lists, changes_array
from destination_datalake.records.envelope import emitted_at, extracted_at, record_type, source_changes, timestamps
from destination_datalake.records.raw_values import Lines, RawValueDecoder, text_of, texts_of
from destination_datalake.records.values.nested import NestedRules
from destination_datalake.records.values.registry import coercers, rules_for
from destination_datalake.records.values.rules import (
    BlockRefused,
    Parsed,
    ReadStrategy,
    ScalarRules,
    TypeRules,
    require,
)
from destination_datalake.schema.types import Field

BLOCK_CHANGES = 50_000
"""The most changed values that are kept at a time, or those of one record: a block with more is read in parts."""

_MOST_IRREGULAR = 1 / 16
"""The share of a column's texts that may be irregular before RAW_JSON is cheaper: it decodes every line, but once."""


class BlockChangesExceeded(Exception):
    """A block of several records has more than BLOCK_CHANGES changed values: it is to be read in parts."""


class RowChanges:
    """The changes of a block's values, by row. Raises BlockChangesExceeded."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._by_row: dict[int, list[ValueChange]] = {}
        self._count = 0

    def coerce(self, row: int, raw: bytes, coercer: Coercer) -> Any:
        """Return the value that the coercer makes of a JSON text of this row, and keep its changes."""
        changes = self._by_row.get(row, [])
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            self._by_row[row] = changes
            self._count += len(changes) - before
            if self._count > BLOCK_CHANGES and self._rows > 1:
                raise BlockChangesExceeded
        return value

    def in_order(self) -> list[tuple[int, list[ValueChange]]]:
        """Return the rows that have any, ascending."""
        return sorted(self._by_row.items())


class ChangedRow(NamedTuple):
    """A row with values that could not be kept as they were sent: its record's line, and the changes, at least one."""

    row: int
    line: bytes
    changes: Sequence[ValueChange]


class RowLines(Protocol):
    """Lines by row."""

    def __getitem__(self, row: int, /) -> bytes: ...


Places = range | np.ndarray[Any, np.dtype[np.int64]]
"""Numbers of lines, ascending, by row."""


def numbers_of(places: Places) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the numbers as an array; NumPy would ask a range for each of them."""
    return np.arange(places.start, places.stop) if isinstance(places, range) else places


class RefusedLine(NamedTuple):
    """A line whose record could not become a row. `reason` is a code; `message` quotes nothing of the line."""

    line: bytes
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """Records as columns, every array as long as there are rows.

    `extracted_at` is timestamp[us, UTC]. `columns` are as wide as they can become (integers 64 bit, floats double);
    what a file stores is decided later. `changes` are CHANGES_TYPE, None where no record has any: those that the source
    reports and ours. `changed` are the rows changed here, in order; `refused` the lines that became no rows. `lines`
    are the rows' lines, and `places` their numbers among all lines that were decoded, from 0.
    """

    extracted_at: pa.Array[Any]
    columns: Sequence[pa.Array[Any]]
    changes: pa.Array[Any] | None
    changed: Sequence[ChangedRow] = ()
    refused: Sequence[RefusedLine] = ()
    lines: RowLines = ()
    places: Places = range(0)

    @property
    def rows(self) -> int:
        """How many records."""
        return len(self.extracted_at)


class BlockReader:
    """Reads blocks for some columns, each with a strategy of its own, and the envelope NATIVE or RAW_JSON."""

    def __init__(
        self, columns: Sequence[Field], strategies: Sequence[ReadStrategy], envelope: ReadStrategy, floats: Floats
    ) -> None:
        self._columns = [
            _Column(column, rules_for(column.type, floats), strategy, coercer)
            for column, strategy, coercer in zip(columns, strategies, coercers(columns, floats), strict=True)
        ]
        self._is_envelope_native = envelope is ReadStrategy.NATIVE
        read = ((column.field.source, column.rules.read_type(column.strategy)) for column in self._columns)
        data = pa.struct([pa.field(source, type_) for source, type_ in read if type_ is not None])
        self._record = pa.field("record", record_type(data, self._is_envelope_native))
        self._raw_keys = [column.field.source for column in self._columns if column.strategy is ReadStrategy.RAW_JSON]
        self._decodes_lines = bool(self._raw_keys) or not self._is_envelope_native

    @cached_property
    def _raw_values(self) -> RawValueDecoder:
        return RawValueDecoder(self._raw_keys)

    def read(self, block: bytes | memoryview) -> Decoded:
        """Read whole lines, each ended by a newline, UTF-8 throughout.

        Raises BlockRefused if something in them needs another strategy, BlockChangesExceeded if they are to be read in
        parts, and RecordRefused (only where the envelope is RAW_JSON) for a line that is not a record.
        """
        try:
            return self._read(block)
        except REFUSALS as error:
            raise BlockRefused from error

    def _read(self, block: bytes | memoryview) -> Decoded:
        record = parse_member(block, self._record)
        data = record.field("data")
        require(data.null_count == 0)
        raw = self._raw_values.records(block) if self._decodes_lines else []
        require(not self._decodes_lines or len(raw) == len(record))
        row_changes = RowChanges(len(record))
        lines = Lines(block, len(record))
        columns = [
            column.from_json(texts_of(self._raw_values.texts(raw, column.field.source)), row_changes)
            if column.strategy is ReadStrategy.RAW_JSON
            else column.from_arrow(data.field(column.field.source), lines, row_changes)
            for column in self._columns
        ]
        if self._is_envelope_native:
            extracted = extracted_at(record.field("emitted_at"))
            reported = record.field("meta").field("changes")
        else:
            extracted = timestamps(pa.array([emitted_at(bytes(r.emitted_at)) for r in raw], pa.int64()))
            reported = change_lists(len(raw), enumerate(source_changes(bytes(r.meta)) for r in raw))
        changed = tuple(ChangedRow(row, lines[row], changes) for row, changes in row_changes.in_order())
        all_changes = _all_changes(reported, changed)
        return Decoded(extracted, columns, all_changes, changed, lines=lines, places=range(len(record)))


@dataclass(frozen=True, slots=True)
class _Column:
    """A column, the rules of its type, how it is read, and its coercer."""

    field: Field
    rules: TypeRules
    strategy: ReadStrategy
    coercer: Coercer

    def from_arrow(self, array: Any, lines: Lines, row_changes: RowChanges) -> Any:
        """Return the values of what Arrow read. Of irregular ones, if few, the JSON text is taken from its line."""
        if isinstance(self.rules, ScalarRules) and self.rules.is_unparsed(array):
            parsed = self.rules.parse_vectorised(array)
            require(parsed.irregular is None or parsed.irregular.sum().as_py() <= len(array) * _MOST_IRREGULAR)
            return self._completed(parsed, lambda row: text_of(self.field.source, lines[row]), row_changes)
        return self.rules.conform(array)

    def from_json(self, texts: Any, row_changes: RowChanges) -> Any:
        """Return the values of their JSON texts."""
        match self.rules:
            case ScalarRules():
                parsed = self.rules.parse_json(texts)
                return self._completed(parsed, lambda row: texts[row].as_py().encode(), row_changes)
            case NestedRules() if ReadStrategy.NATIVE in self.rules.strategies:
                return self._from_nested_json(self.rules, texts, row_changes)
        return self._coerced(enumerate(texts.to_pylist()), row_changes)

    def _from_nested_json(self, rules: NestedRules, texts: Any, row_changes: RowChanges) -> Any:
        """Objects and lists: Arrow reads those of the right shape, together; the others are coerced one by one."""
        all_texts = ["null" if text is None else text for text in texts.to_pylist()]
        regular = np.fromiter(map(rules.shape_filter, all_texts), np.bool_, len(all_texts))
        regular |= texts.is_null().to_numpy(False)
        try:
            values = parse_texts([*compress(all_texts, regular)], rules)
        except (BlockRefused, *REFUSALS):
            return self._coerced(enumerate(texts.to_pylist()), row_changes)
        irregular = np.flatnonzero(~regular)
        if not len(irregular):
            return values
        coerced = self._coerced(((row, all_texts[row]) for row in irregular.tolist()), row_changes)
        order = np.argsort(np.concatenate([np.flatnonzero(regular), irregular]))
        return pa.concat_arrays([values, coerced]).take(pa.array(order))

    def _coerced(self, texts: Iterable[tuple[int, str | None]], row_changes: RowChanges) -> Any:
        values = [row_changes.coerce(row, text.encode(), self.coercer) if text else None for row, text in texts]
        return pa.array(values, self.rules.arrow_type)

    def _completed(self, parsed: Parsed, json_text: Callable[[int], bytes], row_changes: RowChanges) -> pa.Array[Any]:
        """Return the values, with those of irregular texts coerced."""
        values, irregular = parsed
        if irregular is None:
            return values
        rows: Any = pc.indices_nonzero(irregular).to_pylist()
        coerced = pa.array([row_changes.coerce(row, json_text(row), self.coercer) for row in rows], values.type)
        completed: pa.Array[Any] = pc.replace_with_mask(values, irregular, coerced)
        return completed


def _all_changes(reported: Any, changed: Sequence[ChangedRow]) -> pa.Array[Any] | None:
    """Return the source's own changes by row, then ours; None when there are none at all."""
    entries = reported.flatten()
    require(entries.null_count == 0)
    if not changed:
        if not len(entries):
            return None
        # By its offsets a null list has nothing in it, so without a mask it is an empty one.
        return changes_array(reported.offsets, reported.values)
    sources = enumerate(reported.to_pylist()) if len(entries) else ()
    by_row = {row: [ValueChange(**entry) for entry in each] for row, each in sources if each}
    for row, _, changes in changed:
        by_row[row] = [*by_row.get(row, ()), *changes]
    return change_lists(len(reported), sorted(by_row.items()))
