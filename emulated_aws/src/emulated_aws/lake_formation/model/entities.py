"""Require that the resources of a request exist."""

from typing import assert_never

from moto.core.exceptions import JsonRESTError

from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.call import Call, invalid, not_found
from emulated_aws.lake_formation.model.resources import Resource


def resources_of(call: Call) -> tuple[Resource, ...]:
    """Return the resources in a request's member `Resource`, and require that they exist.

    Each named column is a separate resource.
    """
    try:
        requested = resources.read(call.body["Resource"], call.catalog)
    except ValueError as error:
        raise invalid(str(error)) from error
    for resource in requested:
        _require(call, resource)
    return requested


def columns_of(call: Call, database: str, table: str) -> list[str]:
    """Return the names of a table's columns, with partition keys last.

    Raises EntityNotFoundException if the table does not exist.
    """
    try:
        entry = call.glue.get_table(database, table).as_dict()
    except JsonRESTError as error:
        raise not_found(str(error.message)) from error
    columns = [*entry.get("StorageDescriptor", {}).get("Columns", []), *entry.get("PartitionKeys", [])]
    return [column["Name"].lower() for column in columns]


def _require(call: Call, resource: Resource) -> None:
    match resource:
        case resources.Catalog():
            pass
        case resources.Database(_, name):
            _require_database(call, name)
        case resources.Table(_, database, table):
            _require_table(call, database, table)
        case resources.Columns(_, database, table, excluded):
            _require_table(call, database, table)
            if table is not None:
                _require_columns(call, database, table, excluded)
        case resources.Column(_, database, table, name):
            _require_columns(call, database, table, frozenset({name}))
        case resources.DataLocation(_, arn):
            # "For a grant to succeed, you must first register the data location with Lake Formation":
            # https://docs.aws.amazon.com/lake-formation/latest/dg/granting-location-permissions.html. The error is
            # the one that Terraform's AWS provider retries, in internal/service/lakeformation/permissions.go.
            if not any(arn == known or arn.startswith(f"{known}/") for known in call.lake.locations):
                raise invalid(f"Resource {arn} is not registered: register the S3 path first.")
        case resources.LFTag(catalog, key, values):
            require_tag(call, catalog, key, values - {"*"})
        case resources.LFTagPolicy(catalog, _, expression):
            for key, values in expression:
                require_tag(call, catalog, key, values - {"*"})
        case _:
            assert_never(resource)


def require_tag(call: Call, catalog: str, key: str, values: frozenset[str]) -> None:
    """Raise EntityNotFoundException if an LF-Tag is not defined, or if its definition lacks one of these values."""
    if not values.issubset(call.lake.lf_tags.get((catalog, key), ())) or (catalog, key) not in call.lake.lf_tags:
        raise not_found("Tag or tag value does not exist.")


def _require_database(call: Call, name: str) -> None:
    try:
        call.glue.get_database(name)
    except JsonRESTError as error:
        raise not_found(str(error.message)) from error


def _require_table(call: Call, database: str, table: str | None) -> None:
    if table is None:
        _require_database(call, database)
    else:
        columns_of(call, database, table)


def _require_columns(call: Call, database: str, table: str, names: frozenset[str]) -> None:
    missing = names.difference(columns_of(call, database, table))
    if missing:
        raise not_found(f"Columns {sorted(missing)} of table {table} not found.")
