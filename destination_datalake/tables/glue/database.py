"""Databases of the Glue Data Catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

    from destination_datalake.aws.access import AwsAccess

DESCRIPTION = "Created by destination-datalake"
"""Says of a database that this connector made it."""


class Databases:
    """The databases that the tables of one sync are in. Any number of threads may use it."""

    def __init__(self, access: AwsAccess) -> None:
        self._access = access
        self._there: set[str] = set()

    def ensure(self, name: str) -> None:
        """Create the database unless it is known to be there. Raises what Glue raises, to everyone who asks."""
        if name not in self._there:
            ensure_database(self._access.client("glue"), name)
            self._there.add(name)


def ensure_database(glue: GlueClient, name: str) -> None:
    """Create the database unless it is there. Harmless when many do it at once."""
    try:
        glue.get_database(Name=name)
    except glue.exceptions.EntityNotFoundException:
        try:
            glue.create_database(DatabaseInput={"Name": name, "Description": DESCRIPTION})
        except glue.exceptions.AlreadyExistsException:
            return
