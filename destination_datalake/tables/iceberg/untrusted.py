"""Allow-lists for untrusted settings: configuration sent by catalog servers, and table properties.

PyIceberg imports and calls classes that a property names (`auth.impl`, `py-io-impl`,
`write.py-location-provider.impl`), and sends secrets to addresses that a server names (`oauth2-server-uri`). So all
other settings are removed before PyIceberg reads them. The table's stored metadata keeps all properties.
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
"""The table properties for the paths of new files, which are all that PyIceberg's location provider reads."""


def allowed(settings: Mapping[str, Any] | None, keys: Collection[str]) -> dict[str, str]:
    """Return the entries with allowed keys, with their values as strings.

    Empty strings are skipped, and values that are not strings, integers or booleans.
    """
    entries = (settings or {}).items()
    return {key: str(value) for key, value in entries if key in keys and isinstance(value, str | int) and value != ""}


def location_provider(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return PyIceberg's standard location provider, which chooses the paths of a table's new files."""
    return load_location_provider(location, allowed(properties, TABLE_PROPERTIES))


class DataOnlyTable(Table):
    """A PyIceberg table that ignores table properties which name classes to import."""

    def location_provider(self) -> LocationProvider:
        """Return PyIceberg's standard location provider."""
        return location_provider(self.metadata.location, self.metadata.properties)


def origin(url: str) -> tuple[str | None, str | None, int | None] | None:
    """Return a URL's scheme, host and port, parsed as `requests` does. Return None if it is not a URL."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        return None
    return parsed.scheme, parsed.host, parsed.port or {"http": 80, "https": 443}.get(parsed.scheme or "")
