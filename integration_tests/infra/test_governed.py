"""A managed stack after its command: Lake Formation decides, and the roles need what the stack grants them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError
from emulated_aws.account import Account, allow

from integration_tests.harness.runs.platform import Platform
from integration_tests.infra.conftest import Deploy
from integration_tests.infra.lake import DeployedLake, sync

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


def test_in_hybrid_mode_the_grants_count_once_the_connector_is_opted_in(
    deploy: Deploy, platform: Platform, account: Account
) -> None:
    reader = account.role(allow("glue:*")).arn
    lake = deploy(LakeFormationMode="hybrid", ReaderPrincipalArn=reader)
    by_iam = deploy(LakeFormationMode="hybrid")
    lake.stack.run_commands("OptInCommands")
    sync(platform, lake, [1])
    assert opted_in(lake, account) == {
        (principal, kind) for principal in (lake.stack.outputs["RoleArn"], reader) for kind in ("Database", "Table")
    }

    for deployed_lake in (lake, by_iam):
        revoke(account, granted_by(deployed_lake, "ConnectorDatabaseGrant"))

    assert platform.check(lake.config()).connection_status["status"] == "FAILED"
    assert platform.check(by_iam.config()).connection_status["status"] == "SUCCEEDED"


def test_a_namespace_gets_a_database_of_its_own_by_a_stack_of_its_own(governed: Deploy, platform: Platform) -> None:
    lake = governed()
    shop = lake.name("shop")

    lake.add_namespace(shop).run_commands("RevokeCommand")
    sync(platform, lake, [1], namespace=shop)

    assert lake.tables() == [(shop, "orders")]


def opted_in(lake: DeployedLake, account: Account) -> set[tuple[str, str]]:
    """Return who is opted in on what kind of resource of the lake."""
    listed = account.client("lakeformation").list_lake_formation_opt_ins()["LakeFormationOptInsInfoList"]
    return {
        (opt_in["Principal"]["DataLakePrincipalIdentifier"], next(iter(opt_in["Resource"])))
        for opt_in in listed
        if lake.database in json.dumps(opt_in["Resource"])
    }


def granted_by(lake: DeployedLake, logical_name: str) -> Mapping[str, Any]:
    """What a resource of the stack has granted."""
    return {name: value for name, value in lake.stack.properties(logical_name).items() if value != []}


def revoke(account: Account, grant: Mapping[str, Any]) -> None:
    account.client("lakeformation").revoke_permissions(**grant)
