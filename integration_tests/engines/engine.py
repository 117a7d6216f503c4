"""Spark with Iceberg, in a process and an environment of its own."""

import json
import os
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

ROOT = Path(__file__).resolve().parents[2]

SPARK = "pyspark==4.1.*"
"""The last Spark that has an Iceberg runtime (`serve.PACKAGES`), which may be older than the connector's."""


@dataclass(frozen=True)
class Answer:
    """The rows that a query returns, and how many data files it has read for them."""

    rows: list[dict[str, Any]]
    files: int


class Engine:
    """Start on entering, stop on leaving. The catalogs `local` and `glue` are a folder and the AWS of the tests.

    Raises AssertionError if this Spark cannot be had.
    """

    def __init__(self, endpoint_url: str) -> None:
        self._endpoint_url = endpoint_url

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        folder = Path(self._folder.name)
        self._log = (folder / "log").open("wb")
        uv = [str(ROOT / ".uv/bin/uv"), "run", "--no-project", "--isolated", "--with", SPARK, "python"]
        self._process = subprocess.Popen(
            [*uv, str(Path(__file__).with_name("serve.py")), str(folder / "lake"), self._endpoint_url, REGION],
            env=os.environ
            | {
                "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
                "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_LOCAL_HOSTNAME": "localhost",
                "TZ": "UTC",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()
        self._log.close()
        self._folder.cleanup()

    def sql(self, statement: str) -> Answer:
        """Run a statement. Raises AssertionError if Spark refuses it."""
        _pipe(self._process.stdin).write(json.dumps({"sql": statement}).encode() + b"\n")
        _pipe(self._process.stdin).flush()
        return self._answer()

    def _answer(self) -> Answer:
        line = _pipe(self._process.stdout).readline()
        if not line:
            self._process.wait()
            log = Path(self._log.name).read_text(encoding="utf-8", errors="replace")
            raise AssertionError(f"Spark with Iceberg has ended or cannot be had:\n{log[-4000:]}")
        answer = json.loads(line)
        assert "error" not in answer, "\n".join(re.findall("^(?!\tat ).*", answer["error"], re.MULTILINE))
        return Answer(answer["rows"], answer.get("files", 0))


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe
