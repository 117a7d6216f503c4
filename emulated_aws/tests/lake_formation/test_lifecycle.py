"""Lake Formation's state after Glue creates and drops resources. `lifecycle.py` and `settings.py` cite AWS's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lake_formation.conftest import (
    ANALYST,
    EVERY_TABLE,
    ORDERS,
    SHOP,
    caller,
    create_table,
    refusal,
)

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_lakeformation import LakeFormationClient

pytestmark = pytest.mark.share(3)

NEW: Any = {"Table": {"DatabaseName": "shop", "Name": "new"}}
EVERYBODY = "IAM_ALLOWED_PRINCIPALS"


def principal(arn: str) -> Any:
    return {"DataLakePrincipalIdentifier": arn}


def granted(lf: LakeFormationClient, resource: Any) -> dict[str, set[str]]:
    """Return the permissions on a resource by principal. Append a plus to permissions with the grant option."""
    permissions: dict[str, set[str]] = {}
    for entry in lf.list_permissions(Resource=resource)["PrincipalResourcePermissions"]:
        held = permissions.setdefault(entry["Principal"]["DataLakePrincipalIdentifier"], set())
        grantable = set(entry["PermissionsWithGrantOption"])
        held |= {f"{permission}+" if permission in grantable else permission for permission in entry["Permissions"]}
    return permissions


def test_in_a_new_account_iam_decides_about_what_is_new(lf: LakeFormationClient) -> None:
    assert granted(lf, SHOP) == granted(lf, ORDERS) == {EVERYBODY: {"ALL"}}


def test_in_a_governed_account_nobody_has_what_is_new(governed: LakeFormationClient, glue: GlueClient) -> None:
    glue.create_database(DatabaseInput={"Name": "lab"})
    glue.create_table(DatabaseName="lab", TableInput={"Name": "new"})

    assert granted(governed, {"Database": {"Name": "lab"}}) == {}
    assert granted(governed, {"Table": {"DatabaseName": "lab", "Name": "new"}}) == {}


def test_a_database_keeps_the_default_that_it_was_created_with(governed: LakeFormationClient, glue: GlueClient) -> None:
    create_table(glue, "new")

    assert granted(governed, NEW) == {EVERYBODY: {"ALL"}}
    assert glue.get_database(Name="shop")["Database"]["CreateTableDefaultPermissions"] != []


def test_a_database_says_itself_what_its_tables_are_granted_to(lf: LakeFormationClient, glue: GlueClient) -> None:
    glue.create_database(DatabaseInput={"Name": "lab", "CreateTableDefaultPermissions": []})
    glue.create_table(DatabaseName="lab", TableInput={"Name": "new"})

    assert granted(lf, {"Table": {"DatabaseName": "lab", "Name": "new"}}) == {}


def test_an_update_of_a_database_keeps_its_default_unless_it_names_another(
    lf: LakeFormationClient, glue: GlueClient
) -> None:
    glue.update_database(Name="shop", DatabaseInput={"Name": "shop", "Description": "ours"})
    create_table(glue, "new")
    glue.update_database(Name="shop", DatabaseInput={"Name": "shop", "CreateTableDefaultPermissions": []})
    create_table(glue, "newer")

    assert granted(lf, NEW) == {EVERYBODY: {"ALL"}}
    assert granted(lf, {"Table": {"DatabaseName": "shop", "Name": "newer"}}) == {}


def test_settings_are_replaced_as_a_whole(governed: LakeFormationClient) -> None:
    governed.put_data_lake_settings(DataLakeSettings={"DataLakeAdmins": [principal(ANALYST)]})

    settings = governed.get_data_lake_settings()["DataLakeSettings"]
    assert settings["DataLakeAdmins"] == [principal(ANALYST)]
    assert settings["CreateTableDefaultPermissions"] == []


def test_defaults_name_nobody_in_particular(lf: LakeFormationClient) -> None:
    default = [{"Principal": principal(ANALYST), "Permissions": ["ALL"]}]

    code = refusal(lf.put_data_lake_settings, DataLakeSettings={"CreateTableDefaultPermissions": default})

    assert code == "InvalidInputException"


def test_the_creator_may_do_and_pass_on_everything(governed: LakeFormationClient, glue: GlueClient) -> None:
    with caller(ANALYST):
        glue.create_database(DatabaseInput={"Name": "lab"})
        glue.create_table(DatabaseName="lab", TableInput={"Name": "new"})

    assert granted(governed, {"Database": {"Name": "lab"}}) == {
        ANALYST: {"ALL+", "ALTER+", "CREATE_TABLE+", "DESCRIBE+", "DROP+"}
    }
    assert granted(governed, {"Table": {"DatabaseName": "lab", "Name": "new"}}) == {
        ANALYST: {"ALL+", "ALTER+", "DELETE+", "DESCRIBE+", "DROP+", "INSERT+", "SELECT+"}
    }


@pytest.mark.parametrize("drop", ["delete_table", "batch_delete_table", "delete_database"])
def test_a_dropped_table_that_is_created_again_is_a_new_one(
    governed: LakeFormationClient, glue: GlueClient, drop: str
) -> None:
    governed.create_lf_tag(TagKey="team", TagValues=["ops"])
    tag: Any = {"TagKey": "team", "TagValues": ["ops"]}
    for resource in (ORDERS, SHOP):
        governed.add_lf_tags_to_resource(Resource=resource, LFTags=[tag])
        governed.grant_permissions(Principal=principal(ANALYST), Resource=resource, Permissions=["DROP"])
        governed.create_lake_formation_opt_in(Principal=principal(ANALYST), Resource=resource)
    governed.grant_permissions(Principal=principal(ANALYST), Resource=EVERY_TABLE, Permissions=["SELECT"])

    if drop == "delete_table":
        glue.delete_table(DatabaseName="shop", Name="orders")
    elif drop == "batch_delete_table":
        glue.batch_delete_table(DatabaseName="shop", TablesToDelete=["orders"])
    else:
        glue.delete_database(Name="shop")
        glue.create_database(DatabaseInput={"Name": "shop", "CreateTableDefaultPermissions": []})
    create_table(glue, "orders")

    kept = drop != "delete_database"
    tags = governed.get_resource_lf_tags(Resource=ORDERS, ShowAssignedLFTags=True)
    assert ANALYST not in granted(governed, ORDERS)
    assert (ANALYST in granted(governed, SHOP)) == (ANALYST in granted(governed, EVERY_TABLE)) == kept
    assert "LFTagsOnTable" not in tags
    assert ("LFTagOnDatabase" in tags) == kept
    assert len(governed.list_lake_formation_opt_ins()["LakeFormationOptInsInfoList"]) == kept
