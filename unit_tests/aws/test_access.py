"""Access to AWS as a value: it travels without showing its secrets, and makes clients where it arrives."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

from destination_datalake.aws.access import AccessKeys, AwsAccess, Role

ACCESS = AwsAccess("eu-west-1", AccessKeys("AKIA1234", "s3cr3t/9876"), "http://localhost:1")


def test_no_repr_shows_a_secret() -> None:
    shown = repr(ACCESS) + str(ACCESS)

    assert "AKIA1234" not in shown
    assert "s3cr3t" not in shown


def test_it_travels_and_makes_its_clients_where_it_arrives() -> None:
    ACCESS.client("s3")

    arrived = pickle.loads(pickle.dumps(ACCESS))

    assert arrived == ACCESS
    assert arrived.client("s3") is ACCESS.client("s3")
    assert arrived.client("s3").meta.endpoint_url == "http://localhost:1"
    assert arrived.client("glue").meta.region_name == "eu-west-1"


def test_a_forked_process_does_not_use_its_parent_s_connections() -> None:
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


def test_requests_are_tried_often_and_in_the_standard_way() -> None:
    settings: Any = ACCESS.client("glue").meta.config

    assert settings.retries == {"mode": "standard", "total_max_attempts": 10}


def test_a_role_needs_something_to_start_from(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import NoCredentialsError

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)

    with pytest.raises(NoCredentialsError):
        AwsAccess("eu-west-1", Role("arn:aws:iam::123456789012:role/r")).client("s3")


def test_having_access_costs_no_import_of_boto3_or_the_cdk_until_it_is_used() -> None:
    program = (
        "import sys, destination_datalake.aws.access; print({'boto3', 'airbyte_cdk', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "set()"
