"""Frames: what a source writes around the data, the same in every line of a stream but for the digits of `emitted_at`.

The bytes before and behind the data are learnt from one line that a strict parser accepts. All lines of a chunk are
compared with them at once; the data of those that fit are parsed on executors only. Such a line is *flattened* in
place: the frame becomes blanks, but for `emitted_at`, which becomes a member of the data under another key:

    {"type":"RECORD","record":{"stream":"s","data":{"id":1},"emitted_at":1700000000000}}
                                                   {"id":1 ,"8f14e45fce":1700000000000}

The key is random, so no data have it. Hence a flat line that a JSON parser reads as one object with that key holds one
data object, not empty, and nothing else: the line as received is JSON, and its envelope is the frame's. A flat line has
the length of the line as received, and `Frame.restored` makes it that line again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from msgspec import Raw

Octets = np.ndarray[Any, np.dtype[np.uint8]]
Positions = np.ndarray[Any, np.dtype[np.intp]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

MOST_FRAMES = 8
"""The most frames of a chunk. With more streams in it, it is quicker to decode each envelope."""

MOST_OTHERS = 1 / 16
"""The share of a chunk's lines that may have no frame before it is quicker to decode all envelopes."""

MOST_LEARNT = 16
"""How often a frame of one stream is learnt: each new one begins a segment."""

MOST_PAUSED = 64
"""The most chunks that are not compared after one with too many lines without a frame."""

_NEWLINE, _ZERO = b"\n0"
_PIECE = 256 * 1024

_EMITTED_AT = re.compile(rb'"emitted_at"[ \t\r]*:[ \t\r]*([1-9][0-9]{9,13})(?![0-9.eE])')
"""Seconds have 10 digits since 2001, milliseconds have 13."""


def line_bounds(octets: Octets) -> tuple[Positions, Positions]:
    """Return where the lines of a text start, and where their newlines are; the last line has one too.

    Pieces that stay in the processor's cache take half the time.
    """
    pieces = range(0, len(octets), _PIECE) or (0,)
    ends = np.concatenate([np.flatnonzero(octets[start : start + _PIECE] == _NEWLINE) + start for start in pieces])
    starts = np.empty_like(ends)
    starts[:1] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    return starts, ends


# --- One frame ------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A part of a frame: its offset from the start of a line, or from its end if negative; as received, and flat."""

    offset: int
    received: bytes
    flat: bytes


class _Record(msgspec.Struct, gc=False):
    stream: str
    data: Raw
    namespace: str | None = None


class _Message(msgspec.Struct, gc=False):
    record: _Record


_decoder = msgspec.json.Decoder(_Message)


@dataclass(frozen=True)
class Frame:
    """The frame of a stream's lines, without the digits of `emitted_at`. `key` is the key of those in flat lines.

    `digits` is where they are: offsets from the start of a line, or from its end.
    """

    namespace: str | None
    stream: str
    key: str
    parts: tuple[_Part, ...]
    digits: tuple[int, int]

    @classmethod
    def of(cls, line: bytes) -> Self | None:
        """Return the frame of a RECORD line without its newline; None if its bytes do not tell it.

        Every member of the message and of the record but `data` and `emitted_at` is a part of the frame. A `meta` that
        reports changes is of its record alone, so the line has no frame.
        """
        key = secrets.token_hex(5)  # As long as `emitted_at`.
        try:
            data = bytes(_decoder.decode(line).record.data)
            if not data.startswith(b"{"):
                return None
            head, _, tail = line.partition(data)
            [(is_in_head, found)] = [
                (side is head, match) for side in (head, tail) for match in _EMITTED_AT.finditer(side)
            ]
            record = _marked_record(head, tail, is_in_head, found, key)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        if record is None:
            return None
        parts, digits = (_around_head if is_in_head else _around_tail)(head, tail, found, b'"%b"' % key.encode())
        return cls(record.get("namespace"), record["stream"], key, parts, digits)

    def fits(self, octets: Octets, starts: Positions, ends: Positions) -> Mask:
        """Tell which lines, of which the newlines are at `ends`, have this frame and any data."""
        return self._having([part.received for part in self.parts], octets, starts, ends)

    def flatten(self, octets: Octets, starts: Positions, ends: Positions) -> None:
        """Make lines that have this frame flat."""
        self._write([part.flat for part in self.parts], octets, starts, ends)

    def restored(self, lines: bytes | memoryview) -> bytes:
        """Return whole lines, of which some are flat, as they were received."""
        text = bytearray(lines)
        octets = np.frombuffer(text, np.uint8)
        starts, ends = line_bounds(octets)
        flat = self._are_flat(octets, starts, ends)
        self._write([part.received for part in self.parts], octets, starts[flat], ends[flat])
        return bytes(text)

    def all_restored(self, lines: bytes | memoryview) -> bytearray:
        """Return whole lines, all of them flat, as they were received, in half the time."""
        text = bytearray(lines)
        octets = np.frombuffer(text, np.uint8)
        self._write([part.received for part in self.parts], octets, *line_bounds(octets))
        return text

    def restored_line(self, line: bytes) -> bytes:
        """Return a flat line, without its newline, as it was received."""
        text = bytearray(line)
        for part in self.parts:
            start = part.offset if part.offset >= 0 else len(line) + part.offset
            text[start : start + len(part.received)] = part.received
        return bytes(text)

    def parted(self, lines: bytes | memoryview) -> tuple[tuple[bytes, Positions], tuple[bytes, Positions]]:
        """Return the lines that are flat, and the others, each with their numbers (from 0)."""
        octets = np.frombuffer(lines, np.uint8)
        starts, ends = line_bounds(octets)
        flat = self._are_flat(octets, starts, ends)
        of_flat = np.repeat(flat, ends - starts + 1)
        return (octets[of_flat].tobytes(), np.flatnonzero(flat)), (octets[~of_flat].tobytes(), np.flatnonzero(~flat))

    @cached_property
    def _length(self) -> int:
        return sum(len(part.received) for part in self.parts) + self.digits[1] - self.digits[0]

    def _are_flat(self, octets: Octets, starts: Positions, ends: Positions) -> Mask:
        return self._having([part.flat for part in self.parts], octets, starts, ends)

    def _having(self, texts: list[bytes], octets: Octets, starts: Positions, ends: Positions) -> Mask:
        """Tell which lines have these texts in the places of the parts, digits, and something between."""
        longer = ends - starts > self._length
        if not longer.all():
            mask = np.zeros(len(ends), np.bool_)
            mask[longer] = self._having(texts, octets, starts[longer], ends[longer])
            return mask
        mask = np.ones(len(ends), np.bool_)
        for part, text in zip(self.parts, texts, strict=True):
            found = _windows(octets, len(text))[(starts if part.offset >= 0 else ends) + part.offset]
            if found.tobytes() != text * len(ends):
                mask &= (_rows(found) == np.frombuffer(text, np.uint8)).all(1)
        start, end = self.digits
        digits = _rows(_windows(octets, end - start)[(starts if start >= 0 else ends) + start]) - np.uint8(_ZERO)
        mask &= (digits <= 9).all(1) & (digits[:, 0] != 0)
        return mask

    def _write(self, texts: list[bytes], octets: Octets, starts: Positions, ends: Positions) -> None:
        for part, text in zip(self.parts, texts, strict=True):
            _windows(octets, len(text))[(starts if part.offset >= 0 else ends) + part.offset] = np.void(text)


def _windows(octets: Octets, length: int) -> Any:
    """Return all runs of `length` bytes, by their positions. They overlap and share the memory of the text."""
    return np.ndarray((max(0, len(octets) - length + 1),), f"V{length}", octets, strides=(1,))


def _rows(found: Any) -> Octets:
    rows: Octets = found.view(np.uint8).reshape(len(found), found.dtype.itemsize)
    return rows


def _marked_record(head: bytes, tail: bytes, is_in_head: bool, found: re.Match[bytes], key: str) -> Any:
    """Return a record with marks for its data and its `emitted_at`; None if the marks do not come out as those.

    So what was cut out are these two, and not what looks like them. Raises ValueError for repeated keys and NaN.
    """
    (start, end), mark = found.span(1), f'"{key}"'.encode()
    side = found.string[:start] + mark + found.string[end:]
    head, tail = (side, tail) if is_in_head else (head, side)
    message = json.loads((head + mark + tail).decode(), object_pairs_hook=_members, parse_constant=int)
    match message:
        case {
            "type": "RECORD",
            "record": {"stream": str(), "data": data, "emitted_at": emitted_at, **others} as record,
        }:
            is_told = data == emitted_at == key and isinstance(others.get("namespace"), str | None)
            return record if is_told and _reports_nothing(others.get("meta")) else None
    return None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is repeated")
    return members


def _reports_nothing(meta: Any) -> bool:
    return meta is None or (isinstance(meta, dict) and meta.get("changes") in (None, []))


def _around_head(
    head: bytes, tail: bytes, found: re.Match[bytes], key: bytes
) -> tuple[tuple[_Part, ...], tuple[int, int]]:
    """Return the parts of a frame that has `emitted_at` before the data."""
    at, (start, end) = found.start(), found.span(1)
    first = _Part(0, head[:start], b" " * (at - 1) + b"{" + key + head[at + len(key) : start])
    second = _Part(end, head[end:] + b"{", b"," + b" " * (len(head) - end))
    third = _Part(-len(tail) - 1, b"}" + tail, b"}" + b" " * len(tail))
    return (first, second, third), (start, end)


def _around_tail(
    head: bytes, tail: bytes, found: re.Match[bytes], key: bytes
) -> tuple[tuple[_Part, ...], tuple[int, int]]:
    """Return the parts of a frame that has `emitted_at` behind the data."""
    at, (start, end) = found.start(), found.span(1)
    length = len(tail)
    first = _Part(0, head + b"{", b" " * len(head) + b"{")
    second = _Part(-length - 1, b"}" + tail[:start], b" " * at + b"," + key + tail[at + len(key) : start])
    third = _Part(end - length, tail[end:], b"}" + b" " * (length - end - 1))
    return (first, second, third), (start - length, end - length)


# --- The frames of an input-----------------------------------------------------------------------------------------


class Frames:
    """Learns the frames of an input's streams, and flattens the lines that have one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str], Frame] = {}
        self._learnt: Counter[tuple[str | None, str]] = Counter()
        self._recent: list[Frame] = []
        self._misses = 0
        self._pause = 0

    def flatten(self, octets: Octets, starts: Positions, ends: Positions) -> tuple[list[Frame], Positions] | None:
        """Flatten the lines of a chunk; return frames, of each stream one, and for each line which it has, or -1.

        Returns None, and leaves the lines as they are, if it is quicker to decode their envelopes.
        """
        if self._pause:
            self._pause -= 1
            return None
        used: list[Frame] = []
        of_line = np.full(len(ends), -1, np.intp)
        others = np.arange(len(ends))
        untried = [*self._recent]
        unknown = 0
        while len(others) and len(used) < MOST_FRAMES:
            if untried:
                frame: Frame | None = untried.pop(0)
            elif unknown < min(len(others), MOST_FRAMES):
                line = octets[starts[others[unknown]] : ends[others[unknown]]].tobytes()
                frame = self._frame_of(line, used)
                unknown += frame is None
            else:
                break
            if frame is None:
                continue
            fits = frame.fits(octets, starts[others], ends[others])
            if fits.any():
                of_line[others[fits]] = len(used)
                others = others[~fits]
                used.append(frame)
            elif not untried:
                unknown += 1
        if len(others) > len(ends) * MOST_OTHERS:
            self._misses += 1
            self._pause = min(MOST_PAUSED, 2**self._misses)
            return None
        self._misses = 0
        self._recent = used
        for number, frame in enumerate(used):
            lines = of_line == number
            frame.flatten(octets, starts[lines], ends[lines])
        return used, of_line

    def _frame_of(self, line: bytes, used: list[Frame]) -> Frame | None:
        """Return the frame of a line that those do not fit. A stream has one frame in a chunk."""
        try:
            record = _decoder.decode(line).record
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        stream = (record.namespace, record.stream)
        known = self._known.get(stream)
        if known in used or self._learnt[stream] >= MOST_LEARNT:
            return None
        if known is not None and known not in self._recent:
            self._recent.append(known)  # The next line of the stream may ask for another one.
            return known
        self._learnt[stream] += 1
        frame = Frame.of(line)
        if frame is not None:
            self._known[stream] = frame
        return frame
