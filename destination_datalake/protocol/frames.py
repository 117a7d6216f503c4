"""Frames: the envelope that all lines of a stream share, except for the digits of `emitted_at`.

The bytes before and after the data are learned from one line that a strict parser accepts. All lines of a chunk are
compared with them at once, and the data of matching lines are parsed only on executors. A matching line is *flattened*
in place: the frame is replaced by blanks, except for `emitted_at`, which becomes a member of the data with another key:

    {"type":"RECORD","record":{"stream":"s","data":{"id":1},"emitted_at":1700000000000}}
                                                   {"id":1 ,"8f14e45fce":1700000000000}

The key is random, so it does not occur in data. If a JSON parser reads a flat line as one object with that key, the
line contains exactly one data object, which is not empty: the received line is valid JSON with the frame as its
envelope. A flat line has the length of the received line, and `Frame.restored` returns the received line.
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

MAX_FRAMES = 8
"""The maximum number of frames in a chunk. With more streams, decoding each envelope is faster."""

MAX_UNMATCHED_RATIO = 1 / 16
"""The maximum ratio of lines without a frame in a chunk. Above it, decoding all envelopes is faster."""

MAX_LEARNED = 16
"""The maximum number of frames learned for a stream. Each new frame starts a segment."""

MAX_PAUSE = 64
"""The maximum number of chunks to skip after a chunk with too many lines without a frame."""

_NEWLINE, _ZERO = b"\n0"
_PIECE = 256 * 1024

_EMITTED_AT = re.compile(rb'"emitted_at"[ \t\r]*:[ \t\r]*([1-9][0-9]{9,13})(?![0-9.eE])')
"""Current times have 10 digits in seconds and 13 in milliseconds."""


def line_bounds(octets: Octets) -> tuple[Positions, Positions]:
    """Return the positions of line starts and of newlines. The last line also ends with a newline; a text can be empty.

    The text is processed in pieces that fit in the processor's cache, which halves the time.
    """
    pieces = range(0, len(octets), _PIECE) or (0,)
    ends = np.concatenate([np.flatnonzero(octets[start : start + _PIECE] == _NEWLINE) + start for start in pieces])
    starts = np.empty_like(ends)
    starts[:1] = 0
    np.add(ends[:-1], 1, out=starts[1:])
    return starts, ends


# --- One frame ------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A part of a frame: its offset from a line's start, or end if negative, and its received and flat bytes."""

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
    """The frame of a stream's lines, without the digits of `emitted_at`. `key` is their key in flat lines.

    `digits` is their range, as offsets from the start of a line, or from its end.
    """

    namespace: str | None
    stream: str
    key: str
    parts: tuple[_Part, ...]
    digits: tuple[int, int]

    @classmethod
    def of(cls, line: bytes) -> Self | None:
        """Return the frame of a RECORD line without its newline; None if it cannot be determined.

        All members of the message and of the record except `data` and `emitted_at` belong to the frame. A line with
        changes in `meta`, which belong to one record, does not have a frame.
        """
        key = secrets.token_hex(5)  # Has the length of `emitted_at`.
        try:
            data = bytes(_decoder.decode(line).record.data)
            if not data.startswith(b"{"):
                return None
            head, _, tail = line.partition(data)
            [(is_in_head, emitted_at)] = [
                (side is head, match) for side in (head, tail) for match in _EMITTED_AT.finditer(side)
            ]
            record = _marked_record(head, tail, is_in_head, emitted_at, key)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return None
        if record is None:
            return None
        parts, digits = (_head_parts if is_in_head else _tail_parts)(head, tail, emitted_at, b'"%b"' % key.encode())
        return cls(record.get("namespace"), record["stream"], key, parts, digits)

    def fits(self, octets: Octets, starts: Positions, ends: Positions) -> Mask:
        """Return the mask of lines with this frame and any data. The lines' newlines are at `ends`."""
        return self._having([part.received for part in self.parts], octets, starts, ends)

    def flatten(self, octets: Octets, starts: Positions, ends: Positions) -> None:
        """Flatten lines with this frame in place."""
        self._write([part.flat for part in self.parts], octets, starts, ends)

    def restored(self, lines: bytes | memoryview) -> bytes:
        """Return whole lines, some of which are flat, as received."""
        text = bytearray(lines)
        octets = np.frombuffer(text, np.uint8)
        starts, ends = line_bounds(octets)
        flat = self._are_flat(octets, starts, ends)
        self._write([part.received for part in self.parts], octets, starts[flat], ends[flat])
        return bytes(text)

    def all_restored(self, lines: bytes | memoryview) -> bytearray:
        """Return whole flat lines as received. Takes half the time of `restored`."""
        text = bytearray(lines)
        octets = np.frombuffer(text, np.uint8)
        self._write([part.received for part in self.parts], octets, *line_bounds(octets))
        return text

    def restored_line(self, line: bytes) -> bytes:
        """Return a flat line without its newline as received."""
        text = bytearray(line)
        for part in self.parts:
            start = part.offset if part.offset >= 0 else len(line) + part.offset
            text[start : start + len(part.received)] = part.received
        return bytes(text)

    def split(self, lines: bytes | memoryview) -> tuple[tuple[bytes, Positions], tuple[bytes, Positions]]:
        """Return the flat lines and the other lines, each with their numbers (from 0)."""
        octets = np.frombuffer(lines, np.uint8)
        starts, ends = line_bounds(octets)
        flat = self._are_flat(octets, starts, ends)
        mask = np.repeat(flat, ends - starts + 1)
        return (octets[mask].tobytes(), np.flatnonzero(flat)), (octets[~mask].tobytes(), np.flatnonzero(~flat))

    @cached_property
    def _length(self) -> int:
        return sum(len(part.received) for part in self.parts) + self.digits[1] - self.digits[0]

    def _are_flat(self, octets: Octets, starts: Positions, ends: Positions) -> Mask:
        return self._having([part.flat for part in self.parts], octets, starts, ends)

    def _having(self, texts: list[bytes], octets: Octets, starts: Positions, ends: Positions) -> Mask:
        """Return the mask of lines with these texts at the offsets of the parts, with digits, and with data between."""
        longer = ends - starts > self._length
        if not longer.all():
            mask = np.zeros(len(ends), np.bool_)
            mask[longer] = self._having(texts, octets, starts[longer], ends[longer])
            return mask
        mask = np.ones(len(ends), np.bool_)
        for part, text in zip(self.parts, texts, strict=True):
            windows = _windows(octets, len(text))[(starts if part.offset >= 0 else ends) + part.offset]
            if windows.tobytes() != text * len(ends):
                mask &= (_rows(windows) == np.frombuffer(text, np.uint8)).all(1)
        start, end = self.digits
        digits = _rows(_windows(octets, end - start)[(starts if start >= 0 else ends) + start]) - np.uint8(_ZERO)
        mask &= (digits <= 9).all(1) & (digits[:, 0] != 0)
        return mask

    def _write(self, texts: list[bytes], octets: Octets, starts: Positions, ends: Positions) -> None:
        for part, text in zip(self.parts, texts, strict=True):
            _windows(octets, len(text))[(starts if part.offset >= 0 else ends) + part.offset] = np.void(text)


def _windows(octets: Octets, length: int) -> Any:
    """Return all sequences of `length` bytes by position. They overlap and share the memory of the text."""
    return np.ndarray((max(0, len(octets) - length + 1),), f"V{length}", octets, strides=(1,))


def _rows(windows: Any) -> Octets:
    rows: Octets = windows.view(np.uint8).reshape(len(windows), windows.dtype.itemsize)
    return rows


def _marked_record(head: bytes, tail: bytes, is_in_head: bool, match: re.Match[bytes], key: str) -> Any:
    """Return the record with marks in place of its data and `emitted_at`; None if the parsed members are not the marks.

    This proves that the replaced texts are these two members. Raises ValueError for repeated keys and NaN.
    """
    (start, end), mark = match.span(1), f'"{key}"'.encode()
    side = match.string[:start] + mark + match.string[end:]
    head, tail = (side, tail) if is_in_head else (head, side)
    message = json.loads((head + mark + tail).decode(), object_pairs_hook=_members, parse_constant=int)
    match message:
        case {
            "type": "RECORD",
            "record": {"stream": str(), "data": data, "emitted_at": emitted_at, **rest} as record,
        }:
            is_proven = data == emitted_at == key and isinstance(rest.get("namespace"), str | None)
            return record if is_proven and _has_no_changes(rest.get("meta")) else None
    return None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key is repeated")
    return members


def _has_no_changes(meta: Any) -> bool:
    return meta is None or (isinstance(meta, dict) and meta.get("changes") in (None, []))


def _head_parts(
    head: bytes, tail: bytes, match: re.Match[bytes], key: bytes
) -> tuple[tuple[_Part, ...], tuple[int, int]]:
    """Return the parts of a frame with `emitted_at` before the data."""
    at, (start, end) = match.start(), match.span(1)
    first = _Part(0, head[:start], b" " * (at - 1) + b"{" + key + head[at + len(key) : start])
    second = _Part(end, head[end:] + b"{", b"," + b" " * (len(head) - end))
    third = _Part(-len(tail) - 1, b"}" + tail, b"}" + b" " * len(tail))
    return (first, second, third), (start, end)


def _tail_parts(
    head: bytes, tail: bytes, match: re.Match[bytes], key: bytes
) -> tuple[tuple[_Part, ...], tuple[int, int]]:
    """Return the parts of a frame with `emitted_at` after the data."""
    at, (start, end) = match.start(), match.span(1)
    length = len(tail)
    first = _Part(0, head + b"{", b" " * len(head) + b"{")
    second = _Part(-length - 1, b"}" + tail[:start], b" " * at + b"," + key + tail[at + len(key) : start])
    third = _Part(end - length, tail[end:], b"}" + b" " * (length - end - 1))
    return (first, second, third), (start - length, end - length)


# --- The frames of an input-----------------------------------------------------------------------------------------


class Frames:
    """Learns the frames of an input's streams, and flattens lines with a frame."""

    def __init__(self) -> None:
        self._known: dict[tuple[str | None, str], Frame] = {}
        self._learned: Counter[tuple[str | None, str]] = Counter()
        self._recent: list[Frame] = []
        self._misses = 0
        self._pause = 0

    def flatten(self, octets: Octets, starts: Positions, ends: Positions) -> tuple[list[Frame], Positions] | None:
        """Flatten the lines of a chunk. Return one frame per stream, and each line's frame index, or -1.

        Returns None, without changing the lines, if decoding their envelopes is faster.
        """
        if self._pause:
            self._pause -= 1
            return None
        used: list[Frame] = []
        frame_indexes = np.full(len(ends), -1, np.intp)
        unmatched = np.arange(len(ends))
        untried = [*self._recent]
        unknown = 0
        while len(unmatched) and len(used) < MAX_FRAMES:
            if untried:
                frame: Frame | None = untried.pop(0)
            elif unknown < min(len(unmatched), MAX_FRAMES):
                line = octets[starts[unmatched[unknown]] : ends[unmatched[unknown]]].tobytes()
                frame = self._frame_of(line, used)
                unknown += frame is None
            else:
                break
            if frame is None:
                continue
            fits = frame.fits(octets, starts[unmatched], ends[unmatched])
            if fits.any():
                frame_indexes[unmatched[fits]] = len(used)
                unmatched = unmatched[~fits]
                used.append(frame)
            elif not untried:
                unknown += 1
        if len(unmatched) > len(ends) * MAX_UNMATCHED_RATIO:
            self._misses += 1
            self._pause = min(MAX_PAUSE, 2**self._misses)
            return None
        self._misses = 0
        self._recent = used
        for number, frame in enumerate(used):
            lines = frame_indexes == number
            frame.flatten(octets, starts[lines], ends[lines])
        return used, frame_indexes

    def _frame_of(self, line: bytes, used: list[Frame]) -> Frame | None:
        """Return the frame of a line that does not match `used`. A stream has one frame in a chunk."""
        try:
            record = _decoder.decode(line).record
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        stream = (record.namespace, record.stream)
        known = self._known.get(stream)
        if known in used or self._learned[stream] >= MAX_LEARNED:
            return None
        if known is not None and known not in self._recent:
            self._recent.append(known)  # The next line of the stream may need another one.
            return known
        self._learned[stream] += 1
        frame = Frame.of(line)
        if frame is not None:
            self._known[stream] = frame
        return frame
