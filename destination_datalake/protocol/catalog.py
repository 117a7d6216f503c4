"""The configured catalog: which streams a sync writes, and how (protocol: ConfiguredAirbyteCatalog)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import msgspec

from destination_datalake.errors import ConfigError, ConnectorError, Failure, printable
from destination_datalake.schema.json_schema import property_types
from destination_datalake.schema.types import NumericTypes


class StreamId(NamedTuple):
    """Identifies a stream. An absent namespace and an empty one are the same: None."""

    namespace: str | None
    name: str

    def __str__(self) -> str:
        return printable(f"{self.namespace}.{self.name}" if self.namespace else self.name).replace("\n", "\\n")


class StreamDescriptor(msgspec.Struct):
    """A stream as messages name it (protocol: StreamDescriptor)."""

    name: str
    namespace: str | None = None

    @property
    def id(self) -> StreamId:
        """The stream's id."""
        return StreamId(self.namespace or None, self.name)


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of the configured catalog.

    `dedup` streams keep one row for each `primary_key`, whose parts are keys of the record. `cursor_field` are the keys
    of the record that the connection's cursor is made of; empty if it has none. `generation` and `minimum_generation`
    are None when the platform does not support refreshes.
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
        """Whether the records of this sync overwrite the content of the table (protocol: truncate refresh).

        True for the sync mode `overwrite`, and for two equal generation ids, which the platform sends instead of it.
        """
        return self.overwrite or (self.minimum_generation or 0) > 0

    @property
    def overwrite_generation(self) -> int | None:
        """The generation that identifies an overwrite across several syncs; None if it has no such identity.

        None without ids, and if all ids are 1 with the sync mode `overwrite`, by which PyAirbyte overwrites each time.
        """
        constant = self.overwrite and self.has_constant_ids
        return self.generation if (self.minimum_generation or 0) > 0 and not constant else None

    @property
    def has_constant_ids(self) -> bool:
        """Whether all ids are 1, as PyAirbyte sends them with every sync: they say nothing about its generation."""
        return self.generation == self.minimum_generation == self.sync_id == 1


class UnknownStream(Exception):
    """A message names a stream that is not in the catalog. The text completes "a message for stream x, …"."""


class AmbiguousStream(UnknownStream):
    """A message without a namespace could be for several streams of the catalog."""


class StreamFinder:
    """Finds the stream of the catalog that a message names."""

    def __init__(self, streams: Iterable[StreamId]) -> None:
        self._named: dict[str, list[StreamId]] = {}
        for stream in streams:
            self._named.setdefault(stream.name, []).append(stream)

    def find(self, namespace: str | None, name: str) -> StreamId:
        """Return the stream with this namespace and name or, without a namespace, the only one with this name.

        Many sources leave out the namespace that the platform adds to the catalog. Raises UnknownStream.
        """
        exact = StreamId(namespace or None, name)
        named = self._named.get(name, [])
        if exact in named:
            return exact
        if namespace or not named:
            raise UnknownStream(
                "which the configured catalog does not have. Refresh the source schema and save the connection, so "
                "that both agree on the streams."
            )
        if len(named) > 1:
            raise AmbiguousStream(
                f"without a namespace, and the configured catalog has {len(named)} streams of that name "
                f"({', '.join(map(str, named[:3]))}{', …' if len(named) > 3 else ''}). The source must send the "
                "namespace; report it to the source's maintainers."
            )
        return named[0]


class _StreamMessage(StreamDescriptor):
    json_schema: dict[str, Any] = {}


_MODES = ("overwrite", "append", "append_dedup")
"""The destination sync modes of the spec. The platform asks for overwrite_dedup by append_dedup and equal ids."""

_SHOWN = 10
"""How many streams with a problem of the same kind are named."""

# Ids are written to columns of 64 bits.
_Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _ConfiguredStreamMessage(msgspec.Struct):
    stream: _StreamMessage
    destination_sync_mode: str = "append"
    cursor_field: list[str] | None = None
    primary_key: Any = None
    generation_id: _Id | None = None
    minimum_generation_id: _Id | None = None
    sync_id: _Id | None = None


class _CatalogMessage(msgspec.Struct):
    streams: list[_ConfiguredStreamMessage]


def parse_catalog(catalog: object) -> tuple[Stream, ...]:
    """Return the streams of a configured catalog, in its order. Unknown keys are ignored.

    Raises ConfigError for what a user can correct (no streams, duplicates, a sync mode that this connector does not
    support, keys and cursors by which rows cannot be deduplicated), and ConnectorError (system_error) for a hybrid
    refresh, which the platform must not request.
    """
    try:
        configured = msgspec.convert(catalog, _CatalogMessage).streams
    except msgspec.ValidationError as error:
        if _is_discovered(catalog):
            raise ConfigError(
                "The catalog is one that a source discovers, which does not say how its streams are synced. Put each "
                'of its streams into an object of the configured catalog: {"stream": {…}, "sync_mode": "full_refresh", '
                '"destination_sync_mode": "append"}.'
            ) from error
        raise ConfigError(
            f"The configured catalog is not valid: {error}. Refresh the source schema and save the connection."
        ) from error
    _refuse_keys(configured)
    streams = tuple(_stream(entry) for entry in configured)
    if not streams:
        raise ConfigError("The configured catalog has no streams. Select at least one stream to sync.")
    _refuse_duplicates(streams)
    return streams


def configured(streams: Sequence[Stream], catalog: Mapping[str, Any]) -> Iterator[tuple[Stream, Mapping[str, Any]]]:
    """Yield each stream of a catalog with its entry there. `streams` are what `parse_catalog` has returned for it."""
    yield from zip(streams, catalog["streams"], strict=True)


def _is_discovered(catalog: object) -> bool:
    """Whether this is an AirbyteCatalog, or the message with one: its streams are not inside a member `stream`."""
    match catalog:
        case {"catalog": {"streams": [*streams]}} | {"streams": [*streams]}:
            return any(isinstance(each, dict) and "stream" not in each and "json_schema" in each for each in streams)
        case _:
            return False


def _stream(entry: _ConfiguredStreamMessage) -> Stream:
    identity, mode = entry.stream.id, entry.destination_sync_mode
    if mode not in _MODES:
        raise ConfigError(
            f"Stream {identity} asks for the destination sync mode {mode!r}. "
            f"This destination offers {', '.join(_MODES[:-1])} and {_MODES[-1]}: choose one of them for the stream."
        )
    generation, minimum = entry.generation_id, entry.minimum_generation_id
    if minimum and generation is not None and minimum != generation:
        message = (
            f"Stream {identity}: cannot execute a hybrid refresh (minimum_generation_id {minimum}, "
            f"generation_id {generation}). Both must be equal, or the minimum 0."
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
        # Each field once.
        primary_key=tuple(dict.fromkeys(path[0] for path in _key_paths(entry))) if mode == "append_dedup" else (),
    )


def _key_paths(entry: _ConfiguredStreamMessage) -> Sequence[Sequence[str]]:
    """Return the paths of the key that are not empty. Only streams that are deduplicated need it to be valid."""
    paths = msgspec.convert(entry.primary_key, list[list[str]] | None)
    return [path for path in paths or () if path]


def _refuse_keys(configured: Sequence[_ConfiguredStreamMessage]) -> None:
    """Refuse streams whose rows cannot be deduplicated by what the catalog names; say it of all of them."""
    problems = [
        problem
        for entry in configured
        if entry.destination_sync_mode == "append_dedup" and (problem := _problem_of_keys(entry)) is not None
    ]
    if problems:
        count = [f"{len(problems)} streams cannot be deduplicated:"] if len(problems) > 1 else []
        more = ["…"] if len(problems) > _SHOWN else []
        raise ConfigError("\n".join([*count, *problems[:_SHOWN], *more]))


def _problem_of_keys(entry: _ConfiguredStreamMessage) -> str | None:
    """Return why rows cannot be told apart by the stream's primary key, or ordered by its cursor; None if they can."""
    stream = entry.stream.id
    try:
        paths, cursor = _key_paths(entry), entry.cursor_field or []
    except msgspec.ValidationError as error:
        return f"Stream {stream} has a primary key that is not a list of paths: {error}. Save the connection again."
    if not paths:
        return (
            f"Stream {stream} has no primary key. The sync mode append_dedup requires one. Choose a primary key in the "
            "connection, or a sync mode without deduplication (append)."
        )
    for kind, path in (*(("primary key", path) for path in paths), ("cursor", cursor)):
        if len(path) > 1:
            return (
                f"Stream {stream} has the {kind} {'.'.join(path)}, which is inside the field {path[0]}. With the sync "
                "mode append_dedup, primary key and cursor must be fields at the top level of the records: choose "
                "another for the stream, or a sync mode without deduplication (append)."
            )
        if path and not _declares(entry.stream.json_schema, path[0]):
            return (
                f"Stream {stream} has the {kind} {path[0]}, a field that its schema does not declare. Refresh the "
                f"source schema, or choose another {kind} for the stream."
            )
    return None


def _declares(json_schema: Mapping[str, Any], key: str) -> bool:
    properties = json_schema.get("properties")
    is_plain = isinstance(properties, Mapping) and key in properties
    return is_plain or key in property_types(json_schema, NumericTypes.INT_FLOAT)


def _refuse_duplicates(streams: Sequence[Stream]) -> None:
    seen: set[StreamId] = set()
    for stream in streams:
        if stream.id in seen:
            raise ConfigError(f"The configured catalog names stream {stream.id} twice. Remove one of the two.")
        seen.add(stream.id)
