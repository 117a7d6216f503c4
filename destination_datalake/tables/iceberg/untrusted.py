"""Allow-lists for untrusted settings: configuration sent by catalog servers, and table properties.

PyIceberg imports and calls classes that a setting names (`auth.impl`, `py-io-impl`, `write.py-location-provider.impl`),
and sends secrets to addresses that a server names (`oauth2-server-uri`). So the connector ignores all server settings
that `SERVER_KEYS` does not contain, and PyIceberg's location provider reads only `TABLE_PROPERTIES`. The stored table
metadata keeps all properties.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.locations import LocationProvider, load_location_provider
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

SERVER_KEYS = frozenset(
    (
        # In CatalogConfig. `uri` may change only the path, not the host.
        *("uri", "prefix", "namespace-separator"),
        # In LoadTableResult.config and StorageCredential.config.
        *("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.session-token-expires-at-ms"),
        *("s3.remote-signing-enabled", "s3.endpoint", "s3.region", "client.region"),
    )
)
"""The settings that a catalog server may send (Iceberg REST specification)."""

TABLE_PROPERTIES = frozenset(
    (
        *("write.data.path", "write.metadata.path"),
        *("write.object-storage.enabled", "write.object-storage.partitioned-paths"),
    )
)
"""The table properties that determine the paths of new files. PyIceberg's location provider reads no others."""


def allowed(settings: Mapping[str, Any] | None, keys: Collection[str]) -> dict[str, str]:
    """Return the settings whose key is in `keys`, with the values converted to strings.

    Skips empty strings, and values that are not a string, integer or boolean.
    """
    entries = (settings or {}).items()
    return {key: str(value) for key, value in entries if key in keys and isinstance(value, str | int) and value != ""}


def location_provider(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return PyIceberg's standard location provider, which chooses the paths of a table's new files."""
    return load_location_provider(location, allowed(properties, TABLE_PROPERTIES))


class DataOnlyTable(Table):
    """A PyIceberg table that ignores the table properties by which PyIceberg would import a class."""

    def location_provider(self) -> LocationProvider:
        """Return PyIceberg's standard location provider."""
        return location_provider(self.metadata.location, self.metadata.properties)


def origin(url: str) -> tuple[str | None, str | None, int | None] | None:
    """Return the scheme, host and port of a URL, or None if `url` is not a valid URL.

    Parses the URL with the same function as the library `requests`.
    """
    try:
        parsed = parse_url(url)
    except LocationParseError:
        return None
    return parsed.scheme, parsed.host, parsed.port or {"http": 80, "https": 443}.get(parsed.scheme or "")
