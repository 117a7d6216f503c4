"""Access to AWS as a value: pickled without being shown, clients made per process."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ProfileNotFound

import destination_datalake
from destination_datalake.aws import objects
from destination_datalake.aws.access import AccessKeys, AwsAccess, Role, caller_arn
from destination_datalake.aws.errors import explain
from destination_datalake.buffer import staging
from destination_datalake.sync.landing import MAX_COMMITS
from destination_datalake.tables.iceberg.file_io import MAX_BACKGROUND_WRITES
from integration_tests.harness.loopback import Answer, LoopbackServer, Request
from unit_tests.cloud import another_client

ACCESS = AwsAccess("eu-west-1", AccessKeys("AKIA1234", "s3cr3t/9876"), "http://localhost:1")


def test_repr_and_str_show_no_secret() -> None:
    shown = repr(ACCESS) + str(ACCESS)

    assert "AKIA1234" not in shown
    assert "s3cr3t" not in shown


def test_an_unpickled_access_shares_the_clients_of_its_equal() -> None:
    ACCESS.client("s3")

    arrived = pickle.loads(pickle.dumps(ACCESS))

    assert arrived == ACCESS
    assert arrived.client("s3") is ACCESS.client("s3")
    assert arrived.client("s3").meta.endpoint_url == "http://localhost:1"
    assert arrived.client("glue").meta.region_name == "eu-west-1"


def test_a_forked_process_does_not_share_its_parent_s_connections() -> None:
    before = id(ACCESS.client("s3"))
    read_end, write_end = os.pipe()

    child = os.fork()
    if child == 0:
        os.write(write_end, b"other" if id(ACCESS.client("s3")) != before else b"same")
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(read_end, 10) == b"other"
    os.close(read_end)
    os.close(write_end)


def test_requests_are_sent_up_to_ten_times_in_the_standard_retry_mode() -> None:
    settings: Any = ACCESS.client("glue").meta.config

    assert settings.retries == {"mode": "standard", "total_max_attempts": 10}


def test_a_role_without_credentials_to_assume_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import NoCredentialsError

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)

    with pytest.raises(NoCredentialsError):
        AwsAccess("eu-west-1", Role("arn:aws:iam::123456789012:role/r")).client("s3")


def test_importing_the_module_imports_neither_boto3_nor_the_cdk_nor_pydantic() -> None:
    program = (
        "import sys, destination_datalake.aws.access; print({'boto3', 'airbyte_cdk', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"


def test_arrow_s_file_systems_are_not_used() -> None:
    """They would have credentials, retries and encryption of their own."""
    package = Path(destination_datalake.__file__).parent
    sources = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}

    assert sources
    assert [
        path for path, source in sources.items() if re.search(r"pyarrow[. ].*\bfs\b|\bpa\.fs\b|S3FileSys", source)
    ] == []


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
def test_keys_of_the_options_need_no_profile_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    # Given a profile of another machine, as a shell or a scheduler passes it on
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv(variable, "of-another-machine")

    # Then it is missed by those who need its credentials alone
    access = AwsAccess("eu-west-2", AccessKeys("AKIA1234", "s3cr3t/9876"), "http://localhost:2")
    assert access.client("glue").meta.region_name == "eu-west-2"
    with pytest.raises(ProfileNotFound):
        AwsAccess("eu-west-2").client("glue")


def test_a_client_keeps_a_connection_for_every_thread_of_a_sync() -> None:
    # Tables are committed at once, each writing metadata and publishing files at once; staged segments, and manifests
    # that PyIceberg reads, beside.
    written = MAX_COMMITS * (objects.CONCURRENT_CALLS + MAX_BACKGROUND_WRITES)

    client: Any = ACCESS.client("s3")

    assert client.meta.config.max_pool_connections >= written + staging.CONCURRENT_CALLS + 32


# --- Whom grants are made to

ROLE = "arn:aws:iam::123456789012:role/data/airbyte"


@pytest.mark.parametrize(
    ("identity", "caller"),
    [
        ("arn:aws:iam::123456789012:user/team/airbyte", "arn:aws:iam::123456789012:user/team/airbyte"),
        ("arn:aws:sts::123456789012:assumed-role/airbyte/session", "arn:aws:iam::123456789012:role/airbyte"),
        ("arn:aws-cn:sts::123456789012:assumed-role/a/b", "arn:aws-cn:iam::123456789012:role/a"),
    ],
)
@pytest.mark.usefixtures("cloud")
def test_a_session_is_its_role(identity: str, caller: str) -> None:
    access = another_client()

    def answer(**_: object) -> Any:
        return AWSResponse("https://sts", 200, HTTPHeaders(), None), {"Arn": identity}

    access.client("sts").meta.events.register("before-call.sts.GetCallerIdentity", answer)

    assert caller_arn(access) == caller


def test_the_role_that_the_options_name_has_its_path() -> None:
    assert caller_arn(AwsAccess("us-east-1", Role(ROLE))) == ROLE


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("get_table", {"DatabaseName": "d", "Name": "t"}),
        ("get_tables", {"DatabaseName": "d"}),
        ("get_database", {"Name": "d"}),
        ("get_databases", {}),
        ("get_partitions", {"DatabaseName": "d", "TableName": "t"}),
    ],
)
def test_half_an_answer_of_glue_is_a_transient_error_and_no_empty_catalog(
    operation: str, arguments: dict[str, str]
) -> None:
    """botocore reads JSON that ends early as an object without members."""

    class Half(LoopbackServer):
        def answer(self, request: Request) -> Answer:
            return Answer(200, {}, f'{{"{request.operation.removeprefix("Get")}'.encode())

    with Half() as server:
        glue = AwsAccess("eu-west-1", AccessKeys("AKIA1", "s3cr3t"), endpoint_url=server.endpoint_url).client("glue")
        with pytest.raises(Exception, match="Glue returned a truncated response") as half:
            getattr(glue, operation)(**arguments)

    failure = explain(half.value, doing="read", resource="table d.t")
    assert failure is not None
    assert failure.type == "transient_error"
    assert "the response of AWS is unreadable" in failure.message
