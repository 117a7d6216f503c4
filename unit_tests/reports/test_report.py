"""The lines of a report: their schema, their columns in Glue, and names and values that nobody expects."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import jsonschema
import msgspec
import pytest

from destination_datalake.config.options import Config
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.reports import report
from destination_datalake.reports.report import ReportLine, connection_id, decode, encode, sizes_of_files, timestamp
from unit_tests.config.examples import options
from unit_tests.reports.lines import a_line, a_stream

NO_TIME = encode([a_line()]).replace(b"2026-11", b"2026-13")


def test_a_line_has_the_published_schema_and_comes_back_as_it_was() -> None:
    lines = [
        a_line(),
        a_stream("orders", rejects=(report.Rejected("id", "R", 2),), new_columns=(report.Named("a", "int"),)),
    ]

    content = encode(lines)

    assert [*decode(content)] == lines
    for text in content.splitlines():
        jsonschema.validate(json.loads(text), report.schema())


def test_the_published_schema_is_that_of_the_lines() -> None:
    text = (resources.files("destination_datalake.reports") / "report.schema.json").read_text("utf-8")

    assert json.loads(text) == json.loads(json.dumps(report.schema())), "run `python -m docs.generator`"


def test_every_member_of_a_line_is_a_column_of_the_table() -> None:
    columns = report.glue_columns()

    assert [*columns] == [field.name for field in msgspec.structs.fields(ReportLine)]
    assert (columns["row_count"], columns["seconds"], columns["start_time"]) == ("bigint", "double", "timestamp")
    assert columns["rejects"] == "array<struct<column_name:string,reason:string,count:bigint>>"
    assert columns["aws_calls"] == "map<string,bigint>"
    assert not [name for name in columns if name == "day"]


@pytest.mark.parametrize("name", ['"quoted"\n', "名前", "a\x00b", "half \ud800 a pair", "x" * 5000])
def test_a_hostile_name_is_one_line_of_json(name: str) -> None:
    content = encode([a_stream(name)])

    assert content.count(b"\n") == 1
    [line] = decode(content)
    assert line.stream_name == name.encode("utf-8", "replace").decode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no json\n",
        b"{}\n",
        b'{"type": "source"}\n',
        b"\xff\xfe\n",
        b"[" * 5000,
        encode([a_line()]).replace(b"2026-11", b"2026-13"),
        json.dumps({**json.loads(encode([a_line()])), "sync_id": 10**400}).encode(),
        encode([a_line(finish_time="x")]),
        encode([a_line()]).replace(b"60.0", b"1e300"),
        encode([a_line(stages=(report.Stage("reading", 1e300, 1.0),))]),
    ],
)
def test_what_is_no_report_is_left_out(text: bytes) -> None:
    assert [*decode(text + b"\n" + encode([a_line()]))] == [a_line()]


def test_members_that_a_later_connector_adds_are_ignored() -> None:
    later: dict[str, Any] = {**json.loads(encode([a_line()])), "new_member": {"x": 1}}

    assert [*decode(json.dumps(later).encode())] == [a_line()]


def test_lines_of_a_higher_version_are_left_out() -> None:
    assert [*decode(encode([a_line(version=report.VERSION + 1), a_line("next")]))] == [a_line("next")]


def test_a_time_is_in_utc_and_comes_back() -> None:
    moment = datetime(2026, 2, 3, 4, 5, 6, 7000, UTC)

    assert timestamp(moment) == "2026-02-03 04:05:06.007"
    assert msgspec.structs.replace(a_line(), start_time=timestamp(moment)).started == moment


def test_a_connection_is_its_streams_and_where_they_go() -> None:
    config = Config.parse(options())
    streams = [StreamId("shop", "orders"), StreamId(None, "users")]

    expected = connection_id(config, reversed(streams))

    assert connection_id(config, streams) == expected
    assert connection_id(config, streams[:1]) != expected
    assert connection_id(config, [StreamId("shop", "orders"), StreamId(None, "half \ud800")]) != expected
    assert connection_id(Config.parse(options(bucket_prefix="elsewhere")), streams) != expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], (0, 0)),
        ([5], (1, 5, 5, 5, 5, 5)),
        ([4, 1, 3, 2], (4, 10, 1, 2, 3, 4)),
        ([*range(101)], (101, 5050, 0, 50, 90, 100)),
    ],
)
def test_sizes_of_files(sizes: list[int], expected: tuple[int, ...]) -> None:
    assert tuple(sizes_of_files(sizes).values()) == expected
