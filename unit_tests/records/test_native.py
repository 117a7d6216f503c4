"""The native decoder: what it reads itself, and what it leaves to the careful rules.

That it reads the same values as they is the subject of the laws in test_decoder.py and values/.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import destination_datalake
from destination_datalake.records.native import NativeBlock, NativeDecoder
from destination_datalake.schema.columns import WHOLE_RECORD
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float64,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)

ITEMS = List(Struct((Field("n", "n", Int64()), Field("tags", "Tags", List(String())))))


def line(data: str = '{"a":1}', before: str = "", after: str = "", emitted_at: str = "1700000000000") -> bytes:
    record = f'{{{before}"stream":"s","data":{data},"emitted_at":{emitted_at}{after}}}'
    return f'{{"type":"RECORD","record":{record}}}\n'.encode("utf-8", "surrogateescape")


def decoded(lines: bytes, column_type: ColumnType = Int64()) -> NativeBlock:  # noqa: B008 - it is immutable.
    return NativeDecoder([Field("a", "a", column_type)]).decode(lines)


# --- Values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column_type", "texts"),
    [
        (Boolean(), ["true", "false", "null"]),
        (Int64(), ["0", "-0", "-5", "999999999999999999", '"12"', '"-007"']),
        (Float64(), ["0", "-0.0", "1.5", "0.1", "1e300", "-2.5E-3", "0.30000000000000004", '"12.5"', '"1e3"']),
        (Decimal(9, 2), ["1", "-1.5", "1234567.89", '"0.25"', "-0"]),
        (Decimal(2, 2), ["0.25", "-0.5", "0"]),
        (String(), ['""', '"a"', '"é\U0001f600"', r'"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"', "1.50", '{"b": [1 ]}']),
        (Json(), ['"a"', "1.50", "[ ]", '{"b": [null, {"c":"\\ud800"}]}']),
        (Date(), ['"2024-02-29"', '"0001-01-01"', '"9999-12-31"']),
        (
            Timestamp(zoned=True),
            [
                '"2024-02-29"',
                '"2024-02-29T23:59"',
                '"2024-02-29 23:59:59"',
                '"2024-02-29T23:59:59.1Z"',
                '"2024-02-29T23:59:59.123456+05:30"',
                '"2024-02-29T23:59:59.123456000-0800"',
                '"2024-02-29T23:59:59+01"',
            ],
        ),
        (Timestamp(zoned=False), ['"2024-02-29T23:59:59"', '"0001-01-01T00:00:00+05:00"']),
        (ITEMS, ["[]", "null", "[null]", '[{"n":1,"Tags":["x",null]},{"Tags":[], "more":{}},{}]']),
    ],
    ids=str,
)
def test_usual_values_need_no_careful_rule(column_type: ColumnType, texts: list[str]) -> None:
    block = decoded(b"".join(line(f'{{"a":{text}}}') for text in texts), column_type)

    assert (block.line_count, len(block.lines), block.cells) == (len(texts), len(texts), [])


@pytest.mark.parametrize(
    ("column_type", "text"),
    [
        (Boolean(), '"true"'),
        (Int64(), "1.0"),
        (Int64(), "1e3"),
        (Int64(), "9223372036854775807"),
        (Int64(), '" 1"'),
        (Int64(), '""'),
        (Float64(), "1e400"),
        (Float64(), "5e-324"),
        (Float64(), '"NaN"'),
        (Float64(), "12345678901234567890"),
        (Decimal(9, 2), "1.234"),
        (Decimal(9, 2), "12345678"),
        (Decimal(9, 2), "1e1"),
        (Decimal(2, 2), "1"),
        (String(), r'"\ud800"'),
        (Date(), '"2023-02-29"'),
        (Date(), '"2024-02-29T00:00:00"'),
        (Timestamp(zoned=True), '"2024-02-29T24:00:00"'),
        (Timestamp(zoned=True), '"2024-02-29T23:59:60Z"'),
        (Timestamp(zoned=True), '"2024-02-29T23:59:59.1234567Z"'),
        (Timestamp(zoned=True), '"0001-01-01T00:00:00+05:00"'),
        (ITEMS, '[{"n":1},{"n":"x"}]'),
        (ITEMS, '[{"n":1,"n":2}]'),
        (ITEMS, '{"n":1}'),
        (ITEMS, r'[{"\ud800":1}]'),
    ],
)
def test_an_unusual_value_is_a_cell_and_changes_no_other_row(column_type: ColumnType, text: str) -> None:
    rows = [line(f'{{"a":{value}}}') for value in ("null", text, "null")]

    block = decoded(b"".join(rows), column_type)

    [cell] = block.cells
    assert (cell.row, cell.column) == (1, 0)
    assert b"".join(rows)[cell.start : cell.end] == text.encode()
    assert block.columns[0].to_pylist() == [None] * 3
    block.columns[0].validate(full=True)


# --- Lines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        line('{"b":{"a":2},"a":1}'),
        line('{ "x" : [ { } , [ ] ] , "a" : 1 }\t'),
        line(r'{"\u0061":1}'),
        line('{"a":1}', before='"namespace":"n","meta":{"changes":[]},'),
        line('{"a":1}', after=',"more":{"data":{"a":2}}'),
        line('{"a":1,"b":%s}' % ('[{"c":' * 4000 + "0" + "}]" * 4000)),
        line('{"a":1}', emitted_at="1700000000"),
        line('{"a":1}')[:-1] + b" \r\n",
        b'{"record":{"emitted_at":1700000000000,"data":{"a":1}},"type":"RECORD"}\n',
    ],
)
def test_members_may_be_in_any_order_and_spacing(text: bytes) -> None:
    block = decoded(text)

    assert (block.columns[0].to_pylist(), block.cells, len(block.refused)) == ([1], [], 0)
    assert block.extracted_at.cast("int64").to_pylist() == [1_700_000_000_000_000]


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"x\n",
        b" \n",
        b"{}\n",
        b'{"record":{}}\n',
        b'{"record":{"data":{}}}\n',
        line("[]"),
        line("null"),
        line('{"a":1,"a":2}'),
        line('{"a":1}', after=',"data":{}'),
        line('{"a":1}', after=',"emitted_at":1'),
        line('{"a":1}', emitted_at="1.5"),
        line('{"a":1}', emitted_at="253402300800000"),
        line('{"a":01}'),
        line('{"a":NaN}'),
        line('{"a":1,}'),
        line('{"a":1 "b":2}'),
        line('{"a":"\t"}'),
        line(r'{"a":"\x"}'),
        line(r'{"\ud800":1}'),
        line('{"b":"\udcff"}'),
        line('{"b":"\udced\udca0\udc80"}'),
        line('{"a":%s}' % ("[" * 600 + "]" * 600)),
        line('{"b":%s}' % ("[" * 9000 + "]" * 9000)),
        line('{"a":1}')[:-2] + b"\n",
        line('{"a":1}')[:-1] + b"x\n",
        line('{"a":1}')[:-1] + line('{"a":1}'),
        b"\xef\xbb\xbf" + line('{"a":1}'),
    ],
)
def test_another_line_is_refused_without_a_trace(text: bytes) -> None:
    block = decoded(line('{"a":5}') + text + line('{"a":"x"}'))

    assert block.columns[0].to_pylist() == [5, None]
    assert (len(block.lines), len(block.cells), block.line_count) == (2, 1, 3)
    assert block.lines.numbers.tolist() == [0, 2]
    assert block.refused.numbers.tolist() == ([] if text == b"\n" else [1])


def test_a_key_in_quotes_is_not_a_key_that_contains_quotes() -> None:
    block = NativeDecoder([Field("a", 'a"b', Int64()), Field("b", "", Int64())]).decode(
        line('{"a"b":1}') + line(r'{"a\"b":1,"":2}')
    )

    assert [column.to_pylist() for column in block.columns] == [[1], [2]]
    assert block.refused.numbers.tolist() == [0]


def test_changes_that_the_source_reports_are_read() -> None:
    change = {"field": "a", "change": "NULLED", "reason": None}
    block = decoded(line(after=f',"meta":{json.dumps({"changes": [change]})}') + line(after=',"meta":null') + line())

    assert block.source_changes.to_pylist() == [[change], None, None]


def test_each_column_beside_a_whole_record_gets_the_whole_data() -> None:
    text = line('{"n":1}')

    block = NativeDecoder([WHOLE_RECORD, Field("n", "n", Int64())]).decode(text)

    assert [column.to_pylist() for column in block.columns] == [['{"n":1}'], [None]]
    [cell] = block.cells
    assert (cell.column, text[cell.start : cell.end]) == (1, b'{"n":1}')


# --- Without the library --------------------------------------------------------------------------------------------

READ = """
import sys
from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.schema.types import Field, Int64, String
columns = [Field("a", "a", Int64()), Field("b", "b", String())]
for part in BlockDecoder(columns).decode(sys.stdin.buffer.read()):
    print(part.lines.numbers.tolist(), [column.to_pylist() for column in part.columns], len(part.rejected))
"""


def test_without_the_library_records_are_read_slowly_and_a_warning_says_so(tmp_path: Path) -> None:
    package = Path(destination_datalake.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    text = line('{"a":1,"b":"x"}') + b"\n" + line('{"a":2,"b":null}')

    run = subprocess.run(
        [sys.executable, "-c", READ], input=text, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True
    )

    assert run.stdout.decode() == "[0, 2] [[1, 2], ['x', None]] 0\n", run.stderr.decode()
    assert "Cannot load the native library" in run.stderr.decode()
