"""Databases of the Glue Data Catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.governance import Governance

DATABASE_DESCRIPTION = "Created by destination-datalake"
"""The description of databases created by this connector, by which it recognises them."""


class Databases:
    """The databases of one sync's tables, governed as the options ask for. Thread-safe."""

    def __init__(self, access: AwsAccess, governance: Governance) -> None:
        self.governance = governance
        self._access = access
        self._existing: set[str] = set()

    def ensure(self, name: str) -> None:
        """Create the database if it does not exist, and govern it; asks Glue once for each name.

        Raises what Glue raises, and as `govern`.
        """
        if name not in self._existing:
            ensure_database(self._access.client("glue"), name, self.governance.database_settings)
            self._existing.add(name)
        self.govern(name)

    def govern(self, name: str) -> None:
        """Have an existing database governed, once for each name. Raises ConnectorError, or what AWS raises."""
        self.governance.govern_database(name, lambda: self._is_ours(name))

    def _is_ours(self, name: str) -> bool:
        found = self._access.client("glue").get_database(Name=name)["Database"]
        return found.get("Description") == DATABASE_DESCRIPTION


def ensure_database(glue: GlueClient, name: str, settings: Mapping[str, Any] | None = None) -> None:
    """Create the database if it does not exist. Idempotent, also if several syncs do it concurrently.

    `settings` are further members of DatabaseInput (Glue API) for a database that is created.
    """
    try:
        glue.get_database(Name=name)
    except glue.exceptions.EntityNotFoundException:
        try:
            glue.create_database(DatabaseInput={"Name": name, "Description": DATABASE_DESCRIPTION, **(settings or {})})  # type: ignore[typeddict-item]
        except glue.exceptions.AlreadyExistsException:
            return
