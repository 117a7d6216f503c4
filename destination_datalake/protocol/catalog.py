"""Parse the configured catalog: a sync's streams with their modes and keys (protocol: ConfiguredAirbyteCatalog)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec

from destination_datalake.errors import ConfigError, ConnectorError, Failure, printable
from destination_datalake.schema.json_schema import property_types
from destination_datalake.schema.types import NumericTypes


class StreamId(NamedTuple):
    """The namespace and name of a stream, which identify it. A missing or empty namespace is None."""

    namespace: str | None
    name: str

    def __str__(self) -> str:
        return printable(f"{self.namespace}.{self.name}" if self.namespace else self.name).replace("\n", "\\n")


class StreamDescriptor(msgspec.Struct):
    """The namespace and name of a stream in a message (protocol: StreamDescriptor)."""

    name: str
    namespace: str | None = None

    @property
    def id(self) -> StreamId:
        """The stream's identifier, in which an empty namespace is None."""
        return StreamId(self.namespace or None, self.name)


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of the configured catalog.

    - `dedup`: whether the table keeps one row per value of `primary_key`.
    - `primary_key`: top-level fields of the records.
    - `cursor_field`: the path of the cursor field in the records. Empty without a cursor.
    - `generation`, `minimum_generation`: None if the platform does not support refreshes.
    """

    id: StreamId
    json_schema: Mapping[str, Any]
    overwrite: bool
    generation: int | None
    minimum_generation: int | None
    sync_id: int | None
    cursor_field: tuple[str, ...] = ()
    dedup: bool = False
    primary_key: tuple[str, ...] = ()

    @property
    def overwrites_table(self) -> bool:
        """Whether this sync's records replace the content of the table (protocol: truncate refresh).

        True for the sync mode `overwrite`, and for a refresh, which sets `minimum_generation` to 1 or more.
        """
        return self.overwrite or (self.minimum_generation or 0) > 0

    @property
    def overwrite_generation(self) -> int | None:
        """The generation ID of an overwrite that several syncs can continue, or None if there is no such ID.

        None if the catalog has no generation IDs. Also None in the sync mode `overwrite` if all IDs are 1, because
        PyAirbyte sends these IDs in every sync, and every sync is a new overwrite.
        """
        constant = self.overwrite and self.has_constant_ids
        return self.generation if (self.minimum_generation or 0) > 0 and not constant else None

    @property
    def has_constant_ids(self) -> bool:
        """Whether all IDs are 1. PyAirbyte sends these IDs in every sync, so they do not identify a generation."""
        return self.generation == self.minimum_generation == self.sync_id == 1


class UnknownStream(Exception):
    """Raised for a message about a stream outside the catalog. The text continues "a message for stream x, …"."""


class AmbiguousStream(UnknownStream):
    """Raised for a message without a namespace, if several streams of the catalog have its stream name."""


class StreamFinder:
    """Finds the catalog's stream to which a message belongs."""

    def __init__(self, streams: Iterable[StreamId]) -> None:
        self._named: dict[str, list[StreamId]] = {}
        for stream in streams:
            self._named.setdefault(stream.name, []).append(stream)

    def find(self, namespace: str | None, name: str) -> StreamId:
        """Return the stream with this namespace and name. Raises UnknownStream or AmbiguousStream.

        Many sources omit the namespace that the platform adds to the catalog. Without a namespace, the name alone must
        identify the stream.
        """
        exact = StreamId(namespace or None, name)
        named = self._named.get(name, [])
        if exact in named:
            return exact
        if namespace or not named:
            raise UnknownStream(
                "The configured catalog does not contain this stream. Refresh the source schema, and save the "
                "connection."
            )
        if len(named) > 1:
            raise AmbiguousStream(
                f"The message has no namespace, but the configured catalog contains {len(named)} streams with this "
                f"name ({', '.join(map(str, named[:3]))}{', …' if len(named) > 3 else ''}). Report this error to the "
                "maintainers of the source: the source must send the namespace."
            )
        return named[0]


class _StreamMessage(StreamDescriptor):
    json_schema: dict[str, Any] = {}


_MODES = ("overwrite", "append", "append_dedup")
"""The sync modes that this destination supports. The platform requests overwrite_dedup as append_dedup with equal
generation IDs."""

_MAX_SHOWN = 10
"""Maximum number of streams that an error message lists."""

# Generation IDs are written to 64-bit columns.
_Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _ConfiguredStreamMessage(msgspec.Struct):
    stream: _StreamMessage
    destination_sync_mode: str = "append"
    cursor_field: list[str] | None = None
    # Only deduplication needs a valid key, so `_key_paths` converts the key later.
    primary_key: Any = None
    generation_id: _Id | None = None
    minimum_generation_id: _Id | None = None
    sync_id: _Id | None = None


class _CatalogMessage(msgspec.Struct):
    streams: list[_ConfiguredStreamMessage]


def parse_catalog(catalog: object) -> tuple[Stream, ...]:
    """Return the streams of a configured catalog, in order. Unknown members are ignored.

    Raises ConfigError for problems that the user can solve: no streams, duplicate streams, an unsupported sync mode, or
    a key or cursor that does not allow deduplication. Raises ConnectorError (system_error) for a hybrid refresh, which
    the platform must not request.
    """
    try:
        configured = msgspec.convert(catalog, _CatalogMessage).streams
    except msgspec.ValidationError as error:
        if _is_discovered(catalog):
            raise ConfigError(
                "The catalog is a source's discovered catalog. The command write requires a configured catalog, which "
                'contains sync modes. Put each stream into an object: {"stream": {…}, "sync_mode": "full_refresh", '
                '"destination_sync_mode": "append"}.'
            ) from error
        raise ConfigError(
            f"The configured catalog is invalid: {error}. Refresh the source schema, and save the connection."
        ) from error
    _check_keys(configured)
    streams = tuple(_stream(entry) for entry in configured)
    if not streams:
        raise ConfigError("The configured catalog contains no streams. Select at least one stream to sync.")
    _check_duplicates(streams)
    return streams


def configured(streams: Sequence[Stream], catalog: Mapping[str, Any]) -> Iterator[tuple[Stream, Mapping[str, Any]]]:
    """Yield each stream with its entry in the catalog. `streams` is the result of `parse_catalog`."""
    yield from zip(streams, catalog["streams"], strict=True)


def _is_discovered(catalog: object) -> bool:
    """Return whether this is a discovered catalog or CATALOG message, whose streams have no member `stream`."""
    match catalog:
        case {"catalog": {"streams": [*streams]}} | {"streams": [*streams]}:
            return any(
                isinstance(stream, dict) and "stream" not in stream and "json_schema" in stream for stream in streams
            )
        case _:
            return False


def _stream(entry: _ConfiguredStreamMessage) -> Stream:
    identity, mode = entry.stream.id, entry.destination_sync_mode
    if mode not in _MODES:
        raise ConfigError(
            f"Stream {identity}: this destination does not support the destination sync mode {mode!r}. "
            f"Choose {', '.join(_MODES[:-1])} or {_MODES[-1]}."
        )
    generation, minimum = entry.generation_id, entry.minimum_generation_id
    if minimum and generation is not None and minimum != generation:
        message = (
            f"Stream {identity}: cannot execute a hybrid refresh (minimum_generation_id {minimum}, "
            f"generation_id {generation}). The platform must set minimum_generation_id to 0 or to generation_id."
        )
        raise ConnectorError(Failure(message, message, "system_error"))
    return Stream(
        id=identity,
        json_schema=entry.stream.json_schema,
        overwrite=mode == "overwrite",
        generation=generation,
        minimum_generation=minimum,
        sync_id=entry.sync_id,
        cursor_field=tuple(entry.cursor_field or ()),
        dedup=mode == "append_dedup",
        # `dict.fromkeys` removes repeated fields.
        primary_key=tuple(dict.fromkeys(path[0] for path in _key_paths(entry))) if mode == "append_dedup" else (),
    )


def _key_paths(entry: _ConfiguredStreamMessage) -> Sequence[Sequence[str]]:
    """Return the non-empty paths of the primary key, without checking whether the key is valid."""
    paths = msgspec.convert(entry.primary_key, list[list[str]] | None)
    return [path for path in paths or () if path]


def _check_keys(configured: Sequence[_ConfiguredStreamMessage]) -> None:
    """Raise ConfigError if keys or cursors do not allow deduplication. The message has a line per stream."""
    problems = [
        problem
        for entry in configured
        if entry.destination_sync_mode == "append_dedup" and (problem := _key_problem(entry)) is not None
    ]
    if problems:
        count = [f"Cannot deduplicate {len(problems)} streams:"] if len(problems) > 1 else []
        more = ["…"] if len(problems) > _MAX_SHOWN else []
        raise ConfigError("\n".join([*count, *problems[:_MAX_SHOWN], *more]))


def _key_problem(entry: _ConfiguredStreamMessage) -> str | None:
    """Return a message about an invalid primary key or cursor of a stream, or None if both are valid."""
    stream = entry.stream.id
    try:
        paths, cursor = _key_paths(entry), entry.cursor_field or []
    except msgspec.ValidationError as error:
        return f"The primary key of stream {stream} is not a list of paths: {error}. Save the connection again."
    if not paths:
        return (
            f"Stream {stream} has no primary key. The sync mode append_dedup requires one. Choose a primary key in the "
            "connection, or a sync mode without deduplication (append)."
        )
    for kind, path in (*(("primary key", path) for path in paths), ("cursor", cursor)):
        if len(path) > 1:
            return (
                f"The {kind} {'.'.join(path)} of stream {stream} is nested in the field {path[0]}. The sync "
                "mode append_dedup requires a primary key and a cursor at the top level of the records. Choose another "
                f"{kind}, or a sync mode without deduplication (append)."
            )
        if path and not _declares(entry.stream.json_schema, path[0]):
            return (
                f"The schema of stream {stream} does not declare the {kind} {path[0]}. Refresh the source schema, or "
                f"choose another {kind}."
            )
    return None


def _declares(json_schema: Mapping[str, Any], key: str) -> bool:
    properties = json_schema.get("properties")
    is_plain = isinstance(properties, Mapping) and key in properties
    return is_plain or key in property_types(json_schema, NumericTypes.INT_FLOAT)


def _check_duplicates(streams: Sequence[Stream]) -> None:
    seen: set[StreamId] = set()
    for stream in streams:
        if stream.id in seen:
            raise ConfigError(f"The configured catalog contains stream {stream.id} twice. Remove one of the entries.")
        seen.add(stream.id)
