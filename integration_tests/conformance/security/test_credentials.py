"""A sync that lasts much longer than the credentials it began with, and one whose session token AWS repeats."""

import html
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from emulated_aws.account import Account, allow
from emulated_aws.controls import sessions_lasting
from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, SECRET_ACCESS_KEY

from integration_tests.conformance.security import traces
from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.lake import Lake
from integration_tests.harness.loopback import Answer, Request
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.launch import Launch, with_variables
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

RENEWED_AFTER = 3
"""Seconds after which a role's credentials begin to be renewed: when a third of what was asked for is left."""
RENEWALS = 2
EXTERNAL_ID = "c0ffee00-1a2b-4c3d-8e4f-5a6b7c8d9e0f"
ROLE = {
    "credentials_title": "IAM Role",
    "role_arn": f"arn:aws:iam::{ACCOUNT_ID}:role/airbyte",
    "external_id": EXTERNAL_ID,
    "session_duration_seconds": 900,
}


class ExpiringAws(AwsProxy):
    """Only takes credentials of a role. `used` has, for each purpose of requests, the keys that were taken.

    `secrets` are all secret keys and session tokens that it has issued.

    What it issues has little time left, and it is ahead of that: `expire` ends what is due to be renewed, which the
    real one would five minutes later.
    """

    def __init__(self, endpoint_url: str) -> None:
        super().__init__(endpoint_url)
        self.refused = 0
        self.used: dict[str, set[str]] = {}
        self.secrets: dict[str, str] = {}
        self._issued: dict[str, float] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        if b"Action=AssumeRole" in request.body:
            answer = self.pass_on(request)
            (key,) = re.findall(rb"<AccessKeyId>(\w+)</AccessKeyId>", answer.body)
            end = datetime.now(UTC) + timedelta(seconds=300 + RENEWED_AFTER)
            # Later than what the end was counted from: what is refused as expired has been due for renewal before.
            with self._lock:
                self._issued[key.decode()] = time.monotonic()
                for name, value in re.findall(r"<(SecretAccessKey|SessionToken)>([^<]+)", answer.body.decode()):
                    self.secrets[f"{name} {len(self._issued)}"] = html.unescape(value)
            body = re.sub(rb"(?<=<Expiration>)[^<]+", f"{end:%Y-%m-%dT%H:%M:%SZ}".encode(), answer.body)
            return Answer(answer.status, answer.headers, body)
        (key,) = re.findall(r"Credential=(\w+)/", request.header("Authorization"))
        with self._lock:
            if key not in self._issued:
                self.refused += 1
                return _expired(request)
            self.used.setdefault(_purpose(request), set()).add(key)
        return self.pass_on(request)

    def expire(self) -> None:
        """Reject credentials that were issued so long ago that their holder must be about to renew them."""
        with self._lock:
            due = time.monotonic() - RENEWED_AFTER
            self._issued = {key: issued for key, issued in self._issued.items() if issued > due}


def _purpose(request: Request) -> str:
    """What a request is for: only executors upload data files, only the driver commits them and asks Glue."""
    if request.operation:
        return "Glue"
    if "/lakeformation/aws4_request" in request.header("Authorization"):
        return "Lake Formation"
    if (request.method == "POST" and "uploadId=" in request.path) or "/metadata/" in request.path:
        return "commit"
    return "upload" if request.method == "PUT" else "other"


def _expired(request: Request) -> Answer:
    """Say it as AWS does (Glue: ExpiredTokenException; S3: ExpiredToken)."""
    message = "The security token included in the request is expired"
    if request.operation:
        return Answer(400, {}, f'{{"__type":"ExpiredTokenException","message":"{message}"}}'.encode())
    return Answer(400, {}, f"<Error><Code>ExpiredToken</Code><Message>{message}</Message></Error>".encode())


@pytest.fixture
def launch_with_a_user_s_keys(launch_cold: Launch) -> Launch:
    """The connector is started where the default chain finds keys that may do nothing but assume the role."""
    return with_variables(launch_cold, AWS_ACCESS_KEY_ID=ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY=SECRET_ACCESS_KEY)


@pytest.mark.slow
@pytest.mark.parametrize("table_kind", TABLE_KINDS[:2], ids=lambda kind: kind.name)
def test_a_sync_outlives_the_credentials_of_its_role(
    lake: Lake, tmp_path: Path, launch_with_a_user_s_keys: Launch, table_kind: TableKind
) -> None:
    """Credentials are renewed in time: by the driver for Glue and commits, by executors for uploads.

    Lake Formation is asked before the first commit. The secrets of all generations stay in the memory of processes.
    """
    warehouse = Warehouse(lake, Platform(tmp_path, launch_with_a_user_s_keys), table_kind)
    streams = [configured_stream("orders", object_schema(id=INTEGER, text=STRING), generation=1, minimum=1)]
    batches = range(1, 2 + RENEWALS)
    # More than what Hive tables have executors hold for the driver's commit, however well it is compressed.
    text = secrets.token_urlsafe(2 * 1024 * 1024)

    with ExpiringAws(lake.endpoint_url) as aws:
        options = {
            "credentials": ROLE,
            "endpoint_url": aws.endpoint_url,
            "spark": {"master": "local[1]"},
            "lake_formation": {"mode": "managed", "table_tags": [{"table": "*", "tags": {"owner": ["sales"]}}]},
        }
        with warehouse.start(streams, **options, flush_interval_seconds=1) as running:
            for batch in batches:
                running.send([record("orders", {"id": batch, "text": text}), state("orders", batch)])
                running.wait_for_states(batch)
                traces.assert_without({"the external id": EXTERNAL_ID, **aws.secrets}, traces.of_processes(running))
                if batch <= RENEWALS:
                    time.sleep(RENEWED_AFTER)
                    aws.expire()
            traces.assert_without(aws.secrets, traces.of_files(tmp_path))
            running.send([status("orders", "COMPLETE")])
            run = running.close()

    assert run.exit_code == 0, run.report()
    assert warehouse.ids("orders") == [*batches]
    assert aws.refused == 0
    assert aws.used["Lake Formation"]
    for purpose in ("Glue", "commit", "upload"):
        assert len(aws.used[purpose]) > RENEWALS, f"{purpose}: asked with {len(aws.used[purpose])} keys only"
    issued = {"the external id": EXTERNAL_ID, **aws.secrets}
    traces.assert_without(issued, traces.of_run(run))
    traces.assert_without(issued, traces.of_lake(lake))


@pytest.mark.parametrize("table_kind", TABLE_KINDS[:1], ids=lambda kind: kind.name)
def test_a_sync_continues_after_one_whose_executors_outlived_the_session_that_they_were_lent(
    lake: Lake, tmp_path: Path, launch: WarmLaunch, table_kind: TableKind
) -> None:
    """AWS ends it before the time that it had announced. The user's key stays with the driver."""
    user = Account(lake.endpoint_url).user(allow("s3:*", "glue:*"))
    warehouse = Warehouse(lake, Platform(tmp_path, launch.without_shared_disk()), table_kind)
    streams = [configured_stream("orders", object_schema(id=INTEGER), generation=1, minimum=1)]
    spark = {"master": "spark://elsewhere:7077", "executor_credentials": "session"}
    options = {"credentials": user.credentials, "spark": spark}

    sent = [record("orders", {"id": 1}), state("orders", 1), status("orders", "COMPLETE")]

    with sessions_lasting(lake.endpoint_url, 0, announced_seconds=3600):
        run = warehouse.attempt(streams, sent, **options)
    next_run = warehouse.attempt(streams, sent, **options)

    assert (run.exit_code, len(run.states)) == (1, 0), run.report()
    assert [error["failure_type"] for error in run.errors] == ["transient_error"], run.report()
    assert "the executors' session credentials expired before the job ended" in run.errors[0]["message"]
    assert next_run.exit_code == 0, next_run.report()
    assert warehouse.ids("orders") == [1]


class IndiscreetAws(AwsProxy):
    """Refuses what `meets` accepts, and repeats the session token in saying so, as AWS does with a signature."""

    def __init__(self, endpoint_url: str, meets: Callable[[Request], bool]) -> None:
        super().__init__(endpoint_url)
        self._meets = meets
        self.assumed = 0
        self.tokens: set[str] = set()

    def answer(self, request: Request) -> Answer:
        self.assumed += b"Action=AssumeRole" in request.body
        token = request.header("X-Amz-Security-Token")
        if not token or not self._meets(request):
            return self.pass_on(request)
        self.tokens.add(token)
        message = f"The Canonical String should have been: x-amz-security-token:{token} and so on, {token}"
        if request.operation:
            return Answer(400, {}, json.dumps({"__type": "InvalidSignatureException", "message": message}).encode())
        return Answer(
            403, {}, f"<Error><Code>SignatureDoesNotMatch</Code><Message>{message}</Message></Error>".encode()
        )


@pytest.mark.slow
@pytest.mark.parametrize("table_kind", TABLE_KINDS[:1], ids=lambda kind: kind.name)
@pytest.mark.parametrize("caller", ["driver", "executor", "metadata"])
def test_a_session_token_that_aws_repeats_is_not_repeated_by_us(
    lake: Lake, tmp_path: Path, launch_with_a_user_s_keys: Launch, table_kind: TableKind, caller: str
) -> None:
    warehouse = Warehouse(lake, Platform(tmp_path, launch_with_a_user_s_keys), table_kind)
    meets: Mapping[str, Callable[[Request], bool]] = {
        "driver": lambda request: request.operation == "GetTable",
        "executor": lambda request: "/data/" in request.path and request.method == "PUT",
        "metadata": lambda request: "/metadata/" in request.path and request.method in ("PUT", "POST"),
    }

    with IndiscreetAws(lake.endpoint_url, meets[caller]) as aws:
        options = {"credentials": ROLE, "endpoint_url": aws.endpoint_url, "spark": {"master": "local[1]"}}
        lines = [record("orders", {"id": 1}), status("orders", "COMPLETE")]
        run = warehouse.attempt([configured_stream("orders", object_schema(id=INTEGER))], lines, **options)

    assert run.exit_code == 1
    assert aws.tokens
    output = run.report() + "".join(map(str, run.messages)) + run.stderr
    for token in aws.tokens:
        assert token not in output
    # Once each by the driver, and by the processes on the executor's side.
    assert aws.assumed <= 4


@pytest.mark.slow
@pytest.mark.parametrize("table_kind", TABLE_KINDS[:1], ids=lambda kind: kind.name)
def test_an_endpoint_in_the_environment_is_every_client_s(
    lake: Lake, tmp_path: Path, launch_cold: Launch, table_kind: TableKind
) -> None:
    """The driver's, that of Iceberg's metadata, and those of the executors."""
    launch = with_variables(launch_cold, AWS_ENDPOINT_URL=lake.endpoint_url)
    warehouse = Warehouse(lake, Platform(tmp_path, launch), table_kind)
    lines = [record("orders", {"id": 1}), state("orders", 1), status("orders", "COMPLETE")]

    warehouse.sync([configured_stream("orders", object_schema(id=INTEGER))], lines, endpoint_url=None)

    assert warehouse.ids("orders") == [1]
