"""States: every one comes back, byte for byte, in order, and only when it is true."""

import pytest
from emulated_aws.server import AwsServer

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.output import Run, record_count, same_text, without_stats
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

SCHEMA = object_schema(id=INTEGER)
ORDERS, USERS = configured_stream("orders", SCHEMA), configured_stream("users", SCHEMA)
END = [status("orders", "COMPLETE"), status("users", "COMPLETE")]

VERBATIM = {
    "id and partition": b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders"},'
    b'"stream_state":{"cursor":1}},"id":1,"partition_id":"p-1","sourceStats":{"recordCount":1.0}}}',
    "unknown keys": b'{"type":"STATE","extra":[1],"state":{"type":"STREAM","stream":{"stream_descriptor":'
    b'{"name":"orders","namespace":null,"x":1},"stream_state":{},"y":{"z":null}},"id":2,"new":{"a":[]}}}',
    "null state": b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders"},'
    b'"stream_state":null},"id":3,"global":null,"data":null}}',
    "numbers and escapes": b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders"},'
    b'"stream_state":{"big":123456789012345678901234567890,"e":1E400,"f":1.10,"u":"\\u00e9\\u2028\\/"}},"id":4}}',
    "white space": b'{ "type" : "STATE", "state" : { "type" : "STREAM", "stream" : { "stream_descriptor" : '
    b'{ "name" : "orders" }, "stream_state" : { "a b" : " c " } }, "id" : 5 } }',
    "statistics of another destination": b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":'
    b'{"name":"orders"},"stream_state":{"c":6}},"id":6,"destinationStats":{"recordCount":99.0}}}',
    "global": b'{"type":"STATE","state":{"type":"GLOBAL","global":{"shared_state":{"lsn":1},"stream_states":'
    b'[{"stream_descriptor":{"name":"orders"},"stream_state":null}]},"id":7}}',
    "global without stream states": b'{"type":"STATE","state":{"type":"GLOBAL","global":{"shared_state":1},"id":8}}',
    "global under PyAirbyte's key": b'{"type":"STATE","state":{"type":"GLOBAL","global_":{"shared_state":{"l":1},'
    b'"stream_states":[]},"stream":null,"id":9}}',
    "legacy": b'{"type":"STATE","state":{"type":"LEGACY","data":{"cursor":1},"id":10}}',
    "legacy without type": b'{"type":"STATE","state":{"data":{"orders":{"cursor":"2"}},"id":11}}',
    "stream without type": b'{"type":"STATE","state":{"stream":{"stream_descriptor":{"name":"orders"}},"id":12}}',
    "keys without a form in bytes": b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":'
    b'{"name":"orders"},"stream_state":{"\\ud83d":1}},"\\udc00":{"\\ud83d":NaN},"id":13}}',
}
"""STATE lines that a destination may receive."""


@pytest.fixture(scope="module")
def echoed(aws: AwsServer, launch: WarmLaunch, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One sync with one record before each of the states above."""
    platform = Platform(tmp_path_factory.mktemp("states"), launch)
    lines = [line for sent in VERBATIM.values() for line in (record("orders", {"id": 1}), sent)]
    return platform.write(Lake(aws.endpoint_url).config(), {"streams": [ORDERS, USERS]}, [*lines, *END])


@pytest.fixture
def warehouse(lake: Lake, platform: Platform) -> Warehouse:
    """The kind of table makes no difference to states; this is the default one."""
    return Warehouse(lake, platform, TABLE_KINDS[0])


@pytest.mark.parametrize(("number", "sent"), list(enumerate(VERBATIM.values(), start=1)), ids=list(VERBATIM))
def test_a_state_comes_back_as_it_was_sent(echoed: Run, number: int, sent: bytes) -> None:
    assert echoed.exit_code == 0, echoed.report()

    (answer,) = [answer for answer in echoed.states if answer.body["id"] == number]

    assert same_text(without_stats(answer.raw), without_stats(sent))


def test_the_counts_of_all_states_together_are_the_records_they_speak_for(echoed: Run) -> None:
    assert sum(record_count(answer) for answer in echoed.states) == len(VERBATIM)


def test_many_states_in_a_row_are_all_answered(warehouse: Warehouse) -> None:
    states = [state("orders", number, id=number) for number in range(2000)]

    run = warehouse.sync([ORDERS], [record("orders", {"id": 1}), *states, *END[:1]])

    assert [answer.body["id"] for answer in run.states] == list(range(2000))
    assert [record_count(answer) for answer in run.states] == [1] + [0] * 1999


def test_a_state_comes_although_stdin_has_gone_quiet(warehouse: Warehouse) -> None:
    with warehouse.start([ORDERS], flush_interval_seconds=1) as running:
        running.send([record("orders", {"id": 1}), state("orders", 1)])

        running.wait_for_state(timeout=60)

        assert warehouse.ids("orders") == [1]
        running.send(END[:1])
        assert running.close().exit_code == 0


def test_a_state_waits_for_its_records(warehouse: Warehouse) -> None:
    with warehouse.start([ORDERS, USERS], flush_interval_seconds=3600) as running:
        running.send([record("orders", {"id": 1}), state("orders", 1, id=1), state("users", 1, id=2)])

        assert running.wait_for_state().body["id"] == 2, "the state that waits for nothing comes first"

        running.send(END)
        run = running.close()
    assert [answer.body["id"] for answer in run.states] == [2, 1]


def test_a_stream_s_data_is_not_deleted_by_a_null_state(warehouse: Warehouse) -> None:
    warehouse.sync([ORDERS], [record("orders", {"id": 1}), END[0]])

    warehouse.sync([ORDERS], [state("orders", None), state("orders", {}), END[0]])

    assert warehouse.ids("orders") == [1]
