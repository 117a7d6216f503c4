"""Mask IDs in the names of objects, in user-facing output and in the ledger."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, unquote_plus

import pyarrow as pa

if TYPE_CHECKING:
    from destination_datalake.files.ids import Ids


@dataclass(slots=True)
class Mask:
    """Masks IDs in URIs: path segments that equal an ID, and values of partitions that reveal one.

    `fields` are lower-case names of partition fields that reveal the column's values. `dropped` are folders of dropped
    tables with unknown partitions: all partition values are masked there.
    """

    column: str
    ids: Ids
    fields: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)

    def __call__(self, text: str) -> str:
        """Return the text with the IDs in its URIs masked."""
        return _URI.sub(lambda found: self.uri(found[0]), text)

    def uri(self, uri: str) -> str:
        """Return the URI with its IDs masked."""
        is_dropped = uri.startswith(tuple(f"{folder}/" for folder in self.dropped))
        *start, path = uri.split("/", 3) if _URI.match(uri) else (uri,)
        return "/".join((*start, *(self._step(step, is_dropped=is_dropped) for step in path.split("/"))))

    def _step(self, step: str, *, is_dropped: bool) -> str:
        name, is_, value = step.partition("=")
        if not is_:
            return "…" if self._is_id(step) else step
        known = unquote_plus(name).lower()
        leaf = self.column.rpartition(".")[2].lower()
        tells = is_dropped or known in self.fields or leaf in known or self._is_id(value)
        return f"{name}=…" if tells else step

    def _is_id(self, text: str) -> bool:
        return bool(self.ids.contains(pa.array([text, unquote(text), unquote_plus(text)])).any())


_URI = re.compile(r"s3[an]?://\S+")
