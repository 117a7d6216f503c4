"""Lake Formation's permissions of the principal that the connector runs as."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from destination_datalake.config.groups.governance import LOCATION_PERMISSIONS
from destination_datalake.config.options import Config
from destination_datalake.iam_policy.scope import Scope
from destination_datalake.lake_formation.messages import CommandLines
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.lake_formation.resources import AllTables, Catalog, Database, DataLocation, LfTag, Resource


@dataclass(frozen=True, slots=True)
class LakeFormationGrant:
    """Permissions on one resource and the reason for them; `grantable` if the connector grants them to others."""

    permissions: tuple[str, ...]
    resource: Resource
    why: str
    grantable: bool = False

    def command_line(self, principal: str, config: Config) -> str:
        """Return the command of the AWS CLI that makes the grant to the principal with this ARN."""
        lines = CommandLines(config.glue_region or config.region, config.glue_catalog_id)
        return lines.grant(principal, self.permissions, self.resource, grantable=self.grantable)


# https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-assigning-tags.html: all of them, with grant option.
_TO_TAG_A_DATABASE = ("ALTER", "CREATE_TABLE", "DESCRIBE", "DROP")
_TO_TAG_A_TABLE = ("ALTER", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT")
_TAGGED = "LF-Tags on what others have created"


def lake_formation_grants(config: Config, scope: Scope) -> Sequence[LakeFormationGrant]:
    """Return what the connector's principal needs where Lake Formation governs the catalog and the location.

    Without tags, DROP is not among it: only `check` drops a table, one that it has created, and who creates a table
    has every permission on it (https://docs.aws.amazon.com/lake-formation/latest/dg/implicit-permissions.html). For the
    same reason nothing is granted on LF-Tags that do not exist yet, which the connector creates.
    """
    return [*_on_catalog(config), *_on_locations(config, scope), *_on_databases(config, scope), *_on_tags(config)]


def _on_catalog(config: Config) -> Iterator[LakeFormationGrant]:
    yield LakeFormationGrant(("CREATE_DATABASE",), Catalog(), "databases that do not exist")
    if _tags(config):
        yield LakeFormationGrant(("CREATE_LF_TAG",), Catalog(), "LF-Tags that are not defined")


def _on_locations(config: Config, scope: Scope) -> Iterator[LakeFormationGrant]:
    passed_on = _passed_on(config, None, on_tables=False) & LOCATION_PERMISSIONS
    for folder in scope.folders:
        # Not `scope.s3`: a grant is about one location by its name, and knows no wildcards.
        location = DataLocation(folder.arn(scope.partition))
        yield LakeFormationGrant(("DATA_LOCATION_ACCESS",), location, "tables there", grantable=bool(passed_on))


def _on_databases(config: Config, scope: Scope) -> Iterator[LakeFormationGrant]:
    for name in scope.databases:
        database, tables = Database(name), AllTables(name)
        yield LakeFormationGrant(("CREATE_TABLE", "DESCRIBE"), database, "new tables")
        if config.lake_formation.tags:
            yield LakeFormationGrant(_TO_TAG_A_DATABASE, database, _TAGGED, grantable=True)
        yield from _to_others(_passed_on(config, name, on_tables=False) - LOCATION_PERMISSIONS, database)
        yield LakeFormationGrant(("ALTER", "DELETE", "DESCRIBE", "INSERT"), tables, "tables that others have created")
        if any(tagged.database in (None, name) for tagged in config.lake_formation.table_tags):
            yield LakeFormationGrant(_TO_TAG_A_TABLE, tables, _TAGGED, grantable=True)
        yield from _to_others(_passed_on(config, name, on_tables=True), tables)


def _on_tags(config: Config) -> Iterator[LakeFormationGrant]:
    for key in _tags(config):
        tag = LfTag(key, ("*",))
        yield LakeFormationGrant(("ALTER", "ASSOCIATE", "DESCRIBE"), tag, "an LF-Tag that others have defined")


def _to_others(permissions: Collection[str], resource: Resource) -> Iterator[LakeFormationGrant]:
    if permissions:
        why = "`lake_formation.grants`, on what others have created"
        yield LakeFormationGrant(tuple(sorted(permissions)), resource, why, grantable=True)


def _passed_on(config: Config, database: str | None, *, on_tables: bool) -> frozenset[str]:
    """Return the permissions that the options grant to others in a database, or in any."""
    return frozenset(
        permission
        for grant in config.lake_formation.grants
        if (grant.table is not None) == on_tables and (database is None or grant.database in (None, database))
        for permission in grant.permissions
    )


def _tags(config: Config) -> Collection[str]:
    return Policy.of(config).location().tag_values.keys()
