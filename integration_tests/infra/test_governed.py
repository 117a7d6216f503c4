"""A managed stack after its command: Lake Formation decides, and the roles need what the stack grants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from integration_tests.harness.account import Account, allow
from integration_tests.harness.runs.platform import Platform
from integration_tests.infra.conftest import Deploy
from integration_tests.infra.lake import DeployedLake
from integration_tests.infra.syncs import attempt, ids, sync

pytestmark = pytest.mark.slow


@pytest.fixture
def governed(deploy: Deploy) -> Deploy:
    """Deploys a managed stack, and runs its command."""

    def deployed(**parameters: str) -> DeployedLake:
        lake = deploy(LakeFormationMode="managed", **parameters)
        lake.stack.run_commands("RevokeCommand")
        return lake

    return deployed


def test_whoever_has_no_grant_reads_no_table_whatever_iam_says(
    governed: Deploy, platform: Platform, account: Account
) -> None:
    somebody, reader = account.user(allow("glue:*")), account.role(allow("glue:*"))
    lake = governed(ReaderPrincipalArn=reader.arn)

    check = platform.check(lake.config())
    sync(platform, lake, [1])

    assert check.connection_status["status"] == "SUCCEEDED", check.report()
    with pytest.raises(ClientError, match="Insufficient Lake Formation permission"):
        account.client("glue", somebody).get_table(DatabaseName=lake.database, Name="orders")
    account.client("glue", reader).get_table(DatabaseName=lake.database, Name="orders")


def test_without_the_grant_on_the_database_check_fails(governed: Deploy, platform: Platform, account: Account) -> None:
    lake = governed()

    revoke(account, granted_by(lake, "ConnectorDatabaseGrant"))
    check = platform.check(lake.config())

    assert check.connection_status["status"] == "FAILED"
    assert "Lake Formation" in check.connection_status["message"]


def test_the_table_of_rejects_outside_the_database_s_location_needs_the_grant_on_the_location(
    governed: Deploy, platform: Platform, account: Account
) -> None:
    lake, without = governed(), governed()
    revoke(account, granted_by(without, "ConnectorLocationGrant"))

    for each in (lake, without):
        sync(platform, each, ["not a number"])

    assert (lake.database, "airbyte_rejects") in lake.tables()
    assert without.tables() == [(without.database, "orders")]


def test_tables_that_somebody_else_has_created_need_the_grant_on_all_tables(
    governed: Deploy, platform: Platform, account: Account
) -> None:
    lake = governed()
    sync(platform, lake, [1])
    forget_creator(lake, "orders", account)

    sync(platform, lake, [2])
    revoke(account, granted_by(lake, "ConnectorTablesGrant"))
    run = attempt(platform, lake, [3])

    assert run.exit_code == 1
    assert "Grant DESCRIBE on orders" in run.report()
    assert ids(lake) == [1, 2]


def test_without_the_grant_on_its_table_no_event_is_delivered(governed: Deploy, account: Account) -> None:
    lake = governed(CreateEventStream="true")
    events, firehose = pa.table({"event_id": ["1"]}), lake.firehose()
    lake.append("events", events, firehose)

    revoke(account, granted_by(lake, "DeliveryTableGrant"))

    with pytest.raises(ClientError, match="Insufficient Lake Formation permission"):
        lake.append("events", events, firehose)
    assert lake.read(lake.database, "events").num_rows == 1


def test_in_hybrid_mode_the_grants_count_once_the_connector_is_opted_in(
    deploy: Deploy, platform: Platform, account: Account
) -> None:
    lake, by_iam = deploy(LakeFormationMode="hybrid"), deploy(LakeFormationMode="hybrid")
    lake.stack.run_commands("OptInCommands")
    sync(platform, lake, [1])

    for each in (lake, by_iam):
        revoke(account, granted_by(each, "ConnectorDatabaseGrant"))

    assert platform.check(lake.config()).connection_status["status"] == "FAILED"
    assert platform.check(by_iam.config()).connection_status["status"] == "SUCCEEDED"


def test_a_namespace_gets_a_database_of_its_own_by_a_stack_of_its_own(governed: Deploy, platform: Platform) -> None:
    lake = governed()
    shop = lake.name("shop")

    lake.add_namespace(shop).run_commands("RevokeCommand")
    sync(platform, lake, [1], namespace=shop)

    assert lake.tables() == [(shop, "orders")]


def granted_by(lake: DeployedLake, logical_name: str) -> Mapping[str, Any]:
    """What a resource of the stack has granted."""
    return {name: each for name, each in lake.stack.properties(logical_name).items() if each != []}


def revoke(account: Account, grant: Mapping[str, Any]) -> None:
    account.client("lakeformation").revoke_permissions(**grant)


def forget_creator(lake: DeployedLake, table: str, account: Account) -> None:
    """Take from the connector's role what it has on a table because it has created it."""
    client = account.client("lakeformation")
    resource = {"Table": {"DatabaseName": lake.database, "Name": table}}
    for each in client.list_permissions(Resource=resource)["PrincipalResourcePermissions"]:
        if each["Principal"]["DataLakePrincipalIdentifier"] == lake.stack.outputs["RoleArn"]:
            revoke(account, each)
