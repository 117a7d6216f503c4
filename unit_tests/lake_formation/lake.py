"""A governed database with one table, and syncs that govern it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.services import LakeFormationOptions
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from unit_tests.cloud import Cloud

ANALYST = "arn:aws:iam::123456789012:role/analyst"
REGISTRATION_ROLE = "arn:aws:iam::123456789012:role/lake-formation"
LOCATION = "arn:aws:s3:::lake/raw"
COLUMNS = ("id", "email", "Name")

READS = ("Get", "List")
"""How the names of operations begin that change nothing."""


def policy(default_tag: tuple[str, tuple[str, ...]] | None = None, **options: Any) -> Policy:
    """Return the policy of `lake_formation` options."""
    return Policy(LOCATION, LakeFormationOptions.model_validate(options), default_tag)


def everything(mode: str = "managed") -> Policy:
    """Return a policy that asks for something of each kind."""
    return policy(
        ("owner", ("team",)),
        mode=mode,
        registration_role_arn=REGISTRATION_ROLE,
        tags={"domain": ["sales"]},
        table_tags=[
            {"table": "orders", "tags": {"layer": ["raw"]}},
            {"table": "*", "columns": ["email", "name"], "tags": {"pii": ["yes"]}},
        ],
        grants=[
            {"principal": ANALYST, "permissions": ["DATA_LOCATION_ACCESS", "DESCRIBE"]},
            {"principal": ANALYST, "permissions": ["DESCRIBE"], "table": "*"},
            {"principal": ANALYST, "permissions": ["ALTER", "INSERT"], "table": "orders"},
            {"principal": ANALYST, "permissions": ["SELECT"], "table": "orders", "columns": ["id"], "grantable": True},
        ],
    )


def create_table(cloud: Cloud, columns: Sequence[str] = COLUMNS, table: str = "orders", database: str = "shop") -> None:
    """Create database and table as the connector does before they are governed."""
    glue = cloud.access.client("glue")
    if database not in {entry["Name"] for entry in glue.get_databases()["DatabaseList"]}:
        glue.create_database(DatabaseInput={"Name": database})
    describe_change: Any = [{"Name": name, "Type": "string"} for name in columns]
    glue.create_table(
        DatabaseName=database, TableInput={"Name": table, "StorageDescriptor": {"Columns": describe_change}}
    )


def sync(access: AwsAccess, policy: Policy, columns: Sequence[str] = COLUMNS) -> Governance:
    """Govern location, database and table as a sync does."""
    governance = Governance(policy, access)
    governance.govern_location()
    governance.govern_database("shop", lambda: True)
    governance.govern_table("shop", "orders", columns)
    return governance


@contextmanager
def calls(access: AwsAccess) -> Iterator[list[str]]:
    """Lend a list of the operations of Lake Formation that these clients call."""
    operations: list[str] = []
    events = access.client("lakeformation").meta.events

    def notice(model: Any, **_: object) -> None:
        operations.append(model.name)

    events.register("before-call.lakeformation", notice)
    try:
        yield operations
    finally:
        events.unregister("before-call.lakeformation", notice)


def writes(operations: Sequence[str]) -> list[str]:
    return [operation for operation in operations if not operation.startswith(READS)]


@contextmanager
def refusing(
    access: AwsAccess, operation: str, code: str = "AccessDeniedException", text: str = "Denied", times: int = 100
) -> Iterator[None]:
    """As long as this lasts, the next calls of an operation are refused, and do nothing."""
    parsed = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    with answering(access, operation, parsed, times):
        yield


@contextmanager
def answering(access: AwsAccess, operation: str, parsed: Mapping[str, Any], times: int = 100) -> Iterator[None]:
    """As long as this lasts, the next calls of an operation are answered so, and do nothing."""
    events = access.client("lakeformation").meta.events
    remaining = iter(range(times))

    def answer(**_: object) -> Any:
        if next(remaining, None) is None:
            return None
        status = parsed.get("ResponseMetadata", {}).get("HTTPStatusCode", 200)
        return AWSResponse("https://lakeformation", status, HTTPHeaders(), None), parsed

    event = f"before-call.lakeformation.{operation}"
    events.register_first(event, answer)
    try:
        yield
    finally:
        events.unregister(event, answer)


def tags(cloud: Cloud, table: str = "orders", database: str = "shop") -> Mapping[str, Mapping[str, str]]:
    """Return the assigned LF-Tags of the database, of the table (as "") and of its columns."""
    answer = cloud.access.client("lakeformation").get_resource_lf_tags(
        Resource={"Table": {"DatabaseName": database, "Name": table}}, ShowAssignedLFTags=True
    )
    on_columns = {column["Name"]: _values(column["LFTags"]) for column in answer.get("LFTagsOnColumns", [])}
    own = {"database": _values(answer.get("LFTagOnDatabase", [])), "table": _values(answer.get("LFTagsOnTable", []))}
    return {resource: assigned for resource, assigned in {**own, **on_columns}.items() if assigned}


def _values(pairs: Any) -> dict[str, str]:
    return {pair["TagKey"]: pair["TagValues"][0] for pair in pairs}
