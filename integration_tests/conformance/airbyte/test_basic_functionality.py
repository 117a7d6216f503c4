"""Airbyte's BasicFunctionalityIntegrationTest here: records, states and names.

Each test bears its scenario's name, in snake case.
"""

from datetime import UTC, datetime

import pytest

from integration_tests.conformance.airbyte.orders import COMPLETE, ID_AND_NAME, emitted_at, order, orders
from integration_tests.harness.messages import configured_stream, global_state, record, state, status
from integration_tests.harness.runs.output import record_count, same_text, without_stats
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(2)


def test_basic_write(warehouse: Warehouse) -> None:
    """Records of a sync are rows with their metadata, and its state comes back."""
    sent = state("orders", 7, id=3)

    run = warehouse.sync([orders(generation=42, sync_id=9)], [order(5678, "foo"), sent, COMPLETE])

    (echoed,) = run.states
    assert same_text(without_stats(echoed.raw), sent)
    assert record_count(echoed) == 1
    row = warehouse.row("orders")
    assert (row["id"], row["name"]) == (5678, "foo")
    assert row["_airbyte_generation_id"] == 42
    assert row["_airbyte_meta"] == {"sync_id": 9, "changes": []}
    assert row["_airbyte_extracted_at"].replace(tzinfo=UTC) == datetime.fromtimestamp(emitted_at(5678) / 1000, UTC)


def test_state_message_before_records(warehouse: Warehouse) -> None:
    """A state that no record precedes is answered at once, stdin still open."""
    with warehouse.start([orders()]) as running:
        running.send([state("orders", 0)])

        assert record_count(running.wait_for_state()) == 0

        running.send([order(1), state("orders", 1), COMPLETE])
        run = running.close()
    assert [record_count(echoed) for echoed in run.states] == [0, 1]


def test_stream_state_types(warehouse: Warehouse) -> None:
    """Whatever a stream's state is, null and text and a list included, it comes back as it was sent."""
    cursors: list[object] = [None, {}, [1, "two"], "text", 1.0, {"deep": {"null": None}}]
    lines = [state("orders", cursor, id=number) for number, cursor in enumerate(cursors)]

    run = warehouse.sync([orders()], [order(1), *lines, COMPLETE])

    assert [same_text(without_stats(echoed.raw), sent) for echoed, sent in zip(run.states, lines, strict=True)] == [
        True
    ] * len(lines)


def test_cdc_state_types(warehouse: Warehouse) -> None:
    """A global state with shared state and stream states comes back whole, counting the records of all streams."""
    users = configured_stream("users", ID_AND_NAME)
    sent = global_state({"lsn": 3}, [(None, "orders"), (None, "users")], id=1, partition_id="p")

    run = warehouse.sync(
        [orders(), users], [order(1), record("users", {"id": 1}), sent, COMPLETE, status("users", "COMPLETE")]
    )

    (echoed,) = run.states
    assert same_text(without_stats(echoed.raw), sent)
    assert record_count(echoed) == 2


def test_mid_sync_checkpointing_stream_state(warehouse: Warehouse) -> None:
    """What a state has acknowledged survives a kill; the next sync continues from there."""
    with warehouse.start([orders()], flush_interval_seconds=1) as running:
        running.send([order(1), state("orders", 1)])
        running.wait_for_state()
        running.kill()
    assert warehouse.ids("orders") == [1]

    warehouse.sync([orders(sync_id=2)], [order(2), state("orders", 2), COMPLETE])

    assert warehouse.ids("orders") == [1, 2]


def test_namespaces(warehouse: Warehouse) -> None:
    """Streams of one name in two namespaces and in none are three tables."""
    first, second = warehouse.lake.name("ns1"), warehouse.lake.name("ns2")
    places = (first, second, None)

    warehouse.sync(
        [configured_stream("orders", ID_AND_NAME, namespace=place) for place in places],
        [
            *(record("orders", {"id": number}, namespace=place) for number, place in enumerate(places)),
            *(status("orders", "COMPLETE", namespace=place) for place in places),
        ],
    )

    assert [warehouse.ids("orders", place) for place in places] == [[0], [1], [2]]


FUNKY_NAMES = [
    "streamWithCamelCase",
    "stream_with_underscores",
    "STREAM_WITH_ALL_CAPS",
    "CapitalCase",
    "stream_with_spec:ial_character",
    "stream_with_edge_case_field_names",
    "stream with spaces",
    "streamWithÜmläut",
    "99_leading_digits",
    "order",
    "stream.with.dots",
    "emoji_🚀_stream",
    "c'est une belle histoire,./<>?'\";[]\\:{}|`~!@#$%^&*()_+-=",
]


def test_funky_characters(warehouse: Warehouse) -> None:
    """Names with every character there is become tables and columns; values, with any line break, come back."""
    schema = object_schema(
        id=INTEGER, **{"Foo.Bar": STRING, "camelCase": STRING, "spécial": STRING, "1st": STRING, "sel'ect": STRING}
    )
    value = "foo\nbar \r\n\t \" \\ \u2028\u2029\u0085\v\f é 🚀 ' ` ,"
    data = {"id": 1, "Foo.Bar": value, "camelCase": value, "spécial": value, "1st": value, "sel'ect": value}

    warehouse.sync(
        [configured_stream(name, schema) for name in FUNKY_NAMES],
        [*(record(name, data) for name in FUNKY_NAMES), *(status(name, "COMPLETE") for name in FUNKY_NAMES)],
    )

    tables = [table for database, table in warehouse.lake.tables() if database == warehouse.lake.database]
    assert len(tables) == len(FUNKY_NAMES)
    assert {"stream_with_camel_case", "order", "_99_leading_digits", "stream_with_spaces"} <= set(tables)
    for table in tables:
        row = warehouse.rows(table)[0]
        assert [name for name, kept in row.items() if kept == value] == [
            "foo_bar", "camel_case", "special", "_1st", "sel_ect",
        ]  # fmt: skip


@pytest.mark.slow
def test_many_streams_completion(warehouse: Warehouse) -> None:
    """Twenty-one streams end in one sync, each with its rows and its state."""
    names = [f"stream_{number}" for number in range(21)]

    run = warehouse.sync(
        [configured_stream(name, ID_AND_NAME) for name in names],
        [
            *(record(name, {"id": number}) for number, name in enumerate(names)),
            *(state(name, number) for number, name in enumerate(names)),
            *(status(name, "COMPLETE") for name in names),
        ],
    )

    assert len(run.states) == 21
    assert [warehouse.ids(name) for name in names] == [[number] for number in range(21)]


@pytest.mark.slow
def test_sync_with_large_record_batch(warehouse: Warehouse) -> None:
    """Many records with many states: all counted, all there."""
    count, every = 20_000, 500
    chunks = [range(start, start + every) for start in range(0, count, every)]
    lines = [line for chunk in chunks for line in (*map(order, chunk), state("orders", chunk.stop))]

    run = warehouse.sync([orders()], [*lines, COMPLETE])

    assert [record_count(answer) for answer in run.states] == [every] * len(chunks)
    assert warehouse.ids("orders") == list(range(count))


def test_no_data(warehouse: Warehouse) -> None:
    """A stream without records has a table without rows."""
    warehouse.sync([orders()], [COMPLETE])

    assert warehouse.rows("orders") == []
