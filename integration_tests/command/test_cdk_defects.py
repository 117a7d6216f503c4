"""What the CDK's own reading and printing does wrong, shown on the CDK itself, and what this connector does instead.

Each test first shows the defect. If one of those halves fails after an update of the CDK, the CDK has mended it, and
the part of this connector that stands in for it may go.
"""

import json
import logging
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from airbyte_cdk.models.airbyte_protocol_serializers import AirbyteMessageSerializer, ConfiguredAirbyteCatalogSerializer

from destination_datalake.destination import DestinationDatalake
from destination_datalake.protocol.catalog import parse_catalog
from integration_tests.aws.server import AwsServer
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record
from integration_tests.harness.runs.output import Run, same_text, without_stats
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch

STREAM_STATE = (
    b'{"type":"STATE","state":{"type":"STREAM","stream":{"stream_descriptor":{"name":"orders"},"stream_state":null,'
    b'"extra":1},"id":7,"partition_id":"p1","sourceStats":{"recordCount":2.0,"rejectedRecordCount":0.0}}}'
)
GLOBAL_STATE = b'{"type":"STATE","state":{"type":"GLOBAL","global":{"shared_state":{"lsn":1}},"id":8}}'
ODD_BUT_VALID = [
    b'{"type":"HOLIDAY_GREETING","greeting":{}}',
    b'{"type":"TRACE","trace":{"type":"WEATHER","emitted_at":1}}',
    b'{"type":"RECORD","record":{"stream":"orders","data":{"id":3},"emitted_at":1700000000000.5}}',
    b'{"type":"RECORD","record":{"stream":"orders","data":{"id":4},"emitted_at":1700000000000,'
    b'"meta":{"changes":[{"field":"x","change":"NULLED","reason":"FULL_MOON"}]}}}',
]
DIGITS = "123456789012345678901234567890"
EXACT = record("orders", {"id": 5, "open": {"n": int(DIGITS)}})
HUGE = b'{"type":"RECORD","record":{"stream":"orders","data":{"id":6,"open":{"secretive":1E400}},"emitted_at":1}}'
SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}, "open": {"type": "object"}}}


def catalog_without_supported_sync_modes() -> dict[str, object]:
    stream: dict[str, Any] = configured_stream("orders", SCHEMA, generation=None, minimum=None, sync_id=None)
    del stream["stream"]["supported_sync_modes"]
    return configured_catalog(stream)


class Landed:
    """One sync of everything below, and what a reader finds afterwards."""

    def __init__(self, run: Run, rows: list[dict[str, Any]]) -> None:
        self.run = run
        self.rows: Mapping[int, dict[str, Any]] = {row["id"]: row for row in rows}


@pytest.fixture(scope="module")
def landed(aws: AwsServer, launch: WarmLaunch, tmp_path_factory: pytest.TempPathFactory) -> Landed:
    lake = Lake(aws.endpoint_url)
    lines = [record("orders", {"id": 1}), STREAM_STATE, *ODD_BUT_VALID, EXACT, HUGE, GLOBAL_STATE]
    run = Platform(tmp_path_factory.mktemp("sync"), launch).write(
        lake.config(), catalog_without_supported_sync_modes(), [*lines]
    )
    return Landed(run, lake.rows(lake.database, "orders"))


def stock_messages(*lines: bytes) -> list[Any]:
    """What the CDK's own parser makes of these lines; any subclass of its Destination has it."""
    stdin = TextIOWrapper(BytesIO(b"\n".join(lines) + b"\n"), encoding="utf-8")
    return list(DestinationDatalake()._parse_input_stream(stdin))


@pytest.mark.parametrize(("line", "lost"), [(STREAM_STATE, {"id", "partition_id"}), (GLOBAL_STATE, {"id"})])
def test_1_states_come_back_with_every_field_that_the_cdk_would_drop(
    landed: Landed, line: bytes, lost: set[str]
) -> None:
    sent = json.loads(line)
    if "stream" in sent["state"]:
        dumped = AirbyteMessageSerializer.dump(stock_messages(line)[0])
        assert lost & dumped["state"].keys() == set()
        assert "stream_state" not in dumped["state"]["stream"]

    echoed = [state for state in landed.run.states if state.body["id"] == sent["state"]["id"]]

    assert len(echoed) == 1
    assert same_text(without_stats(echoed[0].raw), line)


@pytest.mark.parametrize("line", [*ODD_BUT_VALID, GLOBAL_STATE])
def test_2_valid_json_that_the_cdk_s_classes_do_not_know_does_not_end_the_sync(landed: Landed, line: bytes) -> None:
    with pytest.raises(Exception, match=r".+"):
        stock_messages(line)

    assert landed.run.exit_code == 0, landed.run.report()
    assert {3, 4} <= landed.rows.keys()


def test_3_a_catalog_without_supported_sync_modes_is_a_catalog(landed: Landed) -> None:
    catalog = catalog_without_supported_sync_modes()
    with pytest.raises(Exception, match="supported_sync_modes"):
        ConfiguredAirbyteCatalogSerializer.load(catalog)

    assert [stream.id.name for stream in parse_catalog(catalog)] == ["orders"]
    assert landed.run.exit_code == 0


def test_4_digits_stay_as_they_are(landed: Landed) -> None:
    [message] = stock_messages(EXACT)
    assert message.record.data["open"]["n"] == pytest.approx(1.2345678901234568e29)

    assert DIGITS in landed.rows[5]["open"]


def test_4_a_number_no_float_can_hold_is_neither_skipped_nor_printed(
    landed: Landed, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "airbyte"):
        assert stock_messages(HUGE) == []
    assert "secretive" in caplog.text

    assert "1E400" in landed.rows[6]["open"]
    assert "secretive" not in "\n".join(landed.run.logs)


STOCK = """
import sys
from airbyte_cdk import AirbyteMessage, ConnectorSpecification, Destination, Type

class Stock(Destination):
    def spec(self, logger):
        return ConnectorSpecification(connectionSpecification={})
    def check(self, logger, config):
        raise NotImplementedError
    def write(self, config, configured_catalog, input_messages):
        raise NotImplementedError
    def run_cmd(self, parsed_args):
        yield AirbyteMessage(type=Type.SPEC, spec=self.spec(None))
        # Resumed only after the message before was printed.
        sys.stderr.write("printed")
        sys.stderr.flush()
        sys.stdin.read()

Stock().run(["spec"])
"""
OURS = """
import sys
from destination_datalake.protocol.stdout import Stdout
Stdout.claim().write_line(b'{"type":"STATE"}')
sys.stderr.write("printed")
sys.stderr.flush()
sys.stdin.read()
"""


class Writer:
    """A program that prints one message, says so on stderr, and waits until its stdin ends."""

    def __init__(self, program: str, **environment: str) -> None:
        # In packet mode, one read gives what one write wrote.
        self._stdout, write_end = os.pipe2(os.O_DIRECT)
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=inherited | environment,
        )
        os.close(write_end)

    def first_write(self) -> bytes | None:
        """What the first write after printing held; None if nothing had been written when the message was printed."""
        assert self._process.stderr is not None
        said = b""
        while not said.endswith(b"printed"):
            piece = os.read(self._process.stderr.fileno(), 1000)
            assert piece, said.decode()
            said += piece
        readable, _, _ = select.select([self._stdout], [], [], 0)
        found = os.read(self._stdout, 100_000) if readable else None
        self._process.communicate()
        os.close(self._stdout)
        return found


@pytest.mark.slow
def test_5_what_is_written_is_on_its_way_at_once() -> None:
    assert Writer(STOCK).first_write() is None

    assert Writer(OURS).first_write() == b'{"type":"STATE"}\n'


@pytest.mark.slow
def test_6_a_line_and_its_end_are_one_write_so_that_threads_cannot_come_between() -> None:
    stock = Writer(STOCK, PYTHONUNBUFFERED="1").first_write()
    assert stock is not None
    assert not stock.endswith(b"\n")

    ours = Writer(OURS, PYTHONUNBUFFERED="1").first_write()
    assert ours is not None
    assert ours.endswith(b"\n")


@pytest.mark.slow
def test_7_what_libraries_and_children_print_is_not_taken_for_the_protocol() -> None:
    noise = "print('a library', flush=True); os.system('echo a child')"
    stock = f"import os\n{STOCK.replace('sys.stdin.read()', noise)}"
    ours = f"import os, sys\nfrom destination_datalake.cli import run\nsys.argv = ['x', 'spec']\nrun()\n{noise}"

    polluted, clean = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
        for program in (stock, ours)
    )

    assert {"a library", "a child"} <= set(polluted)
    assert [json.loads(line)["type"] for line in clean] == ["SPEC"]


@pytest.mark.slow
def test_8_answering_spec_does_not_load_what_sources_need() -> None:
    def loaded(program: str) -> set[str]:
        end = "; import sys; sys.stderr.write(' '.join(sys.modules))"
        done = subprocess.run([sys.executable, "-c", program + end], capture_output=True, text=True, check=True)
        return set(done.stderr.split())

    stock = loaded("from airbyte_cdk.destinations import Destination")
    ours = loaded("import sys; from destination_datalake.cli import run; sys.argv = ['x', 'spec']; run()")

    assert any(name.startswith("airbyte_cdk.sources.declarative") for name in stock)
    assert not any(name.startswith("airbyte_cdk") for name in ours)
    assert len(ours) < len(stock) / 3


def test_the_connector_runs_from_a_checkout_as_from_its_package() -> None:
    main = Path(__file__).parents[2] / "main.py"

    done = subprocess.run([sys.executable, str(main), "spec"], capture_output=True, check=True)

    assert json.loads(done.stdout)["type"] == "SPEC"
