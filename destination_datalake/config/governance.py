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
"""The permissions on each kind of resource (Lake Formation API: GrantPermissions)."""

ALL_TABLES = "*"

# Lake Formation API: LFTag. Keys have 1 to 128 characters, values 0 to 256. An empty value is the same as no value.
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
    """LF-Tags for a table or some of its columns, in addition to the tags inherited from the database."""

    table: Annotated[str, Field(min_length=1, max_length=255)]
    tags: Annotated[Tags, Field(min_length=1), Entries(LfTag)]
    database: _Database = None
    columns: _Columns = None


class Grant(Options):
    """Permissions of one principal on the data location and the databases, on tables, or on columns."""

    principal: Annotated[str, Field(pattern=r"^(arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[0-9]{0,12}:.+|[0-9]{12})$")]
    permissions: Annotated[list[Permission], Field(min_length=1)]
    grantable: bool = False
    database: _Database = None
    table: Annotated[str | None, Field(min_length=1, max_length=255)] = None
    columns: _Columns = None


class LakeFormationOptions(Options):
    """Options of governance by Lake Formation: the mode, LF-Tags and grants."""

    mode: GovernanceMode = "none"
    registration_role_arn: Annotated[str | None, Field(pattern=ROLE_ARN)] = None
    tags: Annotated[Tags, Entries(LfTag)] = Field(default_factory=dict)
    table_tags: list[TableTags] = Field(default_factory=list)
    grants: list[Grant] = Field(default_factory=list)


def contradictory_governance(options: LakeFormationOptions, *, governed_tables: bool) -> Iterator[str]:
    """Yield a message for each contradiction among valid options. `governed_tables` is an older option."""
    if governed_tables and options.mode != "managed":
        yield (
            "lakeformation_governed_tables true requires lake_formation.mode managed, but lake_formation.mode is "
            f"{options.mode}. Set lake_formation.mode to managed, or lakeformation_governed_tables to false."
        )
    elif options.mode == "none":
        candidates = ("registration_role_arn", "tags", "table_tags", "grants")
        if ignored := [f"lake_formation.{name}" for name in candidates if getattr(options, name)]:
            verb = "has" if len(ignored) == 1 else "have"
            yield (
                f"{' and '.join(ignored)} {verb} no effect with lake_formation.mode none. Set lake_formation.mode to "
                f"hybrid or managed, or remove {'it' if len(ignored) == 1 else 'them'}."
            )
    for number, grant in enumerate(options.grants):
        yield from _contradictory_grant(f"lake_formation.grants.{number}", grant)


def _contradictory_grant(name: str, grant: Grant) -> Iterator[str]:
    permissions = frozenset(grant.permissions)
    if grant.columns is not None:
        if grant.table is None:
            yield f'{name}.columns requires table. Set table to the table\'s name, or to "*" for all tables.'
        elif rest := permissions - COLUMN_PERMISSIONS:
            yield (
                f"{name}: {', '.join(sorted(rest))} cannot be granted on columns; Lake Formation supports only SELECT. "
                "Remove columns, or move the other permissions to a separate grant."
            )
    elif grant.table is not None:
        if rest := permissions - TABLE_PERMISSIONS:
            yield (
                f"{name}: {', '.join(sorted(rest))} cannot be granted on a table. "
                "Move it to a separate grant without table."
            )
    elif rest := permissions - DATABASE_PERMISSIONS - LOCATION_PERMISSIONS:
        yield (
            f"{name}: {', '.join(sorted(rest))} cannot be granted on a database. "
            'Set table to a table\'s name, or to "*" for all tables.'
        )
