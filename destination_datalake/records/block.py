"""Read a block of RECORD lines as Arrow columns, each with the strategy that its values need.

Arrow parses the block in C++ against an explicit schema, and rejects the whole block for one invalid value. A column
with such values is omitted from the schema: msgspec extracts its JSON texts from the lines, they are parsed together,
and only irregular texts go through the coercer, one by one.

Flat lines (`protocol.frames`) are read the same way, but have no envelope around their data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import compress
from operator import attrgetter
from typing import Any, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from msgspec import Raw

from destination_datalake.protocol.frames import Frame, line_bounds
from destination_datalake.protocol.json_text import can_be_member_name
from destination_datalake.records.decoded import (
    CHANGES_TYPE,
    ChangedRow,
    Decoded,
    ValueChange,
    change_lists,
    changes_array,
)
from destination_datalake.records.record import (
    EARLIEST_EMITTED,
    LATEST_EMITTED,
    SECONDS_BELOW,
    RawRecord,
    RecordLine,
    RejectedRecord,
    emitted_at,
    source_changes,
)
from destination_datalake.records.values.numbers import far_exponent
from destination_datalake.records.values.registry import NestedRules, rules_for
from destination_datalake.records.values.rules import (
    Coercer,
    Floats,
    Parsed,
    ReadStrategy,
    ScalarRules,
    SchemaMismatch,
    TypeRules,
    require,
)
from destination_datalake.schema.columns import has_whole_record
from destination_datalake.schema.types import Field, Struct

BLOCK_CHANGES = 50_000
"""Maximum number of changed values per block, or of one record. A block with more is read in parts."""

_MAX_IRREGULAR_SHARE = 1 / 16
"""Maximum share of a column's irregular texts. Above it, RAW_JSON is faster: it decodes every line, but only once."""

FEW_LINES = 64
"""Maximum number of lines on which strategies are tried, and that are read one by one if no strategy helps."""

_SMALL_BYTES = 64 * 1024
"""Maximum size of lines on which strategies are tried, unless it is a single line."""


class BlockChangesExceeded(Exception):
    """A block of several records has more than BLOCK_CHANGES changed values. It must be read in parts."""


class BlockReader:
    """Reads blocks with a strategy per column, and with NATIVE or RAW_JSON for the envelope.

    With a frame, all lines must be flat.
    """

    def __init__(
        self,
        columns: Sequence[ColumnReader],
        envelope: ReadStrategy = ReadStrategy.NATIVE,
        frame: Frame | None = None,
    ) -> None:
        self.columns = columns
        self.envelope = envelope
        self.frame = frame
        self._is_envelope_native = envelope is ReadStrategy.NATIVE
        self._data = [field for column in columns if (field := column.arrow_field) is not None]
        self._raw_keys = [column.field.source for column in columns if column.is_raw]
        self.is_whole = has_whole_record([column.field for column in columns])
        self._decodes_lines = bool(self._raw_keys) or not self._is_envelope_native

    @cached_property
    def _raw_values(self) -> _JsonTexts:
        shape = _data_of if self.frame is not None else _line_of
        return _WholeData(shape) if self.is_whole else _JsonTexts(self._raw_keys, shape)

    def read(self, block: bytes | memoryview) -> Decoded:
        """Read whole lines in UTF-8, each with a newline.

        Raises SchemaMismatch if a value needs another strategy, BlockChangesExceeded if the block must be read in
        parts, and RejectedRecord (only if the envelope is RAW_JSON) for a line that is not a record.
        """
        try:
            return self._read(block) if self.frame is None else self._read_flat(block, self.frame)
        except _REFUSALS as error:
            raise SchemaMismatch from error

    def adapted(self, block: bytes) -> BlockReader | None:
        """Return a reader with the strategies that the first refused piece of a refused block needs.

        Only the columns that cause the refusal get a slower strategy. Returns None if no strategy helps.
        """
        piece = _first_refused_piece(self, block)
        envelope = _envelope_for(piece, self.envelope)
        columns = _columns_for(piece, self.columns, envelope)
        return None if (envelope, columns) == (self.envelope, self.columns) else BlockReader(columns, envelope)

    def _read(self, block: bytes | memoryview) -> Decoded:
        type_ = record_type(pa.struct(self._data), self._is_envelope_native)
        record = _parsed(block, [pa.field("record", type_)]).column("record").chunk(0)
        data = record.field("data")
        require(data.null_count == 0)
        raw = [line.record for line in self._raw_values.decoded(block)] if self._decodes_lines else []
        require(not self._decodes_lines or len(raw) == len(record))
        rows = _Rows(block, len(record), None)
        columns = self._read_columns(data.field, [raw_record.data for raw_record in raw], rows)
        if self._is_envelope_native:
            extracted = extracted_at(record.field("emitted_at"))
            reported = record.field("meta").field("changes")
        else:
            extracted = timestamps(pa.array([emitted_at(bytes(r.emitted_at)) for r in raw], pa.int64()))
            reported = change_lists(len(raw), enumerate(source_changes(bytes(r.meta)) for r in raw))
        changed = rows.changed()
        all_changes = _all_changes(reported, changed)
        return Decoded(extracted, columns, all_changes, changed, lines=rows, line_numbers=np.arange(len(record)))

    def _read_flat(self, block: bytes | memoryview, frame: Frame) -> Decoded:
        table = _parsed(block, [pa.field(frame.key, pa.int64()), *self._data])
        emitted = table.column(frame.key).chunk(0)
        require(emitted.null_count == 0)  # A flat line has the key once: so each record is one line.
        raw = self._raw_values.decoded(block) if self._raw_keys else []
        require(not self._raw_keys or len(raw) == len(emitted))
        rows = _Rows(block, len(emitted), frame)
        columns = self._read_columns(lambda source: table.column(source).chunk(0), raw, rows)
        changed = rows.changed()
        by_row = [(changed_row.row, changed_row.changes) for changed_row in changed]
        changes = change_lists(len(emitted), by_row) if changed else None
        line_numbers = np.arange(len(emitted))
        return Decoded(extracted_at(emitted), columns, changes, changed, lines=rows, line_numbers=line_numbers)

    def _read_columns(self, values: Callable[[str], Any], data: Sequence[Any], rows: _Rows) -> list[Any]:
        """Return the columns, from the values that Arrow read, by source, or from the JSON texts in decoded data."""
        return [
            column.from_json(self._raw_values.texts(data, column.field.source), rows)
            if column.is_raw
            else column.from_arrow(values(column.field.source), rows)
            for column in self.columns
        ]


# --- The envelope ---------------------------------------------------------------------------------------------------


def record_type(data: pa.StructType, with_envelope: bool) -> pa.StructType:
    """Return the type of `record`: its data, and with an envelope also the other members."""
    fields: list[pa.Field[Any]] = [pa.field("data", data)]
    if with_envelope:
        meta = pa.struct([pa.field("changes", CHANGES_TYPE)])
        fields += [pa.field("emitted_at", pa.int64()), pa.field("meta", meta)]
    return pa.struct(fields)


def extracted_at(emitted: Any) -> pa.Array[Any]:
    """Return an array of `emitted_at` (int64) as timestamp[us, UTC]. Raises SchemaMismatch if one is irregular."""
    if not len(emitted):
        return timestamps(emitted)
    bounds = pc.min_max(emitted)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    require(emitted.null_count == 0 and low >= EARLIEST_EMITTED // 1000 and high <= LATEST_EMITTED)
    if low < SECONDS_BELOW:
        in_seconds = pc.less(emitted, pa.scalar(SECONDS_BELOW))
        emitted = pc.if_else(in_seconds, pc.multiply(emitted, pa.scalar(1000)), emitted)
    return timestamps(emitted)


def timestamps(milliseconds: pa.Array[Any]) -> pa.Array[Any]:
    """Return milliseconds since 1970 (int64) as timestamp[us, UTC]."""
    return milliseconds.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))


def _all_changes(reported: Any, changed: Sequence[ChangedRow]) -> pa.Array[Any] | None:
    """Return the changes by row: first the source's, then the connector's. Return None without any."""
    entries = reported.flatten()
    require(entries.null_count == 0)
    if not changed:
        if not len(entries):
            return None
        # A null list has equal offsets, so that without its mask it is an empty list.
        return changes_array(reported.offsets, reported.values)
    sources = enumerate(reported.to_pylist()) if len(entries) else ()
    by_row = {row: [ValueChange(**entry) for entry in entries] for row, entries in sources if entries}
    for row, _, changes in changed:
        by_row[row] = [*by_row.get(row, ()), *changes]
    return change_lists(len(reported), sorted(by_row.items()))


# --- Arrow's JSON parser --------------------------------------------------------------------------------------------

_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of Arrow and msgspec for a block that does not match the requested schema."""


def _parsed(block: bytes | memoryview, members: Sequence[pa.Field[Any]]) -> Any:
    """Return members of the block's objects as a table with one chunk. Raises one of `_REFUSALS`, or SchemaMismatch."""
    require(not any(_holds_decimals(member.type) for member in members) or not far_exponent(block))
    options = pj.ParseOptions(explicit_schema=pa.schema(members), unexpected_field_behavior="ignore")
    source: Any = pa.BufferReader(pa.py_buffer(block))
    # With a block size above the input's size, Arrow returns one chunk.
    read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pj.read_json(source, read, options)


def _holds_decimals(type_: pa.DataType) -> bool:
    """Return whether Arrow parses decimals of the type. Decimals in strings are checked by a pattern instead."""
    children = (type_.field(i).type for i in range(type_.num_fields))
    return pa.types.is_decimal(type_) or any(map(_holds_decimals, children))


def _parsed_texts(texts: Sequence[str], rules: TypeRules) -> Any:
    """Return JSON texts as `rules.arrow_type`. Raises one of `_REFUSALS`, or SchemaMismatch, if one is irregular."""
    if not texts:
        return pa.array([], rules.arrow_type)
    native = rules.read_type(ReadStrategy.NATIVE)
    if native is None:
        raise SchemaMismatch
    block = ('{"v":' + '}\n{"v":'.join(texts) + "}\n").encode()
    array = _parsed(block, [pa.field("v", native)]).column("v").chunk(0)
    require(len(array) == len(texts))
    return rules.conform(array)


# --- A column -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """Reads a column by the first of its strategies. The others are for values that it does not accept."""

    field: Field
    rules: TypeRules
    coercer: Coercer
    strategies: tuple[ReadStrategy, ...]

    @classmethod
    def of(cls, field: Field, floats: Floats) -> Self:
        """Return a reader with all possible strategies for the column, fastest first."""
        # The column is wrapped in a struct, because its key also decides whether Arrow can read it.
        strategies = rules_for(Struct((field,)), Floats.ANY).strategies
        rules = rules_for(field.type, floats)
        return cls(field, rules, rules.coercer(field.source), strategies)

    @property
    def strategy(self) -> ReadStrategy:
        """The current strategy."""
        return self.strategies[0]

    def with_next_strategy(self) -> Self | None:
        """Return a reader with the next strategy; None if there is none."""
        return replace(self, strategies=self.strategies[1:]) if len(self.strategies) > 1 else None

    @property
    def is_raw(self) -> bool:
        """Whether the column is read from JSON texts, not by Arrow."""
        return self.strategy is ReadStrategy.RAW_JSON

    @property
    def arrow_field(self) -> pa.Field[Any] | None:
        """The field for Arrow's JSON parser; None if it does not read the column."""
        type_ = self.rules.read_type(self.strategy)
        return None if type_ is None else pa.field(self.field.source, type_)

    def from_arrow(self, array: Any, rows: _Rows) -> Any:
        """Return the values that Arrow read. Irregular values, if there are few, are coerced from their lines."""
        if isinstance(self.rules, ScalarRules) and self.rules.is_unparsed(array):
            parsed = self.rules.parse_vectorised(array)
            require(parsed.irregular is None or parsed.irregular.sum().as_py() <= len(array) * _MAX_IRREGULAR_SHARE)
            return self._completed(parsed, lambda row: _text_of(self.field.source, rows[row]), rows)
        return self.rules.conform(array)

    def from_json(self, raws: Sequence[Raw], rows: _Rows) -> Any:
        """Return the values of JSON texts, which are empty for absent values."""
        texts = _texts_of(raws)
        match self.rules:
            case ScalarRules():
                return self._completed(self.rules.parse_json(texts), lambda row: texts[row].as_py().encode(), rows)
            case NestedRules() if ReadStrategy.NATIVE in self.rules.strategies:
                return self._from_nested_json(self.rules, texts, rows)
        return self._coerced(enumerate(texts.to_pylist()), rows)

    def _from_nested_json(self, rules: NestedRules, texts: Any, rows: _Rows) -> Any:
        """Return objects and lists: Arrow parses texts of the right shape together, others are coerced one by one."""
        all_texts = ["null" if text is None else text for text in texts.to_pylist()]
        regular = np.fromiter(map(rules.shape_filter, all_texts), np.bool_, len(all_texts))
        regular |= texts.is_null().to_numpy(False)
        try:
            values = _parsed_texts([*compress(all_texts, regular)], rules)
        except (SchemaMismatch, *_REFUSALS):
            return self._coerced(enumerate(texts.to_pylist()), rows)
        irregular = np.flatnonzero(~regular)
        if not len(irregular):
            return values
        coerced = self._coerced(((row, all_texts[row]) for row in irregular.tolist()), rows)
        order = np.argsort(np.concatenate([np.flatnonzero(regular), irregular]))
        return pa.concat_arrays([values, coerced]).take(pa.array(order))

    def _coerced(self, texts: Iterable[tuple[int, str | None]], rows: _Rows) -> Any:
        values = [rows.coerce(row, text.encode(), self.coercer) if text else None for row, text in texts]
        return pa.array(values, self.rules.arrow_type)

    def _completed(self, parsed: Parsed, json_text: Callable[[int], bytes], rows: _Rows) -> pa.Array[Any]:
        """Return the values; coerce irregular texts."""
        values, irregular = parsed
        if irregular is None:
            return values
        numbers: Any = pc.indices_nonzero(irregular).to_pylist()
        coerced = pa.array([rows.coerce(row, json_text(row), self.coercer) for row in numbers], values.type)
        completed: pa.Array[Any] = pc.replace_with_mask(values, irregular, coerced)
        return completed


# --- Strategies -----------------------------------------------------------------------------------------------------


def _first_refused_piece(reader: BlockReader, block: bytes) -> bytes:
    """Return the first small piece of lines that causes the refusal of a block.

    Reading a refused piece takes as long as reading an accepted one, and the first refused line is usually near the
    beginning. So the pieces start small and double in size, and then the refused piece is halved.
    """
    start = end = 0
    size = _SMALL_BYTES
    while end < len(block):
        start, end, size = end, _line_end(block, end + size), size * 2
        if end < len(block) and _refused(reader, block[start:end]):
            break
    piece = block[start:end]
    while not _is_small(piece):
        first, second = halves(piece)
        piece = first if _refused(reader, first) else second
    return piece


def _envelope_for(piece: bytes, present: ReadStrategy) -> ReadStrategy:
    """Return the strategy for the envelope that accepts the piece; the present one if none does."""
    strategies = dict.fromkeys((present, ReadStrategy.RAW_JSON))
    return next((strategy for strategy in strategies if not _refused(BlockReader([], strategy), piece)), present)


def _columns_for(piece: bytes, present: Sequence[ColumnReader], envelope: ReadStrategy) -> list[ColumnReader]:
    """Return each column with the first strategy that accepts the piece; with its present one if none does."""
    columns = [*present]
    refused = _refused_columns(piece, columns, range(len(columns)), envelope)
    while refused:
        trials = {index: columns[index].with_next_strategy() for index in refused}
        for index, trial in trials.items():
            columns[index] = trial or present[index]
        refused = _refused_columns(piece, columns, [index for index in refused if trials[index]], envelope)
    return columns


def _refused_columns(
    piece: bytes, columns: Sequence[ColumnReader], indexes: Sequence[int], envelope: ReadStrategy
) -> list[int]:
    """Return the indexes of the columns that cause a refusal, found by bisection."""
    if not indexes or not _refused(BlockReader([columns[index] for index in indexes], envelope), piece):
        return []
    if len(indexes) == 1:
        return [*indexes]
    parts = indexes[: len(indexes) // 2], indexes[len(indexes) // 2 :]
    return [index for part in parts for index in _refused_columns(piece, columns, part, envelope)]


def _refused(reader: BlockReader, block: bytes) -> bool:
    try:
        reader.read(block)
    except (SchemaMismatch, RejectedRecord):
        return True
    except BlockChangesExceeded:
        return False  # The block will be read in parts, which are checked then.
    return False


def _is_small(block: bytes) -> bool:
    lines = block.count(b"\n")
    return lines == 1 or (lines <= FEW_LINES and len(block) <= _SMALL_BYTES)


def _line_end(block: bytes, at: int) -> int:
    """Return the end of the line at this position, at most the block's end."""
    return block.find(b"\n", at) + 1 or len(block)


def halves(block: bytes) -> tuple[bytes, bytes]:
    """Split a block of several lines into two parts of whole lines, of about the same size."""
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, len(block) - 1) + 1
    return block[:middle], block[middle:]


# --- Lines and JSON texts -------------------------------------------------------------------------------------------


class _Rows:
    """The records of a block: their lines as received, and the changes of their values.

    Lines are located on the first access, because most blocks need none.
    """

    def __init__(self, block: bytes | memoryview, count: int, frame: Frame | None) -> None:
        self._block = memoryview(block)
        self._count = count
        self._frame = frame
        self._changes: dict[int, list[ValueChange]] = {}
        self._changed_values = 0

    @cached_property
    def _bounds(self) -> Any:
        text = np.frombuffer(self._block, np.uint8)
        starts, ends = line_bounds(text)
        one_each = len(ends) == self._count and (self._frame is not None or (text[starts] == _BRACE).all())
        return (starts, ends) if one_each else None

    @cached_property
    def _documents(self) -> Sequence[bytes]:
        # A line may be blank, and another one may have two records.
        documents = [bytes(text) for text in _ANY_JSON.decode_lines(self._block)]
        require(len(documents) == self._count)
        return documents

    def __getitem__(self, row: int) -> bytes:
        """Return the line of a row."""
        if self._bounds is None:
            return self._documents[row]
        starts, ends = self._bounds
        line = bytes(self._block[starts[row] : ends[row]])
        return line if self._frame is None else self._frame.restored_line(line)

    def coerce(self, row: int, raw: bytes, coercer: Coercer) -> Any:
        """Coerce a JSON text of this row, and record the changes. Raises BlockChangesExceeded."""
        changes = self._changes.get(row, [])
        before = len(changes)
        value = coercer(raw, changes)
        if len(changes) != before:
            self._changes[row] = changes
            self._changed_values += len(changes) - before
            if self._changed_values > BLOCK_CHANGES and self._count > 1:
                raise BlockChangesExceeded
        return value

    def changed(self) -> tuple[ChangedRow, ...]:
        """Return the rows with changes, in order."""
        return tuple(ChangedRow(row, self[row], changes) for row, changes in sorted(self._changes.items()))


_BRACE = ord("{")
_ANY_JSON = msgspec.json.Decoder(Raw)


class _JsonTexts:
    """Extracts the JSON texts of some keys of the data of lines. `shape` returns the type of a line, given its data's.

    msgspec decodes a line to a struct whose fields are `Raw`: slices of the line that are not decoded.
    """

    def __init__(self, sources: Sequence[str], shape: Callable[[Any], Any]) -> None:
        if all(map(can_be_member_name, sources)):
            members = [(f"f{i}", Raw, msgspec.field(name=source, default=Raw())) for i, source in enumerate(sources)]
            data: Any = msgspec.defstruct("Data", members, gc=False)
            self._getters: dict[str, Callable[[Any], Raw]] = {
                source: attrgetter(f"f{i}") for i, source in enumerate(sources)
            }
        else:
            data = dict[str, Raw]
            self._getters = {source: partial(_member, source) for source in sources}
        self._decoder: Any = msgspec.json.Decoder(shape(data))

    def decoded(self, block: bytes | memoryview) -> list[Any]:
        """Decode whole lines to their shape. Raises msgspec's errors."""
        lines: list[Any] = self._decoder.decode_lines(block)
        return lines

    def texts(self, data: Sequence[Any], source: str) -> list[Raw]:
        """Return the JSON texts of one key of these data, empty for absent ones."""
        return [*map(self._getters[source], data)]


class _WholeData(_JsonTexts):
    """Extracts the JSON texts of the whole data of lines."""

    def __init__(self, shape: Callable[[Any], Any]) -> None:
        self._decoder = msgspec.json.Decoder(shape(Raw))

    def texts(self, data: Sequence[Any], source: str) -> list[Raw]:  # noqa: ARG002
        """Return the JSON texts of these data."""
        return [*data]


def _line_of(data: Any) -> Any:
    return RecordLine[RawRecord[data]]


def _data_of(data: Any) -> Any:
    return data


_ABSENT = Raw()


def _member(source: str, data: Any) -> Raw:
    text: Raw = data.get(source, _ABSENT)
    return text


@lru_cache(maxsize=4096)
def _decoder_of_one(source: str) -> _JsonTexts:
    return _JsonTexts([source], _line_of)


def _text_of(source: str, line: bytes) -> bytes:
    """Return the JSON text of one value of a record; empty if absent."""
    decoder = _decoder_of_one(source)
    return bytes(decoder.texts([record_line.record.data for record_line in decoder.decoded(line)], source)[0])


def _texts_of(raws: Sequence[Any]) -> Any:
    """Return JSON texts as strings; empty texts and `null` are null. Raises ArrowInvalid if a text is not UTF-8."""
    # A string array consists of offsets and the concatenated texts.
    offsets = np.zeros(len(raws) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, raws), np.int32, len(raws)), out=offsets[1:])
    array: Any = pa.StringArray.from_buffers(len(raws), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(raws)))
    array.validate(full=True)
    nothing = pc.or_(pc.equal(array, pa.scalar("")), pc.equal(array, pa.scalar("null")))
    return pc.if_else(nothing, None, array) if pc.any(nothing).as_py() else array
