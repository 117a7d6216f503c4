"""Determine the desired state of Lake Formation from the options, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from destination_datalake.aws.objects import S3Address, partition_of
from destination_datalake.config.services import (
    ALL_TABLES,
    LOCATION_PERMISSIONS,
    Grant,
    LakeFormationOptions,
    TableTags,
)
from destination_datalake.lake_formation import state
from destination_datalake.lake_formation.state import (
    AllTables,
    Column,
    Database,
    DataLocation,
    Desired,
    OptIn,
    Registration,
    Resource,
    Table,
    Tag,
    containing_table,
)
from destination_datalake.rejects.ledger import REJECTS_TABLE
from destination_datalake.schema.evolution import redirected_from

if TYPE_CHECKING:
    from destination_datalake.config.options import Config

Values = Mapping[str, Sequence[str]]

ORIGINALS = frozenset({"rawdata", "column_value"})
"""The columns of the table of rejects that contain original, possibly sensitive values."""

MIXED = "airbyte_mixed"
"""The LF-Tag value that the columns ORIGINALS get if the options assign different values of the LF-Tag to other tables
and columns. No existing grant refers to this value."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Determines the desired state of Lake Formation from the governance options.

    `location_arn` is the ARN of the data location (bucket and prefix), without a trailing slash. `default_tag` contains
    the key and the values of the LF-Tag for databases that the connector creates. Callers must pass the names of
    databases and tables in lower case.
    """

    location_arn: str
    options: LakeFormationOptions = field(default_factory=LakeFormationOptions)
    default_tag: tuple[str, tuple[str, ...]] | None = None
    governed_tables: bool = False
    """Whether the options request governed tables, a table type that AWS has retired."""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        """Return the policy of a configuration."""
        return cls(
            S3Address(config.bucket_name, config.key()).arn(partition_of(config.region)),
            config.lake_formation,
            config.database_default_tag(),
            config.lakeformation_governed_tables,
        )

    @property
    def database_settings(self) -> Mapping[str, Any]:
        """The members of DatabaseInput (Glue API) with which the connector creates databases.

        In mode managed, these members override the account's default, so that the group IAM_ALLOWED_PRINCIPALS gets no
        permissions on new tables (https://docs.aws.amazon.com/lake-formation/latest/dg/change-settings.html).
        """
        return {"CreateTableDefaultPermissions": []} if self.options.mode == "managed" else {}

    def notes(self) -> Iterator[str]:
        """Yield notes for the log about options that do not take full effect.

        AWS has retired governed tables. If an option contains several values of an LF-Tag, the connector assigns only
        one of them.
        """
        if self.governed_tables:
            yield (
                "lakeformation_governed_tables: AWS retired the table type GOVERNED on 2024-12-31. The connector "
                "creates tables of the type in table_type, and uses lake_formation.mode managed."
            )
        for key, values in dict.fromkeys(
            (key, tuple(values)) for tags in self._sources() for key, values in tags.items()
        ):
            if len(values) > 1:
                yield (
                    f"The configuration contains several values of LF-Tag {key}: {', '.join(values)}. A resource can "
                    f"have only one value, so the connector assigns the first value, {values[0]}."
                )

    def location(self) -> Desired:
        """Return the desired registration and grants of the data location, and the definitions of all LF-Tags."""
        location = DataLocation(self.location_arn)
        registration = None
        if self.options.mode != "none":
            hybrid = self.options.mode == "hybrid"
            registration = Registration(location.arn, self.options.registration_role_arn, hybrid)
        grants = [
            grant
            for option in self.options.grants
            for grant in _grants(option, location, LOCATION_PERMISSIONS.intersection(option.permissions))
        ]
        return Desired(registration, self._tag_values(), grants=frozenset(grants))

    def database(self, name: str, *, created_by_connector: bool) -> Desired:
        """Return the desired LF-Tags, grants and opt-ins of a database, and the grants on all its tables."""
        tags: Values = self.options.tags
        if created_by_connector and self.default_tag is not None:
            # Later entries win: the explicit tags of the options replace the default tag.
            tags = {**_lowered(dict([self.default_tag])), **_lowered(tags)}
        grants = [
            grant
            for option in self.options.grants
            if option.database in (None, name)
            for grant in self._database_grants(option, name)
        ]
        return self._desired([(Database(name), tags)], grants)

    def table(self, database: str, table: str, columns: Collection[str]) -> Desired:
        """Return the desired LF-Tags, grants and opt-ins of a table and its columns.

        `columns` contains the names of all columns, spelled as in the table. The options may use another letter case.
        """
        tags = [*self._of_originals(database, table, columns)]
        for tagged in self.options.table_tags:
            if _is_about(tagged, database, table):
                tags += [(resource, tagged.tags) for resource in _resources(tagged, database, table, columns)]
                # Redirected values of a column are as sensitive as the values in the column itself.
                tags += [(resource, tagged.tags) for resource in _redirected(tagged, database, table, columns)]
        grants = [
            grant
            for option in self.options.grants
            # A grant on all columns of all tables belongs to the state of the database.
            if _is_about(option, database, table) and (option.table != ALL_TABLES or option.columns is not None)
            for resource in _resources(option, database, table, columns)
            for grant in _grants(option, resource, option.permissions)
        ]
        return self._desired(tags, grants)

    def _of_originals(self, database: str, table: str, columns: Collection[str]) -> Iterator[tuple[Resource, Values]]:
        """Yield the LF-Tags for the columns ORIGINALS of the table of rejects. Yield nothing for other tables.

        These columns can contain values of any table and column, so they get the LF-Tags of all tables and columns.
        """
        if table != REJECTS_TABLE:
            return
        entries = [entry for entry in self.options.table_tags if entry.table == table and entry.columns is None]
        table_keys = {key for entry in entries if entry.database in (None, database) for key in _lowered(entry.tags)}
        tags = {key: (value,) for key, value in self._record_tags().items() if key not in table_keys}
        for column in columns:
            if column in ORIGINALS:
                yield Column(database, table, column), tags

    def _record_tags(self) -> dict[str, str]:
        """Return the keys and values of the LF-Tags that the options assign to individual tables and columns.

        If the options assign different values for the same key, the value is MIXED.
        """
        record_tags: dict[str, str] = {}
        for tagged in self.options.table_tags:
            is_default = tagged.table == ALL_TABLES and tagged.columns is None
            if tagged.table != REJECTS_TABLE and not is_default:
                # A resource has one value per key, so the first value applies, as in `_desired`.
                for key, (value, *_) in _lowered(tagged.tags).items():
                    record_tags[key] = value if record_tags.get(key, value) == value else MIXED
        return record_tags

    def _desired(self, tags: Iterable[tuple[Resource, Values]], grants: Iterable[state.Grant]) -> Desired:
        # If several entries have the same resource and key, the last one applies.
        by_key = {
            (resource, key): values[0] for resource, assigned in tags for key, values in _lowered(assigned).items()
        }
        granted = frozenset(grants)
        # Opt-ins apply to databases and tables, not to columns (Lake Formation API: CreateLakeFormationOptIn).
        opt_ins = (
            frozenset(OptIn(grant.principal, containing_table(grant.resource)) for grant in granted)
            if self.options.mode == "hybrid"
            else frozenset()
        )
        return Desired(
            tags=frozenset(Tag(resource, key, value) for (resource, key), value in by_key.items()),
            grants=granted,
            opt_ins=opt_ins,
        )

    def _database_grants(self, option: Grant, name: str) -> Iterator[state.Grant]:
        if option.table is None:
            yield from _grants(option, Database(name), set(option.permissions) - LOCATION_PERMISSIONS)
        elif option.table == ALL_TABLES and option.columns is None:
            yield from _grants(option, AllTables(name), option.permissions)

    def _tag_values(self) -> dict[str, tuple[str, ...]]:
        """Return the values that the definition of each LF-Tag must contain, by the key of the LF-Tag."""
        merged: dict[str, tuple[str, ...]] = {}
        for source in self._sources():
            for key, values in source.items():
                merged[key] = tuple(dict.fromkeys((*merged.get(key, ()), *values)))
        for key, value in self._record_tags().items():
            # `MIXED` must be defined before it can be assigned.
            merged[key] = tuple(dict.fromkeys((*merged[key], value)))
        return merged

    def _sources(self) -> list[Values]:
        """Return the LF-Tags of each option that can contain LF-Tags, in lower case."""
        default = [] if self.default_tag is None else [dict([self.default_tag])]
        sources: list[Values] = [self.options.tags, *(tagged.tags for tagged in self.options.table_tags), *default]
        return [_lowered(tags) for tags in sources]


def _grants(option: Grant, resource: Resource, permissions: Iterable[str]) -> Iterator[state.Grant]:
    for permission in permissions:
        yield state.Grant(option.principal, resource, permission, option.grantable)


def _is_about(option: Grant | TableTags, database: str, table: str) -> bool:
    return option.database in (None, database) and option.table in (ALL_TABLES, table)


def _resources(option: Grant | TableTags, database: str, table: str, columns: Collection[str]) -> list[Resource]:
    """Return the resources to which an option refers.

    These are the named columns that exist, spelled as in the table. If the option names no columns, returns the table.
    """
    if option.columns is None:
        return [Table(database, table)]
    named = {name.lower() for name in option.columns}
    return [Column(database, table, column) for column in columns if column.lower() in named]


def _redirected(option: TableTags, database: str, table: str, columns: Collection[str]) -> list[Resource]:
    """Return the columns to which syncs redirect values of the option's columns if the values do not fit their type."""
    named = {name.lower() for name in option.columns or ()}
    return [Column(database, table, column) for column in columns if redirected_from(column.lower()) in named]


def _lowered(tags: Values) -> dict[str, tuple[str, ...]]:
    """Return the LF-Tags with their keys and values in lower case, as Lake Formation stores keys and values."""
    return {key.lower(): tuple(dict.fromkeys(value.lower() for value in values)) for key, values in tags.items()}
