"""Allow-lists for untrusted settings: the configuration that catalog servers send, and table properties.

PyIceberg imports and calls classes that a property names (`auth.impl`, `py-io-impl`,
`write.py-location-provider.impl`), and sends secrets to addresses that a server names (`oauth2-server-uri`). So all
settings that are not in these lists are removed before PyIceberg reads them. The table's own metadata keeps all
properties.
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
        # In CatalogConfig. `uri` may change the path, but not the host.
        *("uri", "prefix", "namespace-separator"),
        # In LoadTableResult.config and StorageCredential.config.
        *("s3.access-key-id", "s3.secret-access-key", "s3.session-token", "s3.session-token-expires-at-ms"),
        *("s3.remote-signing-enabled", "s3.endpoint", "s3.region", "client.region"),
    )
)
"""The keys that a catalog server may configure (Iceberg REST specification)."""

TABLE_PROPERTIES = frozenset(
    (
        *("write.data.path", "write.metadata.path"),
        *("write.object-storage.enabled", "write.object-storage.partitioned-paths"),
    )
)
"""The table properties for the paths of new files. PyIceberg's own location provider reads no other properties."""


def allowed(given: Mapping[str, Any] | None, keys: Collection[str]) -> dict[str, str]:
    """Return the entries whose key is in `keys`, with their values as strings.

    Empty strings, and values other than strings, integers and booleans, are skipped.
    """
    entries = (given or {}).items()
    return {key: str(value) for key, value in entries if key in keys and isinstance(value, str | int) and value != ""}


def location_provider(location: str, properties: Mapping[str, str]) -> LocationProvider:
    """Return PyIceberg's own location provider for a table with these properties."""
    return load_location_provider(location, allowed(properties, TABLE_PROPERTIES))


class DataOnlyTable(Table):
    """A PyIceberg table that ignores table properties that name classes to import."""

    def location_provider(self) -> LocationProvider:
        """Return PyIceberg's own provider of locations for new files."""
        return location_provider(self.metadata.location, self.metadata.properties)


def origin(url: str) -> tuple[str | None, str | None, int | None] | None:
    """Return the scheme, host and port of a URL, parsed like the requests library does, or None if it is not a URL."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        return None
    return parsed.scheme, parsed.host, parsed.port or {"http": 80, "https": 443}.get(parsed.scheme or "")
