"""Glue behaves as AWS documents where moto differs. `emulated_aws.glue` cites AWS's pages."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

pytestmark = pytest.mark.share(3)


def test_names_are_stored_in_lower_case_and_found_in_any(session: boto3.Session) -> None:
    glue = session.client("glue")
    glue.create_database(DatabaseInput={"Name": "Shop"})
    glue.create_table(DatabaseName="SHOP", TableInput={"Name": "Orders", "Parameters": {"K": "V"}})

    table = glue.get_table(DatabaseName="sHop", Name="ORDERS")["Table"]

    assert glue.get_database(Name="SHOP")["Database"]["Name"] == "shop"
    assert (table["DatabaseName"], table["Name"], table["Parameters"]) == ("shop", "orders", {"K": "V"})
    glue.update_table(DatabaseName="SHOP", TableInput={"Name": "ORDERS"})
    assert glue.batch_delete_table(DatabaseName="SHOP", TablesToDelete=["Orders"]).get("Errors", []) == []
    assert glue.get_tables(DatabaseName="SHOP")["TableList"] == []
    glue.delete_database(Name="SHOP")
    assert glue.get_databases()["DatabaseList"] == []


@pytest.mark.parametrize(
    ("operation", "member", "limit"),
    [
        ("batch_create_partition", "PartitionInputList", 100),
        ("batch_delete_partition", "PartitionsToDelete", 25),
        ("batch_delete_table", "TablesToDelete", 100),
        ("batch_get_partition", "PartitionsToGet", 1000),
        ("batch_update_partition", "Entries", 100),
    ],
)
def test_a_batch_has_a_size(session: boto3.Session, operation: str, member: str, limit: int) -> None:
    glue = session.client("glue")
    glue.create_database(DatabaseInput={"Name": "shop"})
    keys: Any = [{"Name": "number", "Type": "string"}]
    glue.create_table(DatabaseName="shop", TableInput={"Name": "orders", "PartitionKeys": keys})
    where = {"DatabaseName": "shop"} | ({} if operation == "batch_delete_table" else {"TableName": "orders"})

    def members(count: int) -> Any:
        match operation:
            case "batch_delete_table":
                return [f"table{number}" for number in range(count)]
            case "batch_update_partition":
                return [
                    {"PartitionValueList": [str(number)], "PartitionInput": {"Values": [str(number)]}}
                    for number in range(count)
                ]
        return [{"Values": [str(number)]} for number in range(count)]

    getattr(glue, operation)(**where, **{member: members(limit)})
    with pytest.raises(ClientError, match="InvalidInputException"):
        getattr(glue, operation)(**where, **{member: members(limit + 1)})
