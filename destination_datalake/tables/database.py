"""Databases of the Glue Data Catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

DESCRIPTION = "Created by destination-datalake"
"""Says of a database that this connector made it."""


def ensure_database(glue: GlueClient, name: str) -> None:
    """Create the database unless it is there. Harmless when many do it at once."""
    try:
        glue.get_database(Name=name)
    except glue.exceptions.EntityNotFoundException:
        try:
            glue.create_database(DatabaseInput={"Name": name, "Description": DESCRIPTION})
        except glue.exceptions.AlreadyExistsException:
            return
