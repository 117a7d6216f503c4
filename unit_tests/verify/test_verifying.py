"""`verify` beside other writers, and on what only unfinished syncs have. Jobs run in the test's process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from destination_datalake.tables.glue.compare_and_set import METADATA
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.file_io import MANIFESTS
from destination_datalake.verify.command import TableResult, run_verify, verify_table
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.maintenance.lake import Shop, run, worn
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


def verified(shop: Shop, engine: Executors | None = None) -> TableResult:
    engine = engine or Executors()
    return verify_table(shop.name(), ungoverned(shop.access), (), lambda: cast("Any", engine), lists_folder=True)


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

    assert [(problem.where, problem.what) for problem in result.problems] == [
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

    assert [problem.where for problem in verified(shop).problems] == [f"s3://{BUCKET}/{pending}"]


def test_a_summary_that_counts_other_rows_than_its_manifests_is_found(shop: Shop) -> None:
    shop.commit(shop.open(), 1)
    location = TableOperations(shop.name(), ungoverned(shop.access)).load().metadata_location
    key = location.removeprefix(f"s3://{BUCKET}/")
    content = shop.access.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
    assert '"total-records":"1"' in content
    shop.put(key, content.replace('"total-records":"1"', '"total-records":"7"').encode())
    METADATA.forget(location)

    [problem] = verified(shop).problems

    assert problem.what == "contains 1 rows, but its summary records 7"


def test_a_table_whose_metadata_is_gone_is_a_problem_and_no_crash(shop: Shop) -> None:
    shop.open()
    location = TableOperations(shop.name(), ungoverned(shop.access)).load().metadata_location
    delete(shop, location.removeprefix(f"s3://{BUCKET}/"))
    METADATA.forget(location)

    [problem] = verified(shop).problems

    assert problem.what.startswith("cannot be loaded: ")
    assert location in problem.what


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
    assert (code, table["table"], problem["where"]) == (1, str(shop.name()), location)
    assert f"'{location}', which is not an S3 address." in problem["what"]
    assert "Correct the table's metadata_location" in problem["what"]
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
    assert all(broken in problem.where + problem.what for problem in problems), problems
