"""Options of Lake Formation: registration of the data location, LF-Tags and grants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from destination_datalake.config.base import ROLE_ARN, Entries, Options

GovernanceMode = Literal["none", "hybrid", "managed"]
Permission = Literal[
    "ALL", "ALTER", "CREATE_TABLE", "DATA_LOCATION_ACCESS", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"
]

LOCATION_PERMISSIONS: frozenset[Permission] = frozenset({"DATA_LOCATION_ACCESS"})
DATABASE_PERMISSIONS: frozenset[Permission] = frozenset({"ALL", "ALTER", "CREATE_TABLE", "DESCRIBE", "DROP"})
TABLE_PERMISSIONS: frozenset[Permission] = frozenset({"ALL", "ALTER", "DELETE", "DESCRIBE", "DROP", "INSERT", "SELECT"})
COLUMN_PERMISSIONS: frozenset[Permission] = frozenset({"SELECT"})
"""The permissions that each kind of resource takes (Lake Formation API: GrantPermissions)."""

ALL_TABLES = "*"

# Lake Formation API: LFTag. Keys have 1 to 128 characters, values 0 to 256; an empty value cannot be told from none.
_TagKey = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\w\s.:/=+\-@%]+$")]
_TagValue = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[\w\s.:/=+\-@%]+$")]
Tags = dict[_TagKey, Annotated[list[_TagValue], Field(min_length=1, max_length=1000)]]
"""LF-Tags by key. The definition of a key gets all of its values; the first is assigned to the resource."""

_Database = Annotated[str | None, Field(pattern=r"^[a-z0-9_-]{1,255}$")]
_Columns = Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]] | None, Field(min_length=1)]


class LfTag(Options):
    """An LF-Tag and its values."""

    name: _TagKey
    values: Annotated[list[_TagValue], Field(min_length=1)]


class TableTags(Options):
    """LF-Tags for a table, or for some of its columns, besides those that it inherits from its database."""

    table: Annotated[str, Field(min_length=1, max_length=255)]
    tags: Annotated[Tags, Field(min_length=1), Entries(LfTag)]
    database: _Database = None
    columns: _Columns = None


class Grant(Options):
    """Permissions of one principal: on the data location and the databases, on tables, or on columns of tables."""

    principal: Annotated[str, Field(pattern=r"^(arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[0-9]{0,12}:.+|[0-9]{12})$")]
    permissions: Annotated[list[Permission], Field(min_length=1)]
    grantable: bool = False
    database: _Database = None
    table: Annotated[str | None, Field(min_length=1, max_length=255)] = None
    columns: _Columns = None


class LakeFormationOptions(Options):
    """What Lake Formation governs, and who may use it."""

    mode: GovernanceMode = "none"
    registration_role_arn: Annotated[str | None, Field(pattern=ROLE_ARN)] = None
    tags: Annotated[Tags, Entries(LfTag)] = Field(default_factory=dict)
    table_tags: list[TableTags] = Field(default_factory=list)
    grants: list[Grant] = Field(default_factory=list)


def contradictory_governance(options: LakeFormationOptions, *, governed_tables: bool) -> Iterator[str]:
    """Yield a sentence for each contradiction among valid options. `governed_tables` is an older option."""
    if governed_tables and options.mode != "managed":
        yield (
            f"lakeformation_governed_tables true asks for tables that Lake Formation manages, lake_formation.mode "
            f"{options.mode} does not. Set lake_formation.mode to managed, or lakeformation_governed_tables to false."
        )
    elif options.mode == "none":
        given = ("registration_role_arn", "tags", "table_tags", "grants")
        if without_effect := [f"lake_formation.{name}" for name in given if getattr(options, name)]:
            yield (
                f"lake_formation.mode none leaves Lake Formation alone, so {' and '.join(without_effect)} would have "
                "no effect. Set lake_formation.mode to hybrid or managed, or leave them out."
            )
    for number, grant in enumerate(options.grants):
        yield from _contradictory_grant(f"lake_formation.grants.{number}", grant)


def _contradictory_grant(name: str, grant: Grant) -> Iterator[str]:
    permissions = frozenset(grant.permissions)
    if grant.columns is not None:
        if grant.table is None:
            yield f'{name}.columns belong to a table. Add its name as table, or "*" for all tables.'
        elif rest := permissions - COLUMN_PERMISSIONS:
            yield (
                f"{name}: Lake Formation grants only SELECT on columns, not {', '.join(sorted(rest))}. "
                "Leave columns out, or put the other permissions into a grant of their own."
            )
    elif grant.table is not None:
        if rest := permissions - TABLE_PERMISSIONS:
            yield (
                f"{name}: {', '.join(sorted(rest))} cannot be granted on a table. "
                "Put it into a grant of its own, without table."
            )
    elif rest := permissions - DATABASE_PERMISSIONS - LOCATION_PERMISSIONS:
        yield (
            f"{name}: {', '.join(sorted(rest))} cannot be granted on a database. "
            'Add the name of a table as table, or "*" for all tables.'
        )
