"""The packages for executors: all that work on executors imports, and little else."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import destination_datalake
from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.spark.executors.contents import DISTRIBUTIONS, FOR_JSON_LINES, Contents, contents
from integration_tests.aws.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, AwsServer

PACKAGE = Path(destination_datalake.__file__).parent
ROOMS = ("files", "records", "rejects")
"""The rooms whose modules run on executors."""

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def everything() -> Contents:
    return contents(with_json_lines=True)


def imported(module: Path) -> Iterator[str]:
    """Names of modules that a module imports, also inside of functions, but not for types alone."""
    tree = ast.parse(module.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names))


def file_of(module: str) -> Path | None:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def libraries_of_executors() -> set[str]:
    """Top-level names that are not the connector's or Python's, imported by all that work on executors can reach."""
    waiting = [file for room in ROOMS for file in (PACKAGE / room).rglob("*.py")]
    seen, found = set(waiting), set()
    while waiting:
        for name in imported(waiting.pop()):
            if name.partition(".")[0] != PACKAGE.name:
                found.add(name.partition(".")[0])
            elif (file := file_of(name)) is not None and file not in seen:
                seen.add(file)
                waiting.append(file)
    return found - sys.stdlib_module_names


def test_every_library_that_work_on_executors_imports_is_sent(everything: Contents) -> None:
    sent = {file.path.split("/")[0].split(".")[0] for file in everything.files}

    assert libraries_of_executors() - sent == set()


def test_whatever_a_library_requires_is_sent_too() -> None:
    sent = {*DISTRIBUTIONS, *FOR_JSON_LINES}
    required = [Requirement(text) for name in sent for text in metadata.requires(name) or ()]
    needed = {each.name for each in required if each.marker is None or each.marker.evaluate({"extra": ""})}

    assert needed - sent == set()


def test_duckdb_is_sent_only_where_json_lines_are_written(everything: Contents) -> None:
    without = contents(with_json_lines=False)

    assert not any("duckdb" in file.path for file in without.files)
    assert any(file.path.startswith("_duckdb.") for file in everything.files)
    assert without.fingerprint != everything.fingerprint


def test_neither_pyspark_nor_what_only_the_driver_needs_is_sent(everything: Contents) -> None:
    sent = {file.path.split("/")[0] for file in everything.files}

    assert sent.isdisjoint({"pyspark", "py4j", "pyiceberg", "airbyte_cdk", "pandas", "awswrangler", "pydantic"})
    services = {file.path.split("/")[2] for file in everything.files if file.path.startswith("botocore/data/")}
    assert {"s3", "sts"} <= services
    assert services.isdisjoint({"glue", "ec2", "lakeformation"})


def test_the_packages_stay_small(everything: Contents) -> None:
    assert sum(file.source.stat().st_size for file in everything.files) < 240 * MIB


def test_a_change_of_the_connector_changes_the_fingerprint(
    everything: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, changed, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(destination_datalake, "__file__", str(changed / "__init__.py"))
    before = contents(with_json_lines=True).fingerprint
    with (changed / "errors.py").open("a") as module:
        module.write("\n")

    after = contents(with_json_lines=True).fingerprint

    assert before == everything.fingerprint
    assert after != before


WORK = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[1]]

from destination_datalake.aws.access import AwsAccess
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import FilePlan
from destination_datalake.files.segments import LocalFile, StagedSegment
from destination_datalake.files.tasks import EncodeTask, EncodeUnit
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.location import RejectLocation
from destination_datalake.schema.types import Date, Field, Int64, String

segment = Path(sys.argv[3])
columns = (Field("id", "id", Int64()), Field("day", "day", Date()), Field("text", "text", String()))
stream, rejects = StreamId(None, "orders"), RejectLocation("s3://lake/_errors", "run", "2026-11-21", "shop", "orders")
for format, codec in (("parquet", "ZSTD"), ("jsonl", "GZIP")):
    plan = FilePlan(format=format, codec=codec, columns=columns, field_ids={}, folder=f"s3://lake/{format}",
                    deferred=False, target_bytes=1_000_000, generation=None, sync_id=None)
    unit = EncodeUnit(stream, "b", (StagedSegment(LocalFile(str(segment)), segment.stat().st_size),), plan, rejects)
    [result] = encode([EncodeTask((unit,), AwsAccess("us-east-1", endpoint_url=sys.argv[2]))])
    print(format, [file.rows for file in result.files], result.counts.refused)

import pyarrow.parquet, destination_datalake.files.rewrite, destination_datalake.files.compact
foreign = {m.__file__ for m in list(sys.modules.values()) if "site-packages" in str(getattr(m, "__file__", ""))}
print(sorted(foreign))
"""


def test_work_runs_on_the_packages_and_python_s_standard_library_alone(everything: Contents, tmp_path: Path) -> None:
    # Given the packages as they are unpacked on an executor, and records of which one is refused
    packages = tmp_path / "packages"
    for file in everything.files:
        target = packages / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file.source, target)
        except OSError:
            shutil.copyfile(file.source, target)
    lines = tmp_path / "segment"
    line = '{"type":"RECORD","record":{"stream":"orders","data":%s,"emitted_at":1700000000000}}\n'
    lines.write_text(line % '{"id": 1, "day": "2026-11-21", "text": "x"}' + line % '{"id": 2}' + line % "[]")

    with AwsServer() as aws:
        keys = AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY)
        AwsAccess("us-east-1", keys, aws.endpoint_url).client("s3").create_bucket(Bucket="lake")

        # When a Python without any packages of its own runs a task of each format
        command = [sys.executable, "-I", "-S", "-c", WORK, str(packages), aws.endpoint_url, str(lines)]
        environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    # Then files and rejects are written
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["parquet [2] 1", "jsonl [2] 1", "[]"]
