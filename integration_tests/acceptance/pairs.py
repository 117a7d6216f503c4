"""Airbyte's test data: catalogs and the messages that go with them, found by their names and taken as they are."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from integration_tests.acceptance.expectation import Row, Schema, row
from integration_tests.acceptance.json_text import members

_CATALOG = re.compile(r"(?P<stem>.+?)(_test)?_catalog\.json")
_MESSAGES = re.compile(r"(?P<stem>.+?)(_test)?_messages?\.txt")

_NUMBERS_THAT_ARE_NONE = ("nan_type", "infinity_type")
_TYPES_THEY_ARE_SENT_FOR = ("data_type_integer_type", "data_type_number_type")


@dataclass(frozen=True)
class Pair:
    """One file of messages and the streams they are for."""

    name: str
    streams: Mapping[str, Schema]
    """JSON schemas by the stream's name."""
    lines: Sequence[bytes]
    """Every line of the file, as it is."""

    def rows(self, stream: str) -> list[Row]:
        """Return what the stream's records must become, in order."""
        return [
            row(record["data"], float(record["emitted_at"]), self.streams[stream])
            for record in self._records
            if json.loads(record["stream"]) == stream
        ]

    def under(self, namespace: str) -> list[bytes]:
        """Return the records, in this namespace, and the states; statuses are the platform's, for the end of a sync."""
        given = f'"namespace": {json.dumps(namespace, ensure_ascii=False)}, '.encode()
        return [
            re.sub(rb'"record"\s*:\s*\{', lambda match: match[0] + given, line, count=1)
            for line in self.lines
            if _type(line) in ("RECORD", "STATE")
        ]

    @cached_property
    def _records(self) -> list[dict[str, str]]:
        return [members(members(line.decode())["record"]) for line in self.lines if _type(line) == "RECORD"]


def is_record(line: bytes) -> bool:
    """Tell whether a line is a RECORD."""
    return _type(line) == "RECORD"


def is_state(line: bytes) -> bool:
    """Tell whether a line is a STATE."""
    return _type(line) == "STATE"


def find_pairs(folder: Path) -> list[Pair]:
    """Return every pair in a folder, by name.

    NaN and the infinities go with each numeric type. Messages without a catalog get one that declares the plain types
    of their values and leaves the rest open. Raises ValueError for a catalog without messages.
    """
    catalogs = _by_stem(folder, _CATALOG)
    messages = _by_stem(folder, _MESSAGES)
    numeric_types = {stem: catalogs.pop(stem) for stem in _TYPES_THEY_ARE_SENT_FOR if stem in catalogs}
    if without_messages := catalogs.keys() - messages.keys():
        raise ValueError(f"catalogs without messages in {folder}: {sorted(without_messages)}")
    pairs = []
    for stem, path in messages.items():
        lines = [line for line in path.read_bytes().splitlines() if line.strip()]
        if stem in catalogs:
            pairs.append(Pair(stem, _streams(catalogs[stem]), lines))
        elif stem in _NUMBERS_THAT_ARE_NONE:
            # These catalogs name a stream of their own; the type is what they are for.
            for kind, catalog in numeric_types.items():
                (schema,) = _streams(catalog).values()
                pairs.append(Pair(f"{stem}_{kind}", dict.fromkeys(_streams_sent(lines), schema), lines))
        else:
            pairs.append(Pair(stem, _derived_streams(lines), lines))
    for pair in pairs:
        if strangers := _streams_sent(pair.lines) - pair.streams.keys():
            raise ValueError(f"records for streams outside the catalog in {folder}/{pair.name}: {sorted(strangers)}")
    return sorted((replace(pair, lines=tuple(pair.lines)) for pair in pairs), key=lambda pair: pair.name)


def _by_stem(folder: Path, pattern: re.Pattern[str]) -> dict[str, Path]:
    matches = ((pattern.fullmatch(path.name), path) for path in sorted(folder.iterdir()))
    return {match["stem"]: path for match, path in matches if match}


def _streams(catalog: Path) -> dict[str, Schema]:
    return {stream["name"]: stream["json_schema"] for stream in json.loads(catalog.read_bytes())["streams"]}


def _streams_sent(lines: Sequence[bytes]) -> set[str]:
    return {json.loads(line)["record"]["stream"] for line in lines if _type(line) == "RECORD"}


def _derived_streams(lines: Sequence[bytes]) -> dict[str, Schema]:
    plain = {str: "string", bool: "boolean", int: "integer", float: "number"}
    properties: dict[str, dict[str, Schema]] = {}
    for line in lines:
        if _type(line) == "RECORD":
            record = json.loads(line)["record"]
            fields = properties.setdefault(record["stream"], {})
            for name, value in record["data"].items():
                fields.setdefault(name, {"type": plain[type(value)]} if type(value) in plain else {})
    return {stream: {"type": "object", "properties": fields} for stream, fields in properties.items()}


def _type(line: bytes) -> str:
    kind: str = json.loads(line)["type"]
    return kind
