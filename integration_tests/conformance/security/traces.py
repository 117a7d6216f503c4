"""Everything that a run can leave a secret in: its processes, its files, the lake, and what it said."""

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.running import Running

_READ_AT_MOST = 8_000_000
"""Bytes of a file; larger ones are archives of classes."""


def of_processes(running: Running) -> Iterator[tuple[str, bytes]]:
    """Yield command line and environment of the run's processes, and the files that they have open or have deleted.

    HotSpot's performance data tell a JVM's properties and arguments to other processes of its user.
    """
    connector = psutil.Process(running.process.pid)
    for process in [connector, *connector.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            name = f"{process.name()} ({process.pid})"
            proc = Path(f"/proc/{process.pid}")
            yield f"command line of {name}", (proc / "cmdline").read_bytes()
            yield f"environment of {name}", _environment(proc)
            for descriptor in (proc / "fd").iterdir():
                yield from _of_file(descriptor, f"open file of {name}")
            for data in Path("/tmp").glob(f"hsperfdata_*/{process.pid}"):
                yield from _of_file(data, f"performance data of {name}")


@retry(retry=retry_if_exception_type(PermissionError), stop=stop_after_delay(10), wait=wait_fixed(0.05), reraise=True)
def _environment(proc: Path) -> bytes:
    """Return a process's environment. For a moment, while it starts a program, it is nobody's to read (proc(5))."""
    return (proc / "environ").read_bytes()


def of_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the content of every file in a folder, with its name."""
    for path in folder.rglob("*"):
        yield from _of_file(path, str(path))


def of_lake(lake: Lake) -> Iterator[tuple[str, bytes]]:
    """Yield every object, and databases and tables as Glue has them."""
    for key in lake.objects():
        yield f"object {key}", key.encode() + lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
    for database, table in lake.tables():
        yield f"table {table}", json.dumps(lake.glue_table(database, table), default=str).encode()
        yield f"database {database}", json.dumps(lake.glue.get_database(Name=database), default=str).encode()


def of_run(run: Run) -> Iterator[tuple[str, bytes]]:
    """Yield what a run wrote to stdout and stderr."""
    yield "stderr", run.stderr.encode()
    for message in run.messages:
        yield f"{message.type} on stdout", message.raw


def assert_without(secrets: Mapping[str, str], traces: Iterator[tuple[str, bytes]]) -> None:
    """Assert that there are traces, and none of the secrets, named by what they are, is in any of them."""
    places = 0
    for place, content in traces:
        places += 1
        for secret, value in secrets.items():
            assert value.encode() not in content, f"{secret} is in the {place}"
    assert places


def _of_file(path: Path, name: str) -> Iterator[tuple[str, bytes]]:
    with suppress(OSError):
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size <= _READ_AT_MOST:
            with path.open("rb") as file:
                yield name, file.read()
