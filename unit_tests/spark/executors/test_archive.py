"""The archive for executors: all that work there imports, and little else; the same bytes for the same files."""

from __future__ import annotations

import ast
import ctypes
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from emulated_aws.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY, AwsServer
from packaging.requirements import Requirement

import destination_datalake
from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.spark.executors.archive import (
    DISTRIBUTIONS,
    Contents,
    archive,
    build,
    contents,
)
from destination_datalake.spark.executors.python import MINOR_VERSION, WORKER_ENVIRONMENT

pytestmark = pytest.mark.share(6)

PACKAGE = Path(destination_datalake.__file__).parent
ROOMS = ("files", "records", "rejects")
"""The rooms whose modules run on executors."""

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def everything() -> Contents:
    return contents()


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
    seen, libraries = set(waiting), set()
    while waiting:
        for name in imported(waiting.pop()):
            if name.partition(".")[0] != PACKAGE.name:
                libraries.add(name.partition(".")[0])
            elif (file := file_of(name)) is not None and file not in seen:
                seen.add(file)
                waiting.append(file)
    return libraries - sys.stdlib_module_names


def test_every_library_that_work_on_executors_imports_is_sent(everything: Contents) -> None:
    sent = {path.split("/")[0].split(".")[0] for path in everything.files}

    assert libraries_of_executors() - sent == set()


def test_whatever_a_library_requires_is_sent_too() -> None:
    sent = {*DISTRIBUTIONS}
    required = [Requirement(text) for name in sent for text in metadata.requires(name) or ()]
    needed = {
        requirement.name
        for requirement in required
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }

    assert needed - sent == set()


def test_archive_lacks_pyspark_and_the_driver_s_packages(everything: Contents) -> None:
    sent = {path.split("/")[0] for path in everything.files}

    assert sent.isdisjoint({"pyspark", "py4j", "pyiceberg", "airbyte_cdk", "pandas", "awswrangler", "pydantic"})
    services = {path.split("/")[2] for path in everything.files if path.startswith("botocore/data/")}
    assert {"s3", "sts"} <= services
    assert services.isdisjoint({"glue", "ec2", "lakeformation"})


def test_native_decoder_is_sent_as_files_that_executors_can_load(everything: Contents, tmp_path: Path) -> None:
    suffix = f"_native.{platform.machine()}.so"
    libraries = {path: source for path, source in everything.files.items() if "/_native." in path}

    build(Contents(libraries, everything.fingerprint), tmp_path / "archive")
    subprocess.run(["tar", "-xzf", tmp_path / "archive", "-C", tmp_path], check=True)

    unpacked = {path.name: path for path in (tmp_path / "packages").rglob("*.so")}
    assert {*unpacked} == {"_native.aarch64.so", "_native.x86_64.so"}
    if sys.platform == "linux" and suffix in unpacked:
        assert ctypes.CDLL(str(unpacked[suffix])).decode_records


def test_the_packages_stay_small(everything: Contents) -> None:
    assert sum(source.stat().st_size for source in everything.files.values()) < 240 * MIB


def test_a_change_of_the_connector_changes_the_fingerprint(
    everything: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = tmp_path / PACKAGE.name
    shutil.copytree(PACKAGE, changed, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(destination_datalake, "__file__", str(changed / "__init__.py"))
    before = contents().fingerprint
    with (changed / "errors.py").open("a") as module:
        module.write("\n")

    after = contents().fingerprint

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
from destination_datalake.files.plan import EncodeTask, EncodeUnit
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation
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

import pyarrow.parquet, destination_datalake.files.rewrite, destination_datalake.files.rewrite
foreign = {m.__file__ for m in list(sys.modules.values()) if "site-packages" in str(getattr(m, "__file__", ""))}
print(sorted(foreign))
"""


@pytest.mark.slow
def test_work_runs_on_the_packages_and_python_s_standard_library_alone(everything: Contents, tmp_path: Path) -> None:
    # Given the packages as they are unpacked on an executor, and records of which one is refused
    packages = tmp_path / "packages"
    for path, source in everything.files.items():
        target = packages / path
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:
            shutil.copyfile(source, target)
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


def content(folder: Path, text: str = "x = 1\n", fingerprint: str = "0123456789abcdef") -> Contents:
    """A package of one module."""
    folder.mkdir(exist_ok=True)
    (folder / "module.py").write_text(text)
    return Contents({"lake/module.py": folder / "module.py"}, fingerprint)


def test_the_archive_has_the_launcher_and_the_packages(tmp_path: Path) -> None:
    made = tmp_path / "made"

    build(content(tmp_path / "a"), made)

    with tarfile.open(made) as tar:
        assert [(member.name, member.mode) for member in tar] == [
            ("bin/python", 0o755),
            ("packages/lake/module.py", 0o644),
        ]


def test_the_same_files_make_the_same_bytes_wherever_and_whenever(tmp_path: Path) -> None:
    build(content(tmp_path / "a"), tmp_path / "first")
    later = content(tmp_path / "b")
    os.utime(later.files["lake/module.py"], (1, 1))
    build(later, tmp_path / "second")

    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    lost = Contents({"lake/module.py": tmp_path / "missing"}, "0123456789abcdef")

    with pytest.raises(FileNotFoundError):
        build(lost, tmp_path / "archive")

    assert list(tmp_path.iterdir()) == []


def test_an_archive_that_comes_with_the_image_is_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, scratch = tmp_path / "share" / "destination-datalake", tmp_path / "scratch"
    shared.mkdir(parents=True)
    scratch.mkdir()
    of_image = shared / contents().name
    of_image.write_bytes(b"archive")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    assert archive(scratch) == of_image
    assert list(scratch.iterdir()) == []


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """The archive's launcher, as unpacked in a folder whose name has a space."""
    folder = tmp_path / "work dir" / "destination-datalake"
    folder.mkdir(parents=True)
    build(content(tmp_path / "a"), tmp_path / "archive")
    subprocess.run(["tar", "-xzf", tmp_path / "archive", "-C", folder], check=True)
    return folder / "bin" / "python"


def started(launcher: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [str(launcher), "-c", "import lake.module, sys; print('%d.%d' % sys.version_info[:2], lake.__path__)"]
    environment = {"PATH": str(folder), **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def pythons(folder: Path, **targets: str) -> Path:
    """A folder of commands for PATH: each a script that runs `target`."""
    folder.mkdir()
    for name, target in {"dirname": "/usr/bin/dirname", **targets}.items():
        command = folder / name.replace("_", ".")
        command.write_text(f'#!/bin/sh\nexec {target} "$@"\n')
        command.chmod(0o755)
    return folder


PYTHON = shlex.quote(sys.executable)

NEWER = "/bin/sh -c 'exit 1' --"
"""Stands for a Python of another version: it fails the test of its version."""


@pytest.mark.parametrize(
    "interpreters",
    [
        {f"python{MINOR_VERSION.replace('.', '_')}": PYTHON},
        {"python3": PYTHON},
        {"python3": NEWER, "python": PYTHON},
    ],
)
def test_the_launcher_finds_the_executor_s_python_of_this_version(
    tmp_path: Path, launcher: Path, interpreters: dict[str, str]
) -> None:
    ended = started(launcher, pythons(tmp_path / "commands", **interpreters))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(MINOR_VERSION)
    assert "work dir/destination-datalake/packages/lake" in ended.stdout


def test_the_launcher_takes_the_python_that_the_cluster_s_administrators_have_set(
    tmp_path: Path, launcher: Path
) -> None:
    ended = started(launcher, pythons(tmp_path / "commands", python3=NEWER), PYSPARK_PYTHON=sys.executable)

    assert ended.returncode == 0, ended.stderr


def test_the_launcher_sets_variables_that_the_cluster_has_not(tmp_path: Path, launcher: Path) -> None:
    variables = "$MIMALLOC_PURGE_DELAY $MALLOC_TRIM_THRESHOLD_"
    show = f"""/bin/sh -c 'case "$*" in *sys.exit*) exit 0 ;; esac; echo {variables}' --"""

    ended = started(launcher, pythons(tmp_path / "commands", python3=show), MIMALLOC_PURGE_DELAY="7")

    assert ended.stdout == f"7 {WORKER_ENVIRONMENT['MALLOC_TRIM_THRESHOLD_']}\n"


def test_other_python_reports_its_version_to_spark(tmp_path: Path, launcher: Path) -> None:
    other_python = """/bin/sh -c 'case "$*" in *sys.exit*) exit 1 ;; esac; echo another' --"""

    ended = started(launcher, pythons(tmp_path / "commands", python3=other_python))

    assert ended.stdout == "another\n", ended.stderr


def test_shell_reports_a_missing_python(tmp_path: Path, launcher: Path) -> None:
    ended = started(launcher, pythons(tmp_path / "commands"))

    assert ended.returncode == 127
    assert "python3: not found" in ended.stderr
