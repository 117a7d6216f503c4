"""Ids in the names of objects: hidden in all that people read of an erasure, and in its ledger."""

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
    """Hides ids in texts that name objects: in steps of a URI's path that are one, or are of a partition that tells it.

    `fields` are names of partition fields that tell the column's values, in lower case; `dropped` are folders of tables
    whose partitions nothing describes any more: all are hidden there.
    """

    column: str
    ids: Ids
    fields: set[str] = field(default_factory=set)
    dropped: set[str] = field(default_factory=set)

    def __call__(self, text: str) -> str:
        """Return a text with each id in a URI hidden."""
        return _URI.sub(lambda found: self.uri(found[0]), text)

    def uri(self, uri: str) -> str:
        """Return a URI with each id hidden."""
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
