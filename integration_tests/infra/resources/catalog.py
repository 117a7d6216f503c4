"""Databases and tables of the Glue Data Catalog."""

from __future__ import annotations

from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType, StringType, TimestampType

from integration_tests.aws.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from integration_tests.infra.resources.resource import Aws, Properties, every
from integration_tests.infra.template import Made

_ICEBERG: dict[str, PrimitiveType] = {"string": StringType(), "timestamp": TimestampType()}


def database(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Glue::Database."""
    glue = aws.client("glue")
    name = properties["DatabaseInput"]["Name"]
    if made is None:
        glue.create_database(**properties)
    else:
        glue.update_database(Name=name, **properties)
    return Made(name)


def table(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Glue::Table of an Iceberg table, whose first metadata Glue writes, and PyIceberg here."""
    assert made is None, "an update would write an old description over the table's present one"
    glue = aws.client("glue")
    with every(properties) as rest:
        database, declared = rest.pop("DatabaseName"), rest.pop("TableInput")
        # The request that CloudFormation makes has to be valid, too.
        glue.create_table(
            CatalogId=rest.pop("CatalogId"),
            DatabaseName=database,
            TableInput=declared,
            OpenTableFormatInput=rest.pop("OpenTableFormatInput"),
        )
        glue.delete_table(DatabaseName=database, Name=declared["Name"])
        storage = declared["StorageDescriptor"]
        fields = [
            NestedField(number, column["Name"], _ICEBERG[column["Type"]])
            for number, column in enumerate(storage["Columns"], start=1)
        ]
        keys = {"access-key-id": ACCESS_KEY_ID, "secret-access-key": SECRET_ACCESS_KEY, "region": aws.region}
        keys["endpoint"] = glue.meta.endpoint_url
        catalog = GlueCatalog(aws.stack, client=glue, **{f"s3.{name}": value for name, value in keys.items()})
        catalog.create_table((database, declared["Name"]), Schema(*fields), location=storage["Location"])
    return Made(declared["Name"])
