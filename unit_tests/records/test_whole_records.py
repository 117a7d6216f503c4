"""Records of streams that declare no properties: their data are one column of JSON text, byte for byte."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.frames import Frame, line_bounds
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.undeclared import undeclared_fields
from destination_datalake.schema.columns import WHOLE_RECORD
from unit_tests.strategies import json_values

ODD = (
    "{}",
    '{ "a" : 1.50,\t"a":[ ] }',
    '{"data":{"record":{}}}',
    '{"_airbyte_data":1}',
    '{"n":1e400}',
    '{"n":123456789012345678901234567890}',
    '{"s":"\\ud800"}',
    '{"\u00e9":"\\u00e9"}',
)


def line(data: str, before: str = "") -> bytes:
    return f'{{"type":"RECORD","record":{{{before}"stream":"s","data":{data},"emitted_at":1700000000000}}}}\n'.encode()


def kept(block: bytes, frame: Frame | None = None) -> list[str | None]:
    parts = [*BlockDecoder((WHOLE_RECORD,)).decode(block, frame)]
    assert not any(part.rejected or part.changed for part in parts)
    rows = [
        (number, value)
        for part in parts
        for number, value in zip(part.line_numbers.tolist(), part.columns[0].to_pylist(), strict=True)
    ]
    return [value for _, value in sorted(rows)]


@pytest.mark.parametrize("data", ODD)
def test_a_record_is_kept_as_it_was_received(data: str) -> None:
    assert kept(line(data)) == [data]
    assert kept(line('{"x":1}') + line(data) + line(data, '"meta":7,')) == ['{"x":1}', data, data]


@given(st.lists(st.dictionaries(st.text(max_size=3), json_values).map(lambda data: json.dumps(data)), max_size=4))
def test_records_are_kept_in_flat_lines_too(texts: list[str]) -> None:
    texts = [text for text in texts if "NaN" not in text and "Infinity" not in text and text != "{}"]
    block = b"".join(map(line, ['{"a": 1}', *texts]))
    frame = Frame.of(line('{"a": 1}')[:-1])
    assert frame is not None
    octets = np.frombuffer(bytearray(block), np.uint8)
    frame.flatten(octets, *line_bounds(octets))

    assert kept(octets.tobytes(), frame) == ['{"a": 1}', *texts] == kept(block)


@pytest.mark.parametrize("data", ["1", "[]", '"{}"', "null"])
def test_data_that_are_no_object_are_rejected(data: str) -> None:
    [decoded] = BlockDecoder((WHOLE_RECORD,)).decode(line(data))
    assert (decoded.rows, len(decoded.rejected)) == (0, 1)


def test_no_field_of_a_whole_record_is_undeclared() -> None:
    assert undeclared_fields(line('{"a":1}'), (WHOLE_RECORD,)) == ()
