"""Lineage: the events of a sync, sent to a file or a server, with what OpenLineage's specification asks for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from destination_datalake.config.options import Config
from destination_datalake.reports.notices import emit
from destination_datalake.reports.report import ReportLine
from unit_tests.config.examples import options
from unit_tests.reports.lines import a_line, a_stream

ACCOUNT = "123456789012"
COLUMNS = {"landing.orders": {"id": "long", "address": "struct<2: city: optional string>"}}


def report(status: str = "finished", **members: Any) -> list[ReportLine]:
    sync = a_line(status=status, versions={"pyspark": "4.1.0"}, error="No access." if status == "failed" else None)
    return [sync, a_stream("orders", row_count=7, bytes_written=123, files=2, snapshot_id=42, **members)]


def sent(folder: Path, lines: list[ReportLine]) -> list[dict[str, Any]]:
    """The events that the file has."""
    path = folder / "lineage.jsonl"
    emit(Config.parse(options(lineage={"endpoint": str(path)})), ACCOUNT, lines, COLUMNS)
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("status", "state"),
    [("finished", "COMPLETE"), ("failed", "FAIL"), ("partial", "FAIL"), ("terminated", "ABORT")],
)
def test_a_sync_starts_and_ends(tmp_path: Path, status: str, state: str) -> None:
    start, end = sent(tmp_path, report(status))

    assert (start["eventType"], end["eventType"]) == ("START", state)
    assert start["run"]["runId"] == end["run"]["runId"] == str(UUID(end["run"]["runId"]))
    assert start["job"] == end["job"]
    assert (start["eventTime"], end["eventTime"]) == ("2026-11-02T06:00:00Z", "2026-11-02T06:01:00Z")
    assert end["run"]["facets"].get("errorMessage", {}).get("message") == ("No access." if status == "failed" else None)


def test_the_environment_of_the_process_does_not_turn_events_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "openlineage.yml").write_text("filters: [{type: regex, regex: '.*'}]\n")
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(tmp_path / "openlineage.yml"))
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")

    assert [event["eventType"] for event in sent(tmp_path, report())] == ["START", "COMPLETE"]


def test_a_table_has_its_schema_statistics_and_version(tmp_path: Path) -> None:
    _, end = sent(tmp_path, report(sync_mode="overwrite"))

    assert [dataset["name"] for dataset in end["inputs"]] == ["orders"]
    [table] = end["outputs"]
    assert (table["namespace"], table["name"]) == (f"arn:aws:glue:eu-west-1:{ACCOUNT}", "table/landing/orders")
    assert [field["name"] for field in table["facets"]["schema"]["fields"]] == ["id", "address"]
    assert table["facets"]["version"]["datasetVersion"] == "42"
    assert table["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    statistics = table["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"], statistics["fileCount"]) == (7, 123, 2)


def test_every_event_and_facet_names_its_producer_and_schema(tmp_path: Path) -> None:
    """What the specification requires (OpenLineage.json: BaseEvent, RunEvent, BaseFacet)."""
    for event in sent(tmp_path, report("failed")):
        assert {"eventTime", "producer", "schemaURL", "run", "job"} <= event.keys()
        of_datasets = [dataset for kind in ("inputs", "outputs") for dataset in event[kind]]
        groups = [event["run"], event["job"], *of_datasets]
        facets = [facet for group in groups for facet in group.get("facets", {}).values()]
        facets += [facet for group in of_datasets for facet in group.get("outputFacets", {}).values()]
        assert facets
        for facet in facets:
            assert facet["_producer"].startswith("https://")
            assert facet["_schemaURL"].startswith("https://openlineage.io/spec/")


@contextmanager
def server(status: int, **headers: str) -> Iterator[tuple[str, list[tuple[str, str | None, dict[str, Any]]]]]:
    """A server that answers with this status, and what it was sent: path, authorization, event."""
    came: list[tuple[str, str | None, dict[str, Any]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            came.append((self.path, self.headers["Authorization"], json.loads(body)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}", came
        listening.shutdown()


def test_a_server_is_sent_the_events_with_the_key() -> None:
    with server(201) as (url, came):
        emit(Config.parse(options(lineage={"endpoint": url, "api_key": "s3cr3t-key"})), ACCOUNT, report(), COLUMNS)

    assert [(path, key, event["eventType"]) for path, key, event in came] == [
        ("/api/v1/lineage", "Bearer s3cr3t-key", "START"),
        ("/api/v1/lineage", "Bearer s3cr3t-key", "COMPLETE"),
    ]


def test_redirect_to_another_host_does_not_get_the_key() -> None:
    with server(201) as (target, redirected), server(307, Location=f"{target}/api/v1/lineage") as (url, came):
        endpoint = url.replace("127.0.0.1", "localhost")
        emit(Config.parse(options(lineage={"endpoint": endpoint, "api_key": "s3cr3t-key"})), ACCOUNT, report(), COLUMNS)

    assert [key for _, key, _ in came] == ["Bearer s3cr3t-key"] * 2
    assert [key for _, key, _ in redirected] == [None] * 2


def test_a_server_that_fails_is_not_asked_again() -> None:
    with server(500) as (url, came), pytest.raises(Exception, match="500"):
        emit(Config.parse(options(lineage={"endpoint": url})), ACCOUNT, report(), COLUMNS)

    assert len(came) == 1


def test_the_key_is_a_secret() -> None:
    config = Config.parse(options(lineage={"endpoint": "http://marquez:5000", "api_key": "s3cr3t-key"}))

    assert "s3cr3t-key" in config.secrets()
    assert "s3cr3t-key" not in repr(config)
