"""`verify` beside other writers, and on what only unfinished syncs have. Jobs run in the test's process."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import fastavro
import msgspec
import pytest
from pyiceberg.types import LongType, NestedField, StructType

from destination_datalake.files.plan import FileFormat, VerifiedFile
from destination_datalake.reports.report import encode
from destination_datalake.schema.types import Date, Field, Int32, String
from destination_datalake.tables.glue.compare_and_set import METADATA
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.file_io import MANIFESTS
from destination_datalake.tables.verification import Reported, SyncStarts
from destination_datalake.verify.command import TableResult, run_verify, verify_table
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.maintenance.lake import Shop, no_rewrite, run, worn
from unit_tests.reports.history import an_erasure
from unit_tests.reports.lines import a_line, a_stream
from unit_tests.tables.hive.partitions import events
from unit_tests.tables.jobs import InProcess


class Executors(InProcess):
    """Runs jobs. Before the first one, `meanwhile` happens; `jobs` are their numbers of files."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._meanwhile = meanwhile
        self.jobs: list[int] = []

    def run(self, work: Any, tasks: Sequence[Any]) -> list[Any]:
        if not self.jobs:
            self._meanwhile()
        self.jobs.append(sum(len(task.files) for task in tasks))
        return super().run(work, tasks)


@pytest.fixture
def shop(cloud: Cloud) -> Shop:
    return Shop(cloud)


def verified(shop: Shop, engine: Executors | None = None, reported: Sequence[Reported] = ()) -> TableResult:
    engine = engine or Executors()
    return verify_table(shop.name(), ungoverned(shop.access), reported, lambda: cast("Any", engine), lists_folder=True)


def data_files(shop: Shop) -> set[str]:
    return {key for key in shop.objects() if "/data/" in key}


def delete(shop: Shop, key: str) -> None:
    shop.access.client("s3").delete_object(Bucket=BUCKET, Key=key)


def test_a_worn_table_is_right_and_its_orphan_a_note(shop: Shop) -> None:
    worn(shop)

    result = verified(shop)

    assert (result.problems, result.files, result.rows) == ([], 6, 6)
    assert [note.startswith("No snapshot refers to 1 file in") for note in result.notes] == [True, False]


def test_files_that_maintenance_removes_meanwhile_are_no_alarm(shop: Shop) -> None:
    worn(shop)
    engine = Executors(lambda: run(shop.maintainer(), shop.name()))

    result = verified(shop, engine)

    assert result.problems == []
    assert engine.jobs == [6], "files that are not of the table any more are not read again"
    assert len(data_files(shop)) == 1


def test_a_file_that_is_missing_is_found_although_the_table_changes(shop: Shop) -> None:
    table = shop.open()
    shop.commit(table, 1)
    [first] = data_files(shop)
    shop.commit(table, 2)
    delete(shop, first)
    engine = Executors(lambda: shop.commit(shop.open(), 3))

    result = verified(shop, engine)

    assert [(problem.location, problem.description) for problem in result.problems] == [
        (f"s3://{BUCKET}/{first}", "does not exist")
    ]
    assert engine.jobs == [2, 1], "only what was wrong is read again"


def test_rows_of_an_overwrite_that_is_not_published_are_verified(shop: Shop) -> None:
    shop.commit(shop.open(), 1)
    before = data_files(shop)
    shop.commit(shop.open(generation=2, overwrite=True), 2)
    assert verified(shop).problems == []
    [pending] = data_files(shop) - before

    delete(shop, pending)

    assert [problem.location for problem in verified(shop).problems] == [f"s3://{BUCKET}/{pending}"]


def test_a_summary_that_counts_other_rows_than_its_manifests_is_found(shop: Shop) -> None:
    shop.commit(shop.open(), 1)
    location = TableOperations(shop.name(), ungoverned(shop.access)).load().metadata_location
    key = location.removeprefix(f"s3://{BUCKET}/")
    content = shop.access.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
    assert '"total-records":"1"' in content
    shop.put(key, content.replace('"total-records":"1"', '"total-records":"7"').encode())
    METADATA.forget(location)

    [problem] = verified(shop).problems

    assert problem.description == "contains 1 rows, but its summary records 7"


def test_a_table_whose_metadata_is_gone_is_a_problem_and_no_crash(shop: Shop) -> None:
    shop.open()
    location = TableOperations(shop.name(), ungoverned(shop.access)).load().metadata_location
    delete(shop, location.removeprefix(f"s3://{BUCKET}/"))
    METADATA.forget(location)

    [problem] = verified(shop).problems

    assert problem.description.startswith("cannot be loaded: ")
    assert location in problem.description


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://169.254.169.254/latest"])
def test_command_reports_metadata_outside_s3_as_a_problem(
    shop: Shop, location: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    shop.open()
    shop.set_metadata_location(location)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(options(region="us-east-1", bucket_name=BUCKET, bucket_prefix="lake")))

    code = run_verify(["--config", str(config), "--stream", "shop.orders", "--json"])

    out, errors = capsysbinary.readouterr()
    [table] = json.loads(out)["tables"]
    [problem] = table["problems"]
    assert (code, table["table"], problem["location"]) == (1, str(shop.name()), location)
    assert f"'{location}', which is not an S3 address." in problem["description"]
    assert "Correct the table's metadata_location" in problem["description"]
    assert b"Traceback" not in errors


@pytest.mark.parametrize("finished", ["2026-11-25 00:00:00", "x", "9999-12-31T23:59:59+00:00"])
def test_an_erasure_that_ended_at_no_time_is_a_note(
    shop: Shop, finished: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    s3, record = shop.access.client("s3"), an_erasure(1, (str(shop.name()),)).request
    request = msgspec.json.encode(msgspec.structs.replace(record, finished=finished))
    s3.put_object(Bucket=BUCKET, Key="lake/_deletions/a/request.json", Body=request)
    shop.open()
    line = a_stream("orders", "run", datetime.now(UTC), database=shop.name().database, table_name=shop.name().table)
    day = f"lake/_reports/day={line.started.date().isoformat()}"
    source = a_line("run", line.started)
    s3.put_object(Bucket=BUCKET, Key=f"{day}/run_id=run/report.jsonl", Body=encode([source, line]))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(options(region="us-east-1", bucket_name=BUCKET, bucket_prefix="lake")))

    run_verify(["--config", str(config), "--stream", "shop.orders", "--json"])

    _, errors = capsysbinary.readouterr()
    assert b"Note: the ledger of erasures" in errors
    assert b"unexpected" not in errors
    assert b"Traceback" not in errors


DAMAGES: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("garbage", lambda _: b"garbage"),
    ("empty", lambda _: b""),
    ("half", lambda content: content[: len(content) // 2]),
]


@pytest.mark.parametrize("damage", [damage for _, damage in DAMAGES], ids=[name for name, _ in DAMAGES])
@pytest.mark.parametrize("kind", ["manifest list", "manifest", "metadata"])
def test_metadata_that_cannot_be_read_is_a_problem_that_names_the_object(
    shop: Shop, kind: str, damage: Callable[[bytes], bytes]
) -> None:
    shop.commit(shop.open(), 1)
    table = TableOperations(shop.name(), ungoverned(shop.access)).load()
    current = table.current_snapshot()
    assert current is not None
    [manifest] = current.manifests(table.io)
    broken = {
        "manifest list": current.manifest_list,
        "manifest": manifest.manifest_path,
        "metadata": table.metadata_location,
    }[kind]
    key = broken.removeprefix(f"s3://{BUCKET}/")
    shop.put(key, damage(shop.cloud.objects()[key]))
    METADATA.forget(table.metadata_location)
    MANIFESTS.forget(broken)

    problems = verified(shop).problems

    assert problems
    assert all(broken in problem.location + problem.description for problem in problems), problems


def test_a_metadata_location_that_was_set_back_is_found_and_expired_snapshots_are_a_note(shop: Shop) -> None:
    """The older metadata has no log of the newer snapshot."""
    glue = shop.access.client("glue")
    name: Any = {"DatabaseName": shop.name().database, "Name": shop.name().table}
    shop.commit(shop.open(), 1)
    older = glue.get_table(**name)["Table"]
    shop.commit(shop.open(), 2)
    current = TableOperations(shop.name(), ungoverned(shop.access)).load().current_snapshot()
    assert current is not None
    began = datetime.now(UTC) - timedelta(hours=1)
    reports = [
        Reported(run="new", finished=datetime.now(UTC), snapshot=current.snapshot_id),
        Reported(run="old", finished=began, snapshot=1),
    ]
    intact = verified(shop, reported=reports)
    assert intact.problems == []
    assert (
        "The snapshots in the reports of 1 runs have expired, so the comparison with these reports was skipped."
        in intact.notes
    )

    kept = {key: older[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    glue.update_table(DatabaseName=shop.name().database, TableInput=cast("Any", kept))

    [problem] = [
        problem
        for problem in verified(shop, reported=reports).problems
        if "does not belong to the table" not in problem.description
    ]
    assert problem.location == older["Parameters"]["metadata_location"]
    assert problem.description.startswith(
        f"lacks snapshot {current.snapshot_id} of run new, so another program has set the "
    )


def test_a_file_whose_rows_are_of_another_partition_than_its_manifest_says_is_found(cloud: Cloud) -> None:
    shop = Shop(cloud, streams=[{"stream": "orders", "namespace": "shop", "partition_by": [{"source": "id"}]}])
    for partition in (7, 8):
        table = shop.open()
        partitioning = table.plan().partitioning
        assert partitioning is not None
        file = replace(shop.write(table, 7), partition=(partition,), spec_id=partitioning.spec_id)
        table.commit([file], no_rewrite)

    [problem] = verified(shop).problems

    assert problem.location == file.uri
    assert problem.description == "contains rows whose value of partition key id differs from its manifest"


def changed_manifest(shop: Shop, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the data files in the only manifest of the current snapshot."""
    table = TableOperations(shop.name(), ungoverned(shop.access)).load()
    current = table.current_snapshot()
    assert current is not None
    [manifest] = current.manifests(table.io)
    key = manifest.manifest_path.removeprefix(f"s3://{BUCKET}/")
    reader: Any = fastavro.reader(io.BytesIO(shop.cloud.objects()[key]))
    entries = list(reader)
    for entry in entries:
        change(entry["data_file"])
    out = io.BytesIO()
    own = {name: value for name, value in reader.metadata.items() if not name.startswith("avro.")}
    fastavro.writer(out, reader.writer_schema, entries, metadata=own)
    shop.put(key, out.getvalue())
    MANIFESTS.forget(manifest.manifest_path)


def increment(counts: Sequence[dict[str, int]], id_: int) -> None:
    next(count for count in counts if count["key"] == id_)["value"] += 1


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        ("value_counts", "contains 1 rows, but 2 values in column id, according to its manifest"),
        ("null_value_counts", "contains 0 nulls in column id, but its manifest records 1"),
    ],
)
def test_counts_that_were_changed_in_a_manifest_are_found(shop: Shop, member: str, expected: str) -> None:
    shop.commit(shop.open(), 1)
    id_ = TableOperations(shop.name(), ungoverned(shop.access)).load().schema().find_field("id").field_id

    changed_manifest(shop, lambda file: increment(file[member], id_))

    assert [problem.description for problem in verified(shop).problems] == [expected]


def test_members_of_objects_with_values_of_two_fields_are_a_note(shop: Shop) -> None:
    shop.commit(shop.open(), 1)
    names = (("_1", "+1"), ("_1_c59dc4e4", "+1"))
    members = [NestedField(n, name, LongType(), doc=doc, required=False) for n, (name, doc) in enumerate(names, 100)]
    with TableOperations(shop.name(), ungoverned(shop.access)).load().update_schema() as update:
        update.add_column("x", StructType(*members))

    result = verified(shop)

    assert result.problems == []
    assert any(
        "Some nested fields may contain values of two source fields" in note and "x._1" in note for note in result.notes
    )


STARTED = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("starts", "deviating"),
    [
        ({"a-1": 0, "a-2": 0, "b-1": 900}, []),
        ({"a-1": 0, "a-2": 1, "a-3": 0}, ["a-2"]),
        ({"a-1": 900, "b-1": 0}, ["a-1", "b-1"]),
        ({"c-1": 10_000}, []),
    ],
    ids=["right", "exchanged batches", "exchanged syncs", "without a report"],
)
def test_files_with_rows_of_another_sync_or_batch_are_found(starts: Mapping[str, int], deviating: list[str]) -> None:
    reports = [
        Reported(run=run, started=began, finished=began + timedelta(minutes=5))
        for run, began in (("b", STARTED + timedelta(minutes=15)), ("a", STARTED))
    ]
    sync_starts = SyncStarts()
    for name, seconds in starts.items():
        start = int((STARTED.timestamp() + seconds) * 1000)
        sync_starts.add(VerifiedFile(f"s3://lake/{name}", name[0], 1, 1, started=start))

    assert [finding.location.rpartition("/")[2] for finding in sync_starts.problems(reports)] == deviating


def of_events(cloud: Cloud) -> list[str]:
    executors = lambda: cast("Any", Executors())  # noqa: E731
    result = verify_table(events.NAME, ungoverned(cloud.access), (), executors, lists_folder=True)
    return [problem.description for problem in result.problems]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_hive_rows_whose_partition_is_null_because_of_another_type_are_no_alarm_and_moved_rows_are(
    cloud: Cloud, format: FileFormat
) -> None:
    by: Any = [{"stream": "Events", "namespace": "shop", "partition_by": [{"source": "note"}]}]
    for id_, type_, values in ((1, Int32(), {"note": 7}), (2, String(), {"note__string": "x"})):
        columns = (events.ID, Field("note", "note", type_))
        sync = events.sync(cloud, columns=columns, format=format, partitioning="NO PARTITIONING", streams=by)
        sync.commit((id_, None), **values)
    assert of_events(cloud) == []
    [number, text] = sorted(key for key in cloud.objects() if "note_key=" in key)

    s3 = cloud.access.client("s3")
    moved = f"{text.rpartition('/')[0]}/moved.{format}"
    s3.copy_object(Bucket=BUCKET, Key=moved, CopySource={"Bucket": BUCKET, "Key": number})
    assert of_events(cloud) == ["contains rows whose value of partition key note_key differs from its folder"]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_hive_rows_whose_dates_are_in_a_column_of_another_type_are_no_alarm(cloud: Cloud, format: FileFormat) -> None:
    events.sync(cloud, format=format).commit((1, events.JAN))
    of_days = replace(events.AT, type=Date())

    events.sync(cloud, format=format, columns=(events.ID, of_days)).commit(
        (2, None), created_at__date=date(2023, 2, 28)
    )

    assert {*events.locations(cloud)} == {events.JAN, events.FEB}
    assert of_events(cloud) == []
