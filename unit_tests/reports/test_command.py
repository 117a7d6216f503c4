"""The commands that read reports: what they print, and their exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from destination_datalake.cli import _USER_COMMANDS
from destination_datalake.config.options import Config, aws_access
from destination_datalake.reports.command import run_health, run_history, run_report
from destination_datalake.reports.report import Rejected
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.config.examples import options
from unit_tests.reports.history import an_erasure
from unit_tests.reports.lines import a_line, a_stream
from unit_tests.reports.test_reading import report, write

NOW = datetime.now(UTC)


@pytest.fixture
def config(cloud: Cloud, tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    keys = {
        "credentials_title": "IAM User",
        "aws_access_key_id": "AKIAIOSFODNN7EXAMPLE",
        "aws_secret_access_key": "not-a-secret",
    }
    given = options(bucket_name=BUCKET, bucket_prefix="lake", region="us-east-1", credentials=keys)
    assert aws_access(Config.parse(given)) == cloud.access, "so that both have the same clients"
    path.write_text(json.dumps(given))
    return str(path)


def test_history_shows_the_newest_first(cloud: Cloud, config: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    report(cloud, "one", NOW - timedelta(hours=3))
    report(cloud, "two", NOW - timedelta(hours=1), status="failed", error="[red]No\x1b[2J access.")

    assert run_history(["--config", config]) == 0

    lines = capfdbinary.readouterr().out.decode().splitlines()
    rows = [line for line in lines if line.strip()[:1].isdigit()]
    assert [row.split()[2] for row in rows] == ["failed", "finished"]
    assert rows[0].endswith(r"[red]No\x1b[2J access.")


def test_history_as_json_has_the_lines(cloud: Cloud, config: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    report(cloud, "one", NOW)

    assert run_history(["--config", config, "--json", "--stream", "orders"]) == 0

    [run] = json.loads(capfdbinary.readouterr().out)
    assert (run["run_id"], run["status"], run["of_streams"][0]["stream_name"]) == ("one", "finished", "orders")


def test_history_says_of_which_streams_every_record_was_rejected(
    cloud: Cloud, config: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lost = a_stream("orders", "one", NOW, rows_received=7, rows_rejected=7, rejects=(Rejected("at", "R", 7),))
    write(cloud, "report.jsonl", a_line("one", NOW), lost, a_stream("users", "one", NOW, rows_received=1, row_count=1))

    assert run_history(["--config", config]) == 0

    assert b"orders: all 7 records were rejected; the main reason is R\n" in capfdbinary.readouterr().out


@pytest.mark.parametrize(("asked", "named"), [("order", "orders"), ("shop.orders", "orders"), ("x", "orders or users")])
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_history_of_an_unknown_stream_names_streams_of_the_reports(
    cloud: Cloud, config: str, capfdbinary: pytest.CaptureFixture[bytes], asked: str, named: str, more: list[str]
) -> None:
    write(cloud, "report.jsonl", a_line("one", NOW), a_stream("orders", "one", NOW), a_stream("users", "one", NOW))

    assert run_history(["--config", config, "--stream", asked, *more]) == 1

    output = capfdbinary.readouterr()
    assert output.out == b""
    assert f"--stream {asked}: no sync of the last 30 days contained this stream." in output.err.decode()
    assert output.err.decode().endswith(f"for example {named}.\n")


@pytest.mark.parametrize(("status", "code"), [("finished", 0), ("failed", 1)])
def test_health_fails_if_a_table_is_unhealthy(
    cloud: Cloud, config: str, capfdbinary: pytest.CaptureFixture[bytes], status: str, code: int
) -> None:
    write(cloud, "report.jsonl", a_line("one", NOW, status=status), a_stream("orders", "one", NOW, status=status))

    assert run_health(["--config", config]) == code
    assert run_health(["--config", config, "--json"]) == code

    *_, line = capfdbinary.readouterr().out.decode().splitlines()
    [table] = json.loads(line)
    assert (table["table"], bool(table["findings"])) == ("landing.orders", bool(code))


def test_history_without_reports_says_so(config: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run_history(["--config", config]) == 0

    assert b"contains no sync reports of the last" in capfdbinary.readouterr().err


@pytest.mark.parametrize("days", [None, 45])
def test_health_without_recent_reports_fails(
    cloud: Cloud, config: str, capfdbinary: pytest.CaptureFixture[bytes], days: int | None
) -> None:
    if days is not None:
        report(cloud, "old", NOW - timedelta(days=days))

    assert run_health(["--config", config]) == 1

    last = "Check bucket_name" if days is None else f"The newest report is from {NOW - timedelta(days=45):%Y-%m-%d}"
    message = f"Unhealthy: folder s3://{BUCKET}/lake/_reports/ contains no sync reports of the last 30 days. {last}"
    assert capfdbinary.readouterr().err.decode().startswith(message)
    assert run_health(["--config", config, "--json"]) == 1
    assert json.loads(capfdbinary.readouterr().out) == []
    assert run_health(["--config", config, "--days", "60"]) == (1 if days is None else 0)


@pytest.mark.parametrize("member", ["rows_received", "generation_id", "snapshot_id", "seconds"])
def test_a_line_with_a_huge_number_hides_no_other_line(
    cloud: Cloud, config: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], member: str
) -> None:
    report(cloud, "good", NOW)
    report(cloud, "broken", NOW)
    [key] = [key for key in cloud.objects() if key.endswith("run_id=broken/report.jsonl")]
    lines = [{**json.loads(line), member: 7} for line in cloud.objects()[key].splitlines()]
    body = "\n".join(map(json.dumps, lines)).replace(f'"{member}": 7', f'"{member}": 1{"0" * 400}')
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=body.encode())

    assert run_report(["--config", config, "--html", str(tmp_path / "page.html")]) == 0
    assert run_history(["--config", config, "--json"]) == 0

    assert [run["run_id"] for run in json.loads(capfdbinary.readouterr().out)] == ["good"]


def test_the_page_has_what_the_ledger_of_erasures_says(cloud: Cloud, config: str, tmp_path: Path) -> None:
    """Or a word that it cannot be read, as it may be for other eyes."""
    page, s3 = tmp_path / "page.html", cloud.access.client("s3")
    requests = [an_erasure(number).request for number in range(3)]
    for number, request in enumerate(requests):
        folder = f"lake/_deletions/{request.id}"
        s3.put_object(Bucket=BUCKET, Key=f"{folder}/request.json", Body=msgspec.json.encode(request))
        report = {"complete": True, "found_afterwards": 0, "places": [{"rows_removed": 7}, {"rows_removed": number}]}
        s3.put_object(Bucket=BUCKET, Key=f"{folder}/report.json", Body=json.dumps(report).encode())

    assert run_report(["--config", config, "--html", str(page)]) == 0

    rows = page.read_text().split("<tr>")[-3:]
    assert [request.id in row for request, row in zip(reversed(requests), rows, strict=True)] == [True] * 3
    assert ['<td class="n">9</td><td class="n">0</td>' in row for row in rows] == [True, False, False]
    s3.put_object(Bucket=BUCKET, Key=f"lake/_deletions/{requests[0].id}/request.json", Body=b"{")
    assert run_report(["--config", config, "--html", str(page)]) == 0
    assert "Erasures" not in page.read_text()


def test_a_bucket_that_cannot_be_read_is_an_error(
    cloud: Cloud, config: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with cloud.refusing("ListObjectsV2"):
        assert run_health(["--config", config]) == 1

    assert b"s3:ListBucket" in capfdbinary.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_a_number_that_is_none_is_a_usage_error(config: str, number: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run_history(["--config", config, "--days", number])


@pytest.mark.parametrize(("module", "function"), _USER_COMMANDS.values(), ids=_USER_COMMANDS)
def test_every_plain_command_exists(module: str, function: str) -> None:
    assert callable(getattr(import_module(f"destination_datalake.{module}"), function))
