"""Names through the command line: what odd names of streams and fields become, and that other engines read them."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TableKind

NUMBER = {"type": "integer"}
LONG = "Ж" * 150  # 300 bytes

FIELDS = {
    "id": "id",
    "first name": "first_name",
    "Foo.Bar": "foo_bar",
    "what?#100%": "what__100_",
    'it\'s "so" `\\': "it_s__so____",
    "tab\tand\nline": "tab_and_line",
    "京都": "京都",
    "हिन्दी": "हिन्दी",
    "Größe": "größe",
    "🎉": "unnamed_6146299c",
    "9Mega": "9mega",
    "select": "select",
    LONG: "ж" * 123 + "_1437f088",
    "a b": "a_b_c8687a08",
    "a_b": "a_b",
}
"""The names of integer fields, and of their columns where names are preserved."""

INSIDE = {"unit.price": "unit_price", "1e5": "_1e5", "京都": "京都", "हिन्दी": "ह_न_द_", "a-b": "a_b"}
"""The same for fields of objects."""

STREAMS = {
    "Café Orders?": "café_orders_",
    "a.b/c#d%20'\"": "a_b_c_d_20__",
    "京都": "京都",
    "हिन्दी": "हिन्दी",
    "🎉": "unnamed_6146299c",
    "9lives": "9lives",
    "table": "table",
    LONG: "ж" * 123 + "_1437f088",
}
"""The names of streams, and of their tables."""

OBJECT = {"type": "object", "properties": dict.fromkeys(INSIDE, NUMBER)}
SCHEMA: dict[str, Any] = {
    "properties": {**dict.fromkeys(FIELDS, NUMBER), "An Object": OBJECT, "list": {"type": "array", "items": OBJECT}}
}


def test_names_are_preserved_in_every_kind_of_table(lake: Lake, platform: Platform, table_kind: TableKind) -> None:
    # Given streams and fields with all that a name can hold, in a namespace that is left out of the tables' names
    streams = [
        configured_stream(name, SCHEMA, namespace="My Shop", generation=1, minimum=1) for name in (*STREAMS, "Ünïcode")
    ]
    values = {source: number for number, source in enumerate(FIELDS)}
    inside = {source: number for number, source in enumerate(INSIDE)}
    data = {**values, "An Object": inside, "list": [inside, inside]}
    lines = [line for name in STREAMS for line in _synced(name, data, "My Shop")]
    options = {"naming": {"style": "preserve"}, "database_strategy": "single", "table_prefix": "Raw_"}
    # When
    run = platform.write(
        lake.config(**table_kind.options, **options),
        configured_catalog(*streams),
        [*lines, status("Ünïcode", "COMPLETE", namespace="My Shop")],
    )
    # Then
    assert run.exit_code == 0, run.report()
    tables = [f"raw_{name}"[:255] for name in STREAMS.values()]
    tables[-1] = "raw_" + "ж" * 121 + "_1437f088"
    assert lake.tables() == sorted((lake.database, name) for name in [*tables, "raw_ünïcode"])
    kept_inside = {name: number for number, name in enumerate(INSIDE.values())}
    kept = {name: number for number, name in enumerate(FIELDS.values())}
    for table in tables:
        [row] = lake.rows(lake.database, table)
        own = {name: value for name, value in row.items() if not name.startswith("_airbyte")}
        assert own == {**kept, "an_object": kept_inside, "list": [kept_inside, kept_inside]}
        assert all(
            key.startswith(f"{PREFIX}/{lake.database}/{table}/") for key in lake.data_files(lake.database, table)
        )
    assert lake.rows(lake.database, "raw_ünïcode") == []
    # And the names that the source uses are there to be read
    columns = lake.glue_table(lake.database, tables[0])["StorageDescriptor"]["Columns"]
    comments = {column["Name"]: column.get("Comment") for column in columns}
    for source, name in FIELDS.items():
        expected = source.replace("\n", "\ufffd") if source != LONG else "Ж" * 126 + "…"
        assert comments[name] == (None if source == name else expected)
    inner = ",".join(f"{name}:int" for name in INSIDE.values())
    assert {column["Name"]: column.get("Type") for column in columns}["list"] == f"array<struct<{inner}>>"
    # And the log says once for each stream which fields meet
    [warning] = [text for text in run.logs if "names collide" in text and "table " in text]
    assert warning.startswith("WARN: ")
    assert "'a b' is a_b_c8687a08, 'a_b' is a_b" in warning


@pytest.mark.slow
def test_a_change_of_options_that_would_begin_new_tables_is_told_by_check(lake: Lake, platform: Platform) -> None:
    # Given tables with snake_case names in the databases of their namespaces
    shop = lake.name("Shop2")
    schema = {"properties": dict.fromkeys(["orderId", "address2", "Ключ", "select", "@#$%"], NUMBER)}
    streams = [configured_stream("OrderLines", schema, namespace=namespace) for namespace in (None, shop)]
    streams.append(configured_stream("v2", schema))
    lines = [*_synced("OrderLines", {"orderId": 1}), *_synced("OrderLines", {"Ключ": 2}, shop), *_synced("v2", {})]
    run = platform.write(lake.config(), configured_catalog(*streams), lines)
    assert run.exit_code == 0, run.report()
    database = shop.lower()
    assert lake.tables() == [(lake.database, "order_lines"), (lake.database, "v2"), (database, "order_lines")]
    [row] = lake.rows(database, "order_lines")
    names = ["order_id", "address2", "klyuch", "select", "at_number_percent"]
    assert [row[name] for name in names] == [None, None, 2, None, None]
    # When nothing has changed, there is nothing to say
    assert platform.check(lake.config()).connection_status == {"status": "SUCCEEDED"}
    # When the options have
    changes: list[tuple[dict[str, object], list[str]]] = [
        (
            {"database_strategy": "single", "table_prefix": "raw_"},
            [
                f"stream OrderLines was written to table {lake.database}.order_lines and would now be written to "
                f"{lake.database}.raw_order_lines",
                f"stream {shop}.OrderLines was written to table {database}.order_lines and would now be written to "
                f"{lake.database}.raw_order_lines",
            ],
        ),
        (
            {"naming": {"split_numbers": True}},
            [
                f"stream v2 was written to table {lake.database}.v2 and would now be written to {lake.database}.v_2",
                f"column address2 of table {lake.database}.order_lines (stream OrderLines) would be replaced by "
                "column address_2",
                f"stream {shop}.OrderLines was written to table {database}.order_lines and would now be written to "
                "shop_2_x",
            ],
        ),
    ]
    for given, told in changes:
        check = platform.check(lake.config(**given))
        # Then check succeeds and says what would be left
        assert check.connection_status["status"] == "SUCCEEDED"
        message = check.connection_status["message"]
        assert all(text in message for text in told), message
        assert f"INFO: {message}" in check.logs
        assert "If a different connection writes to these tables, no action is needed." in message
    # When another connection writes to the same bucket under a prefix of its own, and has done so
    own = lake.config(table_prefix="raw_", database_strategy="single")
    run = platform.write(own, configured_catalog(*streams[:1]), _synced("OrderLines", {"orderId": 1}))
    assert run.exit_code == 0, run.report()
    # Then there is nothing more to say of tables without a namespace, which are not its own
    message = platform.check(own).connection_status["message"]
    assert "stream OrderLines was" not in message


def _synced(stream: str, data: dict[str, Any], namespace: str | None = None) -> list[bytes]:
    return [record(stream, data, namespace=namespace), status(stream, "COMPLETE", namespace=namespace)]
