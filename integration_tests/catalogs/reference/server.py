"""Iceberg's own catalog of its REST specification, in a process of its own."""

import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY


class ReferenceServer:
    """Starts on entering, stops on leaving; `endpoint_url` is its URI. `jars` has what `jars.py` brings."""

    endpoint_url: str

    def __init__(self, jars: Path, account_url: str, bucket: str) -> None:
        self._command = [
            *("java", "-cp", f"{jars}/*", str(Path(__file__).with_name("Serve.java"))),
            *(f"s3://{bucket}/warehouse", account_url, REGION),
        ]

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().decode().strip()
        if not port:
            self._process.wait()
            self._log.seek(0)
            raise AssertionError(f"Iceberg's catalog has not started:\n{self._log.read().decode(errors='replace')}")
        self.endpoint_url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()
