"""Lake Formation's permissions of the principal that the connector runs as."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from destination_datalake.config.governance import LOCATION_PERMISSIONS, Tags
from destination_datalake.config.options import Config
from destination_datalake.iam_policy.scope import Scope


@dataclass(frozen=True, slots=True)
class LakeFormationGrant:
    """Permissions on one resource (Lake Formation API: GrantPermissions), and the reason for them.

    `resource` is the API's Resource without CatalogId. `grantable` are those of the permissions that the connector
    grants to others.
    """

    permissions: tuple[str, ...]
    grantable: tuple[str, ...]
    resource: Mapping[str, Any]
    why: str


def lake_formation_grants(config: Config, scope: Scope) -> Sequence[LakeFormationGrant]:
    """Return what the connector's principal needs where Lake Formation governs the catalog and the location.

    DROP is not among it: only `check` drops a table, one that it has created, and who creates a table has every
    permission on it (https://docs.aws.amazon.com/lake-formation/latest/dg/implicit-permissions.html).
    """
    return [
        _grant(_on_catalog(config), {"Catalog": {}}, "databases and LF-Tags that do not exist yet"),
        *(
            _grant(
                LOCATION_PERMISSIONS,
                {"DataLocation": {"ResourceArn": scope.s3(f"{folder.bucket}/{folder.key}".rstrip("/"))}},
                "tables at the location, if it is registered",
                grantable=_granted(config, None, on_tables=False) & LOCATION_PERMISSIONS,
            )
            for folder in scope.folders
        ),
        *(grant for database in scope.databases for grant in _on_database(config, database)),
        *(
            _grant({"ASSOCIATE", "DESCRIBE", "ALTER"}, {"LFTag": {"TagKey": key, "TagValues": values}}, "LF-Tag")
            for key, values in _tags(config).items()
        ),
    ]


def command_line(grant: LakeFormationGrant, principal: str, config: Config) -> str:
    """Return the command of the AWS CLI that makes the grant to the principal with this ARN."""
    words = ["aws", "lakeformation", "grant-permissions", "--region", config.glue_region or config.region]
    if config.glue_catalog_id is not None:
        words += ["--catalog-id", config.glue_catalog_id]
    words += ["--principal", f"DataLakePrincipalIdentifier={principal}", "--permissions", *grant.permissions]
    if grant.grantable:
        words += ["--permissions-with-grant-option", *grant.grantable]
    return shlex.join([*words, "--resource", json.dumps(grant.resource)])


def _on_catalog(config: Config) -> set[str]:
    return {"CREATE_DATABASE", "CREATE_LF_TAG"} if _tags(config) else {"CREATE_DATABASE"}


def _on_database(config: Config, database: str) -> Sequence[LakeFormationGrant]:
    on_database = _granted(config, database, on_tables=False) - LOCATION_PERMISSIONS
    on_tables = _granted(config, database, on_tables=True)
    return (
        _grant({"DESCRIBE", "CREATE_TABLE"}, {"Database": {"Name": database}}, "new tables", grantable=on_database),
        _grant(
            {"DESCRIBE", "ALTER", "INSERT", "DELETE"},
            {"Table": {"DatabaseName": database, "TableWildcard": {}}},
            "commits to tables that others have created",
            grantable=on_tables,
        ),
    )


def _granted(config: Config, database: str | None, *, on_tables: bool) -> frozenset[str]:
    """The permissions that the options grant to others, in this database (None: on the location)."""
    return frozenset(
        permission
        for grant in config.lake_formation.grants
        if (grant.table is not None) == on_tables and (database is None or grant.database in (None, database))
        for permission in grant.permissions
    )


def _tags(config: Config) -> Tags:
    """Every LF-Tag of the options, with all its values."""
    found: dict[str, dict[str, None]] = {}
    governance = config.lake_formation
    for tags in (governance.tags, *(each.tags for each in governance.table_tags)):
        for key, values in tags.items():
            found.setdefault(key, {}).update(dict.fromkeys(values))
    if (default := config.database_default_tag()) is not None:
        found.setdefault(default[0], {}).update(dict.fromkeys(default[1]))
    return {key: [*values] for key, values in found.items()}


def _grant(
    permissions: Iterable[str], resource: Mapping[str, Any], why: str, grantable: Iterable[str] = ()
) -> LakeFormationGrant:
    passed_on = tuple(sorted(grantable))
    # A permission with grant option is granted together with the permission itself.
    return LakeFormationGrant(tuple(sorted({*permissions, *passed_on})), passed_on, resource, why)
