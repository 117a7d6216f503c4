"""A table's metadata as the JSON document that a metadata file is."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

_NONE = '"snapshots":[]'


class MetadataDocument:
    """The documents of one table's metadata, one commit after the other.

    Nearly all of a document are snapshots, most of which the last one had: from the second document on, a snapshot's
    text is made once. What a process writes once is not worth remembering.
    """

    def __init__(self) -> None:
        self._texts: dict[int, tuple[Snapshot, str]] | None = None

    def of(self, metadata: TableMetadata) -> str:
        """Return the document, to the letter as PyIceberg writes it."""
        former, texts = self._texts, dict[int, tuple[Snapshot, str]]()
        if former is None:
            self._texts = texts
            return metadata.model_dump_json()
        for snapshot in metadata.snapshots:
            known = former.get(snapshot.snapshot_id)
            # One whose parent has expired is another snapshot of the same id.
            text = known[1] if known is not None and known[0] is snapshot else snapshot.model_dump_json()
            texts[snapshot.snapshot_id] = (snapshot, text)
        self._texts = texts  # Of several threads one's: whichever it is, what it has is right.
        rest = metadata.model_copy(update={"snapshots": []}).model_dump_json()
        # In a JSON text quotes within strings are escaped, and no other array has this name (Iceberg spec).
        return rest.replace(_NONE, f'"snapshots":[{",".join(text for _, text in texts.values())}]', 1)
