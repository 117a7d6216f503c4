"""Undeclared fields are found by name; their values are never named."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from destination_datalake.records.undeclared import (
    MANY_NAMES,
    NAMES_LISTED,
    SAMPLE_BYTES,
    SAMPLE_LINES,
    undeclared_fields,
    undeclared_warning,
)
from destination_datalake.schema.types import Field, Int64, Json, List, String, Struct

ADDRESS = Struct((Field("city", "City", String()), Field("geo", "geo", Struct((Field("lat", "lat", Int64()),)))))
COLUMNS = [
    Field("id", "id", Int64()),
    Field("address", "address", ADDRESS),
    Field("items", "items", List(List(ADDRESS))),
    Field("any", "any", Json()),
]


def lines(*data: object) -> bytes:
    return b"".join(json.dumps({"record": {"data": record, "emitted_at": 1}}).encode() + b"\n" for record in data)


@pytest.mark.parametrize(
    ("data", "paths"),
    [
        ({"id": 1, "address": {"City": "x", "geo": {"lat": 1}}, "any": {"x": 1}}, []),
        ({"id": 1, "surname": "secret", "ID": 2}, ["ID", "surname"]),
        ({"address": {"street": "secret", "geo": {"lon": 1}}}, ["address.geo.lon", "address.street"]),
        ({"address": {"city": "the name in the table is not the name in the record"}}, ["address.city"]),
        ({"items": [[{"zip": 1}, {"City": "x"}], [{"geo": {"alt": 1}}]]}, ["items[][].geo.alt", "items[][].zip"]),
        ({"address": "no object", "items": {"no": "list"}, "more": None}, ["more"]),
        ({"address": None, "items": [None, [None, 5, {"x": 1}]]}, ["items[][].x"]),
        (
            {"_airbyte_raw_id": 1, "_airbyte_data": 2, "address": {"_airbyte_meta": 3}},
            ["_airbyte_data", "address._airbyte_meta"],
        ),
        ({"": 1, "a.b": 2, 'q"': 3}, ["", "a.b", 'q"']),
    ],
)
def test_undeclared_fields_are_found_by_their_paths(data: object, paths: Sequence[str]) -> None:
    assert undeclared_fields(lines({"id": 1}, data), COLUMNS) == tuple(paths)


def test_only_the_first_records_are_sampled() -> None:
    few = lines(*[{"id": 1}] * (SAMPLE_LINES - 1), {"late": 1}, {"too_late": 1})
    long = lines({"id": "x" * SAMPLE_BYTES}, {"after": 1})

    assert undeclared_fields(few, COLUMNS) == ("late",)
    assert undeclared_fields(long, COLUMNS) == ()


def test_lines_that_msgspec_refuses_are_skipped() -> None:
    refused = [b"not JSON\n", b'{"record":{"data":[1]}}\n', b"\xff\n", b"[" * 100_000 + b"\n", b"\n"]

    assert undeclared_fields(b"".join([*refused, lines({"x": float("nan")}), lines({"new": 1})]), COLUMNS) == ("new",)


def test_keys_of_an_object_used_as_a_map_are_named_by_a_star() -> None:
    few = {f"key {number:02}": 1 for number in range(MANY_NAMES)}
    many = {f"person{number}@example.com": 1 for number in range(MANY_NAMES + 1)}

    assert undeclared_fields(lines({"address": few}), COLUMNS) == tuple(f"address.{key}" for key in few)
    assert undeclared_fields(lines({"address": many}, many), COLUMNS) == ("*", "address.*")


@pytest.mark.parametrize(
    "key",
    ["ann@example.com", "4711", "+49 170 1234567", "2024-05-01T10:00:00Z", "3f2504e0-4f89-11d3-9a0c-0305e82c3301"],
)
def test_a_key_that_is_data_is_named_by_a_star(key: str) -> None:
    assert undeclared_fields(lines({key: 1, "address": {key: 1}}), COLUMNS) == ("*", "address.*")


def test_keys_that_hardly_recur_are_data() -> None:
    people = [{"id": 1, "nick": 1, "address": {name: 1}} for name in ("ann", "bob", "cyd", "dan")]

    assert undeclared_fields(lines(*people), COLUMNS) == ("address.*", "nick")
    assert undeclared_fields(lines(*people[:3]), COLUMNS) == ("address.ann", "address.bob", "address.cyd", "nick")


@pytest.mark.parametrize("name", ["\x1b[31mred", "two\nlines", "right\u202eleft", "a, b", "'quoted'"])
def test_the_warning_quotes_names_that_are_no_words(name: str) -> None:
    warning = undeclared_warning("orders", [name, "plain"])

    assert f"does not declare: {', '.join(sorted([repr(name), 'plain']))}." in warning
    assert warning.isprintable()


def test_the_warning_lists_some_names_and_counts_the_rest() -> None:
    warning = undeclared_warning("shop.orders", [f"f{number:02}" for number in range(NAMES_LISTED + 3)] * 2)

    assert warning.startswith(
        "Stream shop.orders: the connector does not write fields that the schema does not declare"
    )
    assert "f00, f01, " in warning
    assert f"f{NAMES_LISTED - 1} and 3 more." in warning
    assert f"f{NAMES_LISTED}," not in warning


def test_a_long_name_is_cut() -> None:
    [path] = undeclared_fields(lines({"x" * 5000: 1}), COLUMNS)

    assert path == "x" * 100 + "…"
