"""The lines of a block, and the JSON texts that msgspec cuts out of them, for columns that Arrow does not read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from destination_datalake.protocol.json_text import can_be_member_name
from destination_datalake.records.envelope import RawRecord, RecordLine
from destination_datalake.records.values.rules import require


class Lines:
    """The lines of a block by row. They are found when the first is asked for: most blocks are never asked."""

    def __init__(self, block: bytes | memoryview, rows: int) -> None:
        self._block = memoryview(block)
        self._rows = rows

    @cached_property
    def _bounds(self) -> Any:
        text = np.frombuffer(self._block, np.uint8)
        ends = np.flatnonzero(text == _NEWLINE)
        starts = np.concatenate([[0], ends[:-1] + 1])
        return (starts, ends) if len(ends) == self._rows and (text[starts] == _BRACE).all() else None

    @cached_property
    def _documents(self) -> Sequence[bytes]:
        # A line may be blank, and another hold two records: white space is all that JSON needs between them.
        documents = [bytes(text) for text in _ANY_JSON.decode_lines(self._block)]
        require(len(documents) == self._rows)
        return documents

    def __getitem__(self, row: int) -> bytes:
        if self._bounds is None:
            return self._documents[row]
        starts, ends = self._bounds
        return bytes(self._block[starts[row] : ends[row]])


_NEWLINE, _BRACE = b"\n{"
_ANY_JSON = msgspec.json.Decoder(Raw)


class RawValueDecoder:
    """Decodes record lines to the JSON texts of some keys of `record.data` and of the members beside it."""

    def __init__(self, sources: Sequence[str]) -> None:
        if all(map(can_be_member_name, sources)):
            members = [(f"f{i}", Raw, msgspec.field(name=source, default=Raw())) for i, source in enumerate(sources)]
            data: Any = msgspec.defstruct("Data", members, gc=False)
            self._getters: dict[str, Callable[[Any], Raw]] = {
                source: attrgetter(f"data.f{i}") for i, source in enumerate(sources)
            }
        else:
            data = dict[str, Raw]
            self._getters = {source: partial(_member, source) for source in sources}
        self._decoder: Any = msgspec.json.Decoder(RecordLine[RawRecord[data]])

    def records(self, block: bytes | memoryview) -> list[Any]:
        """Return the records of whole lines, as `RawRecord`. Raises what msgspec does."""
        return [line.record for line in self._decoder.decode_lines(block)]

    def texts(self, records: Sequence[Any], source: str) -> list[Raw]:
        """Return the JSON texts of one key of these records, empty where it is absent."""
        return [*map(self._getters[source], records)]


_ABSENT = Raw()


def _member(source: str, record: Any) -> Raw:
    text: Raw = record.data.get(source, _ABSENT)
    return text


@lru_cache(maxsize=4096)
def _decoder_of_one(source: str) -> RawValueDecoder:
    return RawValueDecoder([source])


def text_of(source: str, line: bytes) -> bytes:
    """Return the JSON text of one value of a record, empty where it is absent."""
    decoder = _decoder_of_one(source)
    return bytes(decoder.texts(decoder.records(line), source)[0])


def texts_of(raws: Sequence[Any]) -> Any:
    """Return JSON texts as strings; one that is empty, or `null`, is null. Raises ArrowInvalid if one is not UTF-8."""
    offsets = np.zeros(len(raws) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, raws), np.int32, len(raws)), out=offsets[1:])
    array: Any = pa.StringArray.from_buffers(len(raws), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(raws)))
    array.validate(full=True)
    nothing = pc.or_(pc.equal(array, pa.scalar("")), pc.equal(array, pa.scalar("null")))
    return pc.if_else(nothing, None, array) if pc.any(nothing).as_py() else array
