"""An account with the database `shop` and its table `orders`, and clients for Lake Formation and Glue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.exceptions import ClientError
from emulated_aws.caller import caller_arn

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_lakeformation import LakeFormationClient

ANALYST = "arn:aws:iam::123456789012:role/analyst"
SHOP: Any = {"Database": {"Name": "shop"}}
ORDERS: Any = {"Table": {"DatabaseName": "shop", "Name": "orders"}}
EVERY_TABLE: Any = {"Table": {"DatabaseName": "shop", "TableWildcard": {}}}


def columns(*names: str) -> Any:
    return {"TableWithColumns": {"DatabaseName": "shop", "Name": "orders", "ColumnNames": names}}


@pytest.fixture
def glue(session: boto3.Session) -> GlueClient:
    client = session.client("glue")
    client.create_database(DatabaseInput={"Name": "shop"})
    create_table(client, "orders")
    return client


@pytest.fixture
def lf(session: boto3.Session, glue: GlueClient) -> LakeFormationClient:
    assert glue
    return session.client("lakeformation")


@pytest.fixture
def governed(lf: LakeFormationClient) -> LakeFormationClient:
    """Lake Formation in an account in which it governs new databases and tables, instead of IAM alone."""
    lf.put_data_lake_settings(
        DataLakeSettings={"CreateDatabaseDefaultPermissions": [], "CreateTableDefaultPermissions": []}
    )
    return lf


@contextmanager
def caller(arn: str) -> Iterator[None]:
    """Send all requests in the `with` block as this principal."""
    token = caller_arn.set(arn)
    try:
        yield
    finally:
        caller_arn.reset(token)


def create_table(glue: GlueClient, name: str) -> None:
    described: Any = {
        "Columns": [{"Name": "id", "Type": "bigint"}, {"Name": "email", "Type": "string"}],
        "Location": f"s3://lake/shop/{name}",
    }
    partitioned: Any = [{"Name": "day", "Type": "date"}]
    entry: Any = {"Name": name, "StorageDescriptor": described, "PartitionKeys": partitioned}
    glue.create_table(DatabaseName="shop", TableInput=entry)


def refusal(act: Callable[..., object], **request: Any) -> str:
    """Return the error code with which AWS answers a request."""
    with pytest.raises(ClientError) as raised:
        act(**request)
    return raised.value.response["Error"]["Code"]
