"""Steps about Lake Formation: what they foresee, what they warn of, and that they change nothing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from destination_datalake.check.connection import try_identity
from destination_datalake.check.governance import (
    EVERYBODY,
    try_defaults,
    try_grants,
    try_lf_tags,
    try_location,
    try_permissions,
)
from destination_datalake.check.step import CheckContext, StepFindings
from destination_datalake.lake_formation.state import (
    AllTables,
    Catalog,
    Database,
    DataLocation,
    LfTag,
    Resource,
    Table,
    to_request,
)
from destination_datalake.tables.glue.catalog import ensure_database
from unit_tests.check.examples import a_context, deny, findings_of
from unit_tests.cloud import BUCKET, Cloud, another_client

USER = "arn:aws:sts::123456789012:user/moto"
"""Whom moto takes every caller for."""
ANALYST = "arn:aws:iam::123456789012:role/analyst"
ROLE = "arn:aws:iam::123456789012:role/location"
LOCATION = f"arn:aws:s3:::{BUCKET}"
GRANTS: list[dict[str, object]] = [
    {"principal": ANALYST, "permissions": ["DESCRIBE"]},
    {"principal": ANALYST, "permissions": ["SELECT"], "table": "*"},
    {"principal": ANALYST, "permissions": ["DATA_LOCATION_ACCESS"]},
]
TAGS = {"domain": ["sales", "new"]}
Attempt = Callable[[CheckContext, StepFindings], None]


class Lab:
    """An account in which Lake Formation governs what is new, with the database, and a user without permissions."""

    def __init__(self, cloud: Cloud, mode: str = "managed", *, admin: bool = False, **governance: Any) -> None:
        self.lf = cloud.access.client("lakeformation")
        self.glue = cloud.access.client("glue")
        self.settings(*([USER] if admin else []))
        ensure_database(self.glue, "raw")
        self.context = a_context(
            cloud.access, region="us-east-1", lake_formation={"mode": mode, "tags": {}, "grants": [], **governance}
        )
        try_identity(self.context, StepFindings())

    def settings(self, *admins: str, opened: bool = False) -> None:
        default: Any = [{"Principal": {"DataLakePrincipalIdentifier": EVERYBODY}, "Permissions": ["ALL"]}]
        self.lf.put_data_lake_settings(
            DataLakeSettings={
                "DataLakeAdmins": [{"DataLakePrincipalIdentifier": admin} for admin in admins],
                "CreateDatabaseDefaultPermissions": default if opened else [],
                "CreateTableDefaultPermissions": default if opened else [],
            }
        )

    def grant(self, resource: Resource, *permissions: Any, to: str = USER, grantable: bool = False) -> None:
        self.lf.grant_permissions(
            Principal={"DataLakePrincipalIdentifier": to},
            Resource=to_request(resource),
            Permissions=permissions,
            PermissionsWithGrantOption=permissions if grantable else [],
        )

    def register(self, *, hybrid: bool = False) -> None:
        self.lf.register_resource(ResourceArn=LOCATION, RoleArn=ROLE, HybridAccessEnabled=hybrid)

    def findings(self, *attempts: Attempt) -> StepFindings:
        """What the steps find after the settings are read."""
        try_location(self.context, StepFindings())
        findings = findings_of(self.context)
        for attempt in attempts:
            attempt(self.context, findings)
        return findings


def only_failure(findings: StepFindings) -> str:
    [failure] = findings.failures
    assert failure.error_class == "insufficient_permissions"
    return failure.message


@pytest.mark.parametrize(
    ("mode", "hybrid", "warning"),
    [
        ("managed", None, f"Data location {LOCATION} is not registered with Lake Formation"),
        ("hybrid", None, f"Data location {LOCATION} is not registered with Lake Formation"),
        ("managed", False, None),
        ("hybrid", True, None),
        ("managed", True, f"Data location {LOCATION} is registered with Lake Formation for hybrid access"),
    ],
)
def test_a_location_that_is_not_as_asked_for_is_a_warning(
    cloud: Cloud, mode: str, hybrid: bool | None, warning: str | None
) -> None:
    lab = Lab(cloud, mode)
    if hybrid is not None:
        lab.register(hybrid=hybrid)

    findings = lab.findings(try_location)

    assert findings.failures == []
    assert [note.startswith(warning) for note in findings.notes if warning] == ([] if warning is None else [True])
    assert len(findings.notes) == (warning is not None)


def test_access_to_a_location_that_the_first_sync_registers_is_asked_for_before_it_is_needed(cloud: Cloud) -> None:
    # Given a location that nobody has registered, so that any caller may create tables there as yet
    lab = Lab(cloud, registration_role_arn=ROLE)

    message = only_failure(lab.findings(try_location))

    # Then the command can be run as it is printed: access is granted on a location that is registered
    first, second = message.partition(" Run: ")[2].split(" && ")
    assert f"{USER} needs DATA_LOCATION_ACCESS on data location {LOCATION}" in message
    options = dict(pairwise(shlex.split(first)))
    assert first.startswith("aws lakeformation register-resource ")
    lab.lf.register_resource(ResourceArn=options["--resource-arn"], RoleArn=options["--role-arn"])
    words = dict(pairwise(shlex.split(second)))
    assert json.loads(words["--resource"]) == to_request(DataLocation(LOCATION))
    lab.grant(DataLocation(LOCATION), words["--permissions"])
    findings = lab.findings(try_location)
    assert (findings.failures, findings.notes) == ([], [])


def test_tables_below_the_location_of_their_database_need_no_other_access(cloud: Cloud) -> None:
    lab = Lab(cloud, registration_role_arn=ROLE)
    lab.glue.update_database(Name="raw", DatabaseInput={"Name": "raw", "LocationUri": lab.context.config.uri("raw")})

    assert lab.findings(try_location).failures == []


def test_a_location_that_the_first_sync_registers_is_registered_by_no_check(cloud: Cloud) -> None:
    lab = Lab(cloud, admin=True, registration_role_arn=ROLE, grants=GRANTS)

    findings = lab.findings(try_location)

    assert (findings.failures, findings.notes) == ([], [])
    assert lab.lf.list_resources()["ResourceInfoList"] == []


@pytest.mark.parametrize(
    ("resource", "permission", "granted"),
    [(AllTables("raw"), "SELECT", GRANTS[1]), (Database("raw"), "DESCRIBE", GRANTS[0])],
)
def test_a_grant_that_the_caller_may_not_make_is_a_failure_with_the_command(
    cloud: Cloud, resource: Resource, permission: str, granted: dict[str, object]
) -> None:
    lab = Lab(cloud, grants=[granted])

    message = only_failure(lab.findings(try_grants))

    assert message.startswith(f"Cannot grant {ANALYST} {permission} on {resource} (Lake Formation, GrantPermissions)")
    assert (
        f"{USER} needs {permission} on {resource} with grant option. Run: aws lakeformation grant-permissions"
        in message
    )
    lab.grant(resource, permission, grantable=True)
    assert lab.findings(try_grants).failures == []


def test_a_grant_on_the_location_that_the_caller_may_not_make_is_a_failure(cloud: Cloud) -> None:
    lab = Lab(cloud, grants=GRANTS[2:])
    lab.register()

    message = only_failure(lab.findings(try_location))

    assert f"{USER} needs DATA_LOCATION_ACCESS on data location {LOCATION} with grant option" in message
    lab.grant(DataLocation(LOCATION), "DATA_LOCATION_ACCESS", grantable=True)
    assert lab.findings(try_location).failures == []


def test_grants_that_are_there_need_no_permission(cloud: Cloud) -> None:
    lab = Lab(cloud, grants=GRANTS[:1])
    lab.grant(Database("raw"), "DESCRIBE", to=ANALYST)

    assert lab.findings(try_grants).failures == []


def test_only_administrators_may_opt_principals_in(cloud: Cloud) -> None:
    lab = Lab(cloud, "hybrid", grants=GRANTS[:1])
    lab.grant(Database("raw"), "DESCRIBE", grantable=True)

    message = only_failure(lab.findings(try_grants))

    assert message.startswith(f"Cannot opt {ANALYST} in on database raw (Lake Formation, CreateLakeFormationOptIn)")
    assert f"Make {USER} a data lake administrator, or set lake_formation.mode to managed, or ask an" in message
    assert "Add this statement" not in message

    # An administrator runs the command.
    command = shlex.split(message.partition(" Run: ")[2])
    lab.lf.create_lake_formation_opt_in(
        Principal={"DataLakePrincipalIdentifier": ANALYST},
        Resource=json.loads(command[command.index("--resource") + 1]),
    )
    lab.register(hybrid=True)
    lab.grant(Database("raw"), "DESCRIBE", to=ANALYST)
    assert lab.findings(try_grants).failures == []


@pytest.mark.parametrize(
    ("defined", "doing", "needs", "resource", "permission"),
    [
        ([], "create LF-Tag domain", "CREATE_LF_TAG on the Data Catalog", Catalog(), "CREATE_LF_TAG"),
        (["sales"], "add the values new to LF-Tag domain", "ALTER on LF-Tag domain", LfTag("domain", ("*",)), "ALTER"),
    ],
)
def test_an_lf_tag_that_the_caller_may_not_define_is_a_failure_with_the_command(
    cloud: Cloud, defined: list[str], doing: str, needs: str, resource: Resource, permission: str
) -> None:
    lab = Lab(cloud, table_tags=[{"table": "orders", "tags": TAGS}])
    if defined:
        lab.lf.create_lf_tag(TagKey="domain", TagValues=defined)

    message = only_failure(lab.findings(try_lf_tags))

    assert message.startswith(f"Cannot {doing} (Lake Formation, ")
    assert f"{USER} needs {needs}. Run: aws lakeformation grant-permissions" in message
    lab.grant(resource, permission)
    assert lab.findings(try_lf_tags).failures == []


def test_a_database_that_the_caller_may_not_tag_is_a_failure_with_the_command(cloud: Cloud) -> None:
    lab = Lab(cloud, tags={"domain": ["sales"]})
    lab.lf.create_lf_tag(TagKey="domain", TagValues=["sales"])

    message = only_failure(lab.findings(try_lf_tags))

    assert message.startswith("Cannot assign LF-Tag domain=sales to database raw (Lake Formation, AddLFTagsToResource)")
    assert f"{USER} needs ALTER, CREATE_TABLE, DESCRIBE, DROP on database raw with grant option" in message


def test_an_administrator_may_do_all_of_it_and_nothing_is_left_behind(cloud: Cloud) -> None:
    lab = Lab(cloud, "hybrid", admin=True, tags=TAGS, grants=GRANTS)
    lab.lf.create_lf_tag(TagKey="domain", TagValues=["sales"])

    assert lab.findings(try_location, try_permissions, try_lf_tags, try_grants).failures == []
    assert lab.glue.get_tables(DatabaseName="raw")["TableList"] == []
    assert lab.lf.get_lf_tag(TagKey="domain")["TagValues"] == ["sales"]
    held = lab.lf.list_permissions(Resource={"Database": {"Name": "raw"}})["PrincipalResourcePermissions"]
    assert ANALYST not in {entry["Principal"]["DataLakePrincipalIdentifier"] for entry in held}


def test_missing_permissions_on_tables_of_others_are_a_warning(cloud: Cloud) -> None:
    lab = Lab(cloud)
    lab.grant(AllTables("raw"), "ALTER", "DESCRIBE")

    findings = lab.findings(try_permissions)

    assert findings.failures == []
    [note] = findings.notes
    assert note.startswith(
        f"{USER} lacks DELETE, INSERT on all tables of database raw. Syncs need these permissions for tables"
    )
    assert "aws lakeformation grant-permissions" in note


@pytest.mark.parametrize(
    ("resource", "holder"),
    [(AllTables("raw"), USER), (AllTables("raw"), EVERYBODY), (Database("raw"), EVERYBODY)],
)
def test_permissions_on_tables_of_others_may_be_the_caller_s_or_everybody_s(
    cloud: Cloud, resource: Resource, holder: str
) -> None:
    lab = Lab(cloud)
    lab.grant(resource, "ALL", to=holder)

    assert lab.findings(try_permissions).notes == []


def test_a_governed_account_has_no_default_permissions_to_warn_of(cloud: Cloud) -> None:
    assert Lab(cloud).findings(try_defaults).notes == []


def test_settings_that_open_what_is_new_are_a_warning(cloud: Cloud) -> None:
    lab = Lab(cloud)
    lab.settings(opened=True)

    [note] = lab.findings(try_defaults).notes

    assert note.startswith(f"The data lake settings grant {EVERYBODY} all permissions on new databases and tables")
    assert "Set CreateDatabaseDefaultPermissions and CreateTableDefaultPermissions to []" in note


@pytest.mark.parametrize("resource", [Database("raw"), AllTables("raw"), Table("raw", "orders")])
def test_permissions_that_void_governance_are_a_warning_with_the_command_that_revokes_them(
    cloud: Cloud, resource: Resource
) -> None:
    lab = Lab(cloud)
    lab.glue.create_table(DatabaseName="raw", TableInput={"Name": "orders"})
    lab.grant(resource, "ALL", to=EVERYBODY)

    findings = lab.findings(try_defaults)

    assert findings.failures == []
    [note] = findings.notes
    assert note.startswith(
        f"{EVERYBODY} has all permissions on {resource}, so IAM alone controls access to this resource."
    )
    assert "aws lakeformation revoke-permissions" in note
    assert "--permissions ALL" in note


def test_the_table_of_another_check_is_not_warned_of(cloud: Cloud) -> None:
    lab = Lab(cloud)
    lab.glue.create_table(DatabaseName="raw", TableInput={"Name": f"airbyte_check_{'a' * 32}"})
    lab.grant(Table("raw", f"airbyte_check_{'a' * 32}"), "ALL", to=EVERYBODY)

    assert lab.findings(try_defaults).notes == []


def test_a_database_that_opens_new_tables_is_a_warning_with_the_command_that_keeps_the_rest(cloud: Cloud) -> None:
    lab = Lab(cloud)
    opened: Any = [{"Principal": {"DataLakePrincipalIdentifier": EVERYBODY}, "Permissions": ["ALL"]}]
    lab.glue.update_database(
        Name="raw",
        DatabaseInput={"Name": "raw", "Description": "of the shop's", "CreateTableDefaultPermissions": opened},
    )

    [note] = lab.findings(try_defaults).notes

    assert note.startswith(f"Database raw grants {EVERYBODY} all permissions on new tables")
    assert '"CreateTableDefaultPermissions": []' in note
    assert '"Description"' in note


def test_more_tables_than_a_message_takes_are_counted(cloud: Cloud) -> None:
    lab = Lab(cloud)
    for number in range(8):
        lab.glue.create_table(DatabaseName="raw", TableInput={"Name": f"t{number}"})
        lab.grant(Table("raw", f"t{number}"), "ALL", to=EVERYBODY)

    *named, summary = lab.findings(try_defaults).notes

    assert len(named) == 5
    assert summary == "The same applies to 3 more tables of database raw. Revoke these permissions too."


def test_without_the_settings_a_foreseen_denial_is_a_warning_for_the_caller_may_be_an_administrator(
    cloud: Cloud,
) -> None:
    lab, access = Lab(cloud, grants=GRANTS[:1]), another_client()
    deny(access, "lakeformation", "GetDataLakeSettings")
    lab.context.access = access
    findings = findings_of(lab.context)
    try_location(lab.context, findings)
    try_grants(lab.context, findings)

    assert findings.failures == []
    settings, location, grant = findings.notes
    assert "Allow lakeformation:GetDataLakeSettings" in settings
    assert location.startswith(f"Data location {LOCATION} is not registered")
    assert grant.startswith(
        f"This problem does not apply if the caller is a data lake administrator: Cannot grant {ANALYST} DESCRIBE"
    )
