"""The judge itself: which rows it takes for what was sent, and which it does not."""

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from integration_tests.chaos.histories.judge import Columns
from integration_tests.chaos.histories.reader import require_partition_types
from integration_tests.chaos.verdicts.reader import Broken

Values = Mapping[str, Any]


def row(changed: str | None = None, **values: object) -> dict[str, Any]:
    changes = [] if changed is None else [{"field": changed, "change": "NULLED", "reason": ""}]
    return {"_airbyte_meta": {"sync_id": 1, "changes": changes}, **values}


@pytest.mark.parametrize(
    ("sent", "stored", "right"),
    [
        pytest.param({"aB": 2000}, row(a_b=2000), True, id="whatever the column is called"),
        pytest.param({"aB": 2000}, row(a_b=2001), False, id="another value"),
        pytest.param({"aB": 2000}, row(a_b=None), False, id="no value"),
        pytest.param({"aB": 2000}, row(a_b=2000, more=7), False, id="a value that was not sent"),
        pytest.param({"aB": True}, row(a_b=1), False, id="a number for a truth"),
        pytest.param({"aB": 0.1}, row(a_b=Decimal("0.100")), True, id="a decimal"),
        pytest.param({"aB": 2**53 + 1}, row(a_b=float(2**53)), True, id="the nearest double"),
        pytest.param({"aB": "2024-02-29"}, row(a_b=date(2024, 2, 29)), True, id="a date"),
        pytest.param({"aB": "2024-02-29T12:00:00+05:30"}, row(a_b=datetime(2024, 2, 29, 6, 30)), True, id="in UTC"),
        pytest.param(
            {"aB": "2024-02-29T12:00:00Z"}, row(a_b=datetime(2024, 2, 29, 13, tzinfo=UTC)), False, id="an hour later"
        ),
        pytest.param({"aB": {"K": [1.5]}}, row(a_b='{"K":[1.5]}'), True, id="JSON text"),
        pytest.param({"x": {"y": "kleinod 1", "z": None}}, row(x_y="kleinod 1"), True, id="flattened"),
        pytest.param({"x": {}, "y": {}}, row(y="{}"), True, id="an empty object flattened, another as JSON text"),
        pytest.param({"x": {}, "y": {"z": 5}}, row(y="{}"), False, id="an empty object for one with a member"),
        pytest.param({"x": {"y": "kleinod 1"}}, row(x={"y": None}), False, id="no value in an object"),
        pytest.param({"x": {"y": "kleinod 1"}}, row(x={"y": "kleinod 1", "z": 5}), False, id="one more in an object"),
        pytest.param({"x": [1, None]}, row(x=[1]), False, id="an element less"),
        pytest.param({"x": 5, "y": 5}, row(a=5, b=5), True, id="two equal values"),
        pytest.param({"x": 5, "y": 5}, row(a=5), False, id="one for two"),
        pytest.param({"x": "many"}, row("x", x=None), True, id="null, and told"),
        pytest.param({"x": {"y": "many", "z": 2000}}, row("x.y", x={"y": None, "z": 2000}), True, id="told of a part"),
    ],
)
def test_a_row_is_what_was_sent_or_says_what_was_changed(sent: Values, stored: Values, right: bool) -> None:
    doubtful = frozenset({"x"}) if stored["_airbyte_meta"]["changes"] else frozenset[str]()

    with nullcontext() if right else pytest.raises(Broken):
        assert Columns().judge(stored, sent, doubtful) == doubtful


def test_a_value_that_fits_must_not_be_told_to_be_changed() -> None:
    with pytest.raises(Broken, match="told to be changed"):
        Columns().judge(row("x", x=None), {"x": 2000}, frozenset())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(({"+1": 2000}, {"_1": 2000}), ({"-1": 2001}, {"_1": 2001}), id="column"),
        pytest.param(
            ({"x": {"+1": 2000}}, {"x": {"_1": 2000}}), ({"x": {"-1": 2001}}, {"x": {"_1": 2001}}), id="member"
        ),
        pytest.param(
            ({"x": [{"+1": 2000}]}, {"x": [{"_1": 2000}]}), ({"x": [{"-1": 2001}]}, {"x": [{"_1": 2001}]}), id="element"
        ),
    ],
)
def test_nothing_holds_two_fields(first: tuple[Values, Values], second: tuple[Values, Values]) -> None:
    columns = Columns()
    sent, stored = first
    columns.judge(row(**stored), sent, frozenset())

    sent, stored = second
    with pytest.raises(Broken, match="in no column"):
        columns.judge(row(**stored), sent, frozenset())


@pytest.mark.parametrize(
    ("own", "table", "is_stale", "right"),
    [
        pytest.param("int", "int", False, True, id="the table's type"),
        pytest.param("int", "bigint", True, True, id="narrower, until the next sync"),
        pytest.param("int", "bigint", False, False, id="narrower for ever"),
        pytest.param("bigint", "int", True, False, id="wider"),
        pytest.param("string", "bigint", True, False, id="another type"),
        pytest.param("struct<a:int>", "struct<a:bigint,b:string>", True, True, id="narrower in a struct"),
        pytest.param("array<struct<a:double>>", "array<struct<a:float>>", True, False, id="wider in a list"),
    ],
)
def test_partition_may_be_narrower_than_its_table_while_it_is_stale(
    own: str, table: str, is_stale: bool, right: bool
) -> None:
    with nullcontext() if right else pytest.raises(Broken, match="in a partition"):
        require_partition_types({"x": own}, {"x": table, "y": "int"}, is_stale=is_stale)
