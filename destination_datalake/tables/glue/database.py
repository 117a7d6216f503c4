"""Databases of the Glue Data Catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

    from destination_datalake.aws.access import AwsAccess

DATABASE_DESCRIPTION = "Created by destination-datalake"
"""The description of databases created by this connector, by which it recognises them."""


class Databases:
    """The databases of one sync's tables. Thread-safe."""

    def __init__(self, access: AwsAccess) -> None:
        self._access = access
        self._existing: set[str] = set()

    def ensure(self, name: str) -> None:
        """Create the database if it does not exist; asks Glue once for each name. Raises what Glue raises."""
        if name not in self._existing:
            ensure_database(self._access.client("glue"), name)
            self._existing.add(name)


def ensure_database(glue: GlueClient, name: str) -> None:
    """Create the database if it does not exist. Idempotent, also if several syncs do it concurrently."""
    try:
        glue.get_database(Name=name)
    except glue.exceptions.EntityNotFoundException:
        try:
            glue.create_database(DatabaseInput={"Name": name, "Description": DATABASE_DESCRIPTION})
        except glue.exceptions.AlreadyExistsException:
            return
