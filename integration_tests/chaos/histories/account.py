"""AWS and the syncs into it in one process: no Spark, no HTTP, nothing to start.

A sync is the command `write` from its first line to its last state, on threads. Of a killed one no request reaches AWS
any more, and nothing that it says is heard: its threads wait for ever. So each history has a process of its own.
"""

import json
import os
import socket
import subprocess
import threading
import traceback
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any, Literal, Self
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError
from botocore.retries import standard as retries
from emulated_aws.server import REGION, SECRET_ACCESS_KEY
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse
from moto.core.models import botocore_stubber

from destination_datalake.aws import access
from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.config.options import Config, aws_access
from destination_datalake.errors import ConnectorError
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.spark.backend import JobsProgress, SparkFailed
from destination_datalake.spark.engine import Engine
from destination_datalake.sync.conductor import run_sync
from destination_datalake.termination import Termination
from integration_tests.chaos.aws.adversary import Adversary
from integration_tests.harness.loopback import Answer, HungUp, Request
from unit_tests.tables.jobs import InProcess

_FLUSH_SECONDS = 0.03
"""How long records wait at most before they are committed. The option has whole seconds, in which nothing happens."""


class AccountInside:
    """The account of `mock_aws`, with an adversary for each attempt."""

    endpoint_url = None

    def __init__(self) -> None:
        self._adversaries: dict[str, Adversary] = {}
        self._keys = count()

    def new_key(self) -> str:
        """Return an access key that no other attempt has."""
        return _key(next(self._keys))

    def watch(self, access_key_id: str, adversary: Adversary) -> None:
        """Let the requests that are signed with this key meet the adversary."""
        self._adversaries[access_key_id] = adversary

    def launch(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],  # noqa: ARG002
        stderr: IO[bytes],
    ) -> "SyncInside":
        """Start `write`: a `Launch`."""
        named = dict(zip(arguments[1::2], arguments[2::2], strict=True))
        options, catalog = (json.loads(Path(named[name]).read_text()) for name in ("--config", "--catalog"))
        key = options["credentials"]["aws_access_key_id"]
        return SyncInside(options, catalog, stderr, self._adversaries[key])


class SyncInside:
    """One sync: a `Process`. Its ends of the pipes stay open, because its threads may outlive it."""

    pid = 0

    def __init__(
        self,
        options: Mapping[str, Any],
        catalog: Mapping[str, object],
        stderr: IO[bytes],
        adversary: Adversary,
    ) -> None:
        self._adversary = adversary
        self._stderr = stderr
        self._ended = threading.Event()
        self._returncode: int | None = None
        self._lock = threading.Lock()
        self._inner_sockets: list[socket.socket] = []
        outer_sockets: list[socket.socket] = []
        for _ in range(2):
            inner, outer = socket.socketpair()
            self._inner_sockets.append(inner)
            outer_sockets.append(outer)
        self.stdin: IO[bytes] = outer_sockets[0].makefile("wb")
        self.stdout: IO[bytes] = outer_sockets[1].makefile("rb")
        for outer_socket in outer_sockets:
            outer_socket.close()  # The files keep them open.
        config = Config.parse(dict(options)).model_copy(update={"flush_interval_seconds": _FLUSH_SECONDS})
        self._meet(config)
        termination = Termination()
        run = threading.Thread(target=self._run, args=(config, catalog, termination), daemon=True)
        run.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def returncode(self) -> int | None:
        return self._returncode

    def send_signal(self, sig: int) -> None:
        """Tell what each thread was doing: the only signal is that of a sync that does not end."""
        raise TimeoutError(f"the sync does not end, signal {sig}")

    def kill(self) -> None:
        """Let nothing of it be heard or done any more."""
        self._end(-9)

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout) or self._returncode is None:
            raise subprocess.TimeoutExpired("write", timeout or 0.0)
        return self._returncode

    def _end(self, returncode: int) -> None:
        with self._lock:
            if self._returncode is not None:
                return
            self._returncode = returncode
        for inner in self._inner_sockets:
            # Not closed: another sync could get a number that threads of this one still write to.
            inner.shutdown(socket.SHUT_RDWR)
        self._ended.set()

    def _run(self, config: Config, catalog: Mapping[str, object], termination: Termination) -> None:
        stdin, stdout = (inner.fileno() for inner in self._inner_sockets)
        out = Stdout(stdout)
        code = 1
        try:
            code = run_sync(config, catalog, stdin, out, Engine.start(_NoSpark()), termination)
        except ConnectorError as error:
            failure = error.failure
            out.trace_error(failure.advice, failure.detail, failure.type)
        except BaseException:
            self._stderr.write(f"Fatal Python error\n{traceback.format_exc()}".encode())
            self._stderr.flush()
        finally:
            out.flush()
            self._end(code)

    def _meet(self, config: Config) -> None:
        """Let the requests of its clients meet the adversary."""
        user = aws_access(config)
        services: tuple[Literal["s3", "glue"], ...] = ("s3", "glue")
        for service in services:
            events: Any = user.client(service).meta.events
            # All who are registered are called: moto would do everything twice.
            events.unregister("before-send", botocore_stubber)
            events.register_first("before-send", self._sends)

    def _sends(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        self._stay_dead()
        try:
            answer = self._adversary.answer(_told(request), lambda _: _answered(request))
        except HungUp:
            self._stay_dead()
            raise ConnectionClosedError(endpoint_url=request.url) from None
        self._stay_dead()
        headers = HTTPHeaders()
        for name, value in answer.headers.items():
            headers[name] = value
        return AWSResponse(str(request.url), answer.status, headers, MockRawResponse(answer.body))

    def _stay_dead(self) -> None:
        while self._returncode == -9:
            threading.Event().wait()


_MADE = 16
"""For so many attempts there are clients before a history begins: to make them takes as long as a sync."""


def _key(number: int) -> str:
    return f"AKIAHISTORY{number:05d}"


def make_clients() -> None:
    """Make the clients of attempts, for the processes that are forked from this one. They repeat requests at once.

    Some requests are made, so that the account and they have loaded what they need.
    """
    retries.ExponentialBackoff.delay_amount = lambda *_: 0.01  # type: ignore[method-assign]
    made: Any = (access._sessions, access._clients)
    for number in range(_MADE):
        user = AwsAccess(REGION, AccessKeys(_key(number), SECRET_ACCESS_KEY))
        user.client("s3")
        user.client("glue")
    kept = [dict(cache) for cache in made]

    def keep() -> None:
        for cache, before in zip(made, kept, strict=True):
            cache.update(before)

    with mock_aws():
        s3, glue = user.client("s3"), user.client("glue")
        s3.create_bucket(Bucket="bucket")
        upload = s3.create_multipart_upload(Bucket="bucket", Key="k")["UploadId"]
        part = s3.upload_part(Bucket="bucket", Key="k", UploadId=upload, PartNumber=1, Body=b"-")
        parts: Any = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
        s3.complete_multipart_upload(Bucket="bucket", Key="k", UploadId=upload, MultipartUpload=parts)
        s3.put_object(Bucket="bucket", Key="k", Body=b"-")
        s3.get_object(Bucket="bucket", Key="k")["Body"].read()
        s3.list_objects_v2(Bucket="bucket")
        glue.create_database(DatabaseInput={"Name": "d"})
        table: Any = {
            "Name": "t",
            "StorageDescriptor": {"Columns": [{"Name": "c", "Type": "int"}], "Location": "s3://bucket/"},
        }
        glue.create_table(DatabaseName="d", TableInput=table)
        glue.update_table(DatabaseName="d", TableInput=table)
        glue.get_table(DatabaseName="d", Name="t")

    # No connection is ever opened, so that they can be shared.
    os.register_at_fork(after_in_child=keep)


def _told(request: AWSPreparedRequest) -> Request:
    """The request as a proxy would see it."""
    url = urlsplit(str(request.url))
    path = f"{url.path}?{url.query}" if url.query else url.path
    headers = {str(k): v.decode() if isinstance(v, bytes) else str(v) for k, v in request.headers.items()}
    operation = headers.get("X-Amz-Target", "").rpartition(".")[2]
    body = request.body if isinstance(request.body, bytes) else b""
    return Request(str(request.method), path, operation, headers, body, 0)


def _answered(request: AWSPreparedRequest) -> Answer:
    answered = botocore_stubber.process_request(request)
    assert answered is not None, f"moto does not know {request.url}"
    status, headers, body = answered
    content = body.encode() if isinstance(body, str) else body
    return Answer(status, {str(name): str(value) for name, value in headers.items()}, content)


class _NoSpark(InProcess):
    """The backend of an engine without Spark: it runs tasks one after the other."""

    application_id: str | None = None
    is_local = True

    def start(self) -> None:
        pass

    def ended(self) -> SparkFailed | None:
        return None

    def progress(self) -> JobsProgress:
        return JobsProgress()

    def stop(self, *, orderly: bool) -> None:
        pass
