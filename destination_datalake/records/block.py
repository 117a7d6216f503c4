"""A block of record lines as Arrow columns, each read with the strategy that its values have been found to need.

Arrow parses the block in C++ against an explicit schema, and refuses all of it for one value that it does not take. A
column with such values is left out of that schema: msgspec cuts its JSON texts out of the lines, they are parsed
together, and only those that are irregular go through the coercer, one by one.

Flat lines (`protocol.frames`) are read likewise, without an envelope around their data.
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
"""The most changed values that are kept at a time, or those of one record: a block with more is read in parts."""

_MOST_IRREGULAR = 1 / 16
"""The share of a column's texts that may be irregular before RAW_JSON is cheaper: it decodes every line, but once."""

FEW_LINES = 64
"""Up to this many lines, strategies are tried on, or lines are read one by one when no strategy helps."""

_SMALL = 64 * 1024
"""Bytes that are few enough to try strategies on; one line always is."""


class BlockChangesExceeded(Exception):
    """A block of several records has more than BLOCK_CHANGES changed values: it is to be read in parts."""


class BlockReader:
    """Reads blocks for some columns, each by a strategy of its own, and the envelope NATIVE or RAW_JSON.

    With a frame it reads lines that all are flat.
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
        self._data = [each for column in columns if (each := column.arrow_field) is not None]
        self._raw_keys = [column.field.source for column in columns if column.is_raw]
        self.is_whole = has_whole_record([column.field for column in columns])
        self._decodes_lines = bool(self._raw_keys) or not self._is_envelope_native

    @cached_property
    def _raw_values(self) -> _JsonTexts:
        shape = _data_of if self.frame is not None else _line_of
        return _WholeData(shape) if self.is_whole else _JsonTexts(self._raw_keys, shape)

    def read(self, block: bytes | memoryview) -> Decoded:
        """Read whole lines, each ended by a newline, UTF-8 throughout.

        Raises SchemaMismatch if something in them needs another strategy, BlockChangesExceeded if they are to be read
        in parts, and RejectedRecord (only where the envelope is RAW_JSON) for a line that is not a record.
        """
        try:
            return self._read(block) if self.frame is None else self._read_flat(block, self.frame)
        except _REFUSALS as error:
            raise SchemaMismatch from error

    def adapted(self, block: bytes) -> BlockReader | None:
        """Return a reader with the strategies that the first refused piece of a refused block needs.

        The columns that it is not refused for keep theirs, and their speed. None if no strategy helps.
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
        raw = [each.record for each in self._raw_values.decoded(block)] if self._decodes_lines else []
        require(not self._decodes_lines or len(raw) == len(record))
        rows = _Rows(block, len(record), None)
        columns = self._read_columns(data.field, [each.data for each in raw], rows)
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
        require(emitted.null_count == 0)  # A line has the key once: these are the records of one line each.
        raw = self._raw_values.decoded(block) if self._raw_keys else []
        require(not self._raw_keys or len(raw) == len(emitted))
        rows = _Rows(block, len(emitted), frame)
        columns = self._read_columns(lambda source: table.column(source).chunk(0), raw, rows)
        changed = rows.changed()
        changes = change_lists(len(emitted), [(row, own) for row, _, own in changed]) if changed else None
        line_numbers = np.arange(len(emitted))
        return Decoded(extracted_at(emitted), columns, changes, changed, lines=rows, line_numbers=line_numbers)

    def _read_columns(self, values: Callable[[str], Any], data: Sequence[Any], rows: _Rows) -> list[Any]:
        """Return the columns: of the values that Arrow has read, by source, or of the JSON texts in decoded data."""
        return [
            column.from_json(self._raw_values.texts(data, column.field.source), rows)
            if column.is_raw
            else column.from_arrow(values(column.field.source), rows)
            for column in self.columns
        ]


# --- The envelope ---------------------------------------------------------------------------------------------------


def record_type(data: pa.StructType, with_envelope: bool) -> pa.StructType:
    """Return the type of `record`: its data, and the members beside it if Arrow is to read them."""
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


# --- Arrow's JSON parser --------------------------------------------------------------------------------------------

_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What Arrow and msgspec raise where a block is not as they were asked to read it."""


def _parsed(block: bytes | memoryview, members: Sequence[pa.Field[Any]]) -> Any:
    """Return members of the block's objects as a table of one chunk. Raises one of `_REFUSALS`, or SchemaMismatch."""
    require(not any(_holds_decimals(member.type) for member in members) or not far_exponent(block))
    options = pj.ParseOptions(explicit_schema=pa.schema(members), unexpected_field_behavior="ignore")
    source: Any = pa.BufferReader(pa.py_buffer(block))
    # One block: what Arrow gives back is one chunk.
    read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    return pj.read_json(source, read, options)


def _holds_decimals(type_: pa.DataType) -> bool:
    """Whether Arrow parses decimals itself; those that it reads as strings are judged by their canonical pattern."""
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
    """Reads a column by the first of its strategies; the others are for values that this one does not take."""

    field: Field
    rules: TypeRules
    coercer: Coercer
    strategies: tuple[ReadStrategy, ...]

    @classmethod
    def of(cls, field: Field, floats: Floats) -> Self:
        """Return a reader with all strategies that the column can have, fastest first."""
        # Those of the column as a property, since its key counts as well.
        strategies = rules_for(Struct((field,)), Floats.ANY).strategies
        rules = rules_for(field.type, floats)
        return cls(field, rules, rules.coercer(field.source), strategies)

    @property
    def strategy(self) -> ReadStrategy:
        """How the values are read."""
        return self.strategies[0]

    def with_next_strategy(self) -> Self | None:
        """Return what to try when values of the column were refused; None if nothing is left to try."""
        return replace(self, strategies=self.strategies[1:]) if len(self.strategies) > 1 else None

    @property
    def is_raw(self) -> bool:
        """Whether the column is read from JSON texts, not by Arrow."""
        return self.strategy is ReadStrategy.RAW_JSON

    @property
    def arrow_field(self) -> pa.Field[Any] | None:
        """What Arrow's JSON parser is asked for; None if it does not read the column."""
        type_ = self.rules.read_type(self.strategy)
        return None if type_ is None else pa.field(self.field.source, type_)

    def from_arrow(self, array: Any, rows: _Rows) -> Any:
        """Return the values of what Arrow read. Of irregular ones, if few, the JSON text is taken from its line."""
        if isinstance(self.rules, ScalarRules) and self.rules.is_unparsed(array):
            parsed = self.rules.parse_vectorised(array)
            require(parsed.irregular is None or parsed.irregular.sum().as_py() <= len(array) * _MOST_IRREGULAR)
            return self._completed(parsed, lambda row: _text_of(self.field.source, rows[row]), rows)
        return self.rules.conform(array)

    def from_json(self, raws: Sequence[Raw], rows: _Rows) -> Any:
        """Return the values of their JSON texts, which are empty where a value is absent."""
        texts = _texts_of(raws)
        match self.rules:
            case ScalarRules():
                return self._completed(self.rules.parse_json(texts), lambda row: texts[row].as_py().encode(), rows)
            case NestedRules() if ReadStrategy.NATIVE in self.rules.strategies:
                return self._from_nested_json(self.rules, texts, rows)
        return self._coerced(enumerate(texts.to_pylist()), rows)

    def _from_nested_json(self, rules: NestedRules, texts: Any, rows: _Rows) -> Any:
        """Objects and lists: Arrow reads those of the right shape, together; the others are coerced one by one."""
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
        """Return the values, with those of irregular texts coerced."""
        values, irregular = parsed
        if irregular is None:
            return values
        numbers: Any = pc.indices_nonzero(irregular).to_pylist()
        coerced = pa.array([rows.coerce(row, json_text(row), self.coercer) for row in numbers], values.type)
        completed: pa.Array[Any] = pc.replace_with_mask(values, irregular, coerced)
        return completed


# --- Strategies -----------------------------------------------------------------------------------------------------


def _first_refused_piece(reader: BlockReader, block: bytes) -> bytes:
    """Return the first few lines that a block is refused for.

    A refused piece costs as much time as one that is read, and the first is mostly near the beginning. So the pieces
    that are tried grow from there, and the one that is refused is halved.
    """
    start = end = 0
    size = _SMALL
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
    """Return the strategy for the envelope that takes the piece; the present one if none does."""
    strategies = dict.fromkeys((present, ReadStrategy.RAW_JSON))
    return next((each for each in strategies if not _refused(BlockReader([], each), piece)), present)


def _columns_for(piece: bytes, present: Sequence[ColumnReader], envelope: ReadStrategy) -> list[ColumnReader]:
    """Return each column with the first strategy that takes the piece; with its present one if none does."""
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
    """Return those of the columns that the piece is refused for. Found by halving: most are not."""
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
        return False  # It will be read in parts, and each is judged then.
    return False


def _is_small(block: bytes) -> bool:
    lines = block.count(b"\n")
    return lines == 1 or (lines <= FEW_LINES and len(block) <= _SMALL)


def _line_end(block: bytes, at: int) -> int:
    """Return the end of the line at this position, at most that of the block."""
    return block.find(b"\n", at) + 1 or len(block)


def halves(block: bytes) -> tuple[bytes, bytes]:
    """Return two parts of whole lines, of about the same size, of a block of several lines."""
    middle = block.find(b"\n", len(block) // 2) + 1
    if middle == len(block):
        middle = block.rfind(b"\n", 0, len(block) - 1) + 1
    return block[:middle], block[middle:]


# --- Lines and JSON texts -------------------------------------------------------------------------------------------


class _Rows:
    """The records of a block: their lines, and the changes of their values.

    Lines are found when the first is asked for: most blocks are never asked. They are given as they were received.
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
        # A line may be blank, and another hold two records: white space is all that JSON needs between them.
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
        """Return the value that the coercer makes of a JSON text of this row, and keep its changes.

        Raises BlockChangesExceeded.
        """
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
        """Return the rows with changes, ascending."""
        return tuple(ChangedRow(row, self[row], changes) for row, changes in sorted(self._changes.items()))


_BRACE = ord("{")
_ANY_JSON = msgspec.json.Decoder(Raw)


class _JsonTexts:
    """Decodes lines to the JSON texts of some keys of their data. `shape` gives the type of lines by that of data."""

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
        """Return whole lines in their shape. Raises what msgspec does."""
        lines: list[Any] = self._decoder.decode_lines(block)
        return lines

    def texts(self, data: Sequence[Any], source: str) -> list[Raw]:
        """Return the JSON texts of one key of these data, empty where it is absent."""
        return [*map(self._getters[source], data)]


class _WholeData(_JsonTexts):
    """Decodes lines to the JSON texts of their data."""

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
    """Return the JSON text of one value of a record, empty where it is absent."""
    decoder = _decoder_of_one(source)
    return bytes(decoder.texts([each.record.data for each in decoder.decoded(line)], source)[0])


def _texts_of(raws: Sequence[Any]) -> Any:
    """Return JSON texts as strings; one that is empty, or `null`, is null. Raises ArrowInvalid if one is not UTF-8."""
    offsets = np.zeros(len(raws) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, raws), np.int32, len(raws)), out=offsets[1:])
    array: Any = pa.StringArray.from_buffers(len(raws), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(raws)))
    array.validate(full=True)
    nothing = pc.or_(pc.equal(array, pa.scalar("")), pc.equal(array, pa.scalar("null")))
    return pc.if_else(nothing, None, array) if pc.any(nothing).as_py() else array
