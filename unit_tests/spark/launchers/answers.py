"""Answers of AWS as botocore's models have them, given by botocore's own stubber."""

from __future__ import annotations

import threading
from typing import Any

import boto3
from botocore.stub import Stubber

from destination_datalake.spark.launchers.launcher import Endpoint

STOPPING = threading.Event()


def client_of(service: Any) -> Any:
    """A client whose calls are answered by a stubber."""
    return boto3.client(
        service, region_name="eu-west-1", aws_access_key_id="AKIAEXAMPLE", aws_secret_access_key="secret-example"
    )


def stubbed(client: Any) -> Stubber:
    """Return the client's stubber, in use."""
    stubber = Stubber(client)
    stubber.activate()
    return stubber


def headers_of(endpoint: Endpoint) -> tuple[tuple[str, str], ...]:
    """Return what the next call would have."""
    assert endpoint.headers is not None
    return endpoint.headers()
