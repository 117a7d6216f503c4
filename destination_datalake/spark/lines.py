"""The lines of a block, and the JSON texts in them: what msgspec cuts out for those who need more than Arrow gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class BlockRefused(Exception):
    """A block holds something that cannot be read in this way."""


def demand(condition: bool) -> None:
    """Raise BlockRefused unless the condition holds."""
    if not condition:
        raise BlockRefused


class Lines:
    """The lines of a block by row, looked for when the first is asked for: most blocks are never asked."""

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
        demand(len(documents) == self._rows)
        return documents

    def __getitem__(self, row: int) -> bytes:
        if self._bounds is None:
            return self._documents[row]
        starts, ends = self._bounds
        return bytes(self._block[starts[row] : ends[row]])


_NEWLINE, _BRACE = b"\n{"
_ANY_JSON = msgspec.json.Decoder(msgspec.Raw)


def cutter(sources: Sequence[str]) -> Any:
    """A msgspec decoder for the JSON texts of these keys, as members f0, f1, … of `record.data`."""
    raw = msgspec.Raw
    data = msgspec.defstruct(
        "Data",
        [(f"f{i}", raw, msgspec.field(name=source, default=raw())) for i, source in enumerate(sources)],
        gc=False,
    )
    null = raw(b"null")
    record = msgspec.defstruct("Record", [("data", data), ("emitted_at", raw, null), ("meta", raw, null)], gc=False)
    return msgspec.json.Decoder(msgspec.defstruct("Line", [("record", record)], gc=False))


@lru_cache(maxsize=4096)
def _cutter_of_one(source: str) -> Any:
    return cutter([source])


def text_of(source: str, line: bytes) -> bytes:
    """The JSON text of one value of a record."""
    return bytes(_cutter_of_one(source).decode(line).record.data.f0)


def texts_of(raws: Sequence[Any]) -> Any:
    """JSON texts as strings; one that is absent, or null, is null. Raises ArrowInvalid if one is not UTF-8."""
    offsets = np.zeros(len(raws) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, raws), np.int32, len(raws)), out=offsets[1:])
    array: Any = pa.StringArray.from_buffers(len(raws), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(raws)))
    array.validate(full=True)
    nothing = pc.or_(pc.equal(array, pa.scalar("")), pc.equal(array, pa.scalar("null")))
    return pc.if_else(nothing, None, array) if pc.any(nothing).as_py() else array
