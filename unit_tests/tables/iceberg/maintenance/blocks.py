"""Avro files with several entries a block, as Iceberg's library for Java writes them. PyIceberg writes one a block."""

from __future__ import annotations

import io
import zlib
from typing import Any

import fastavro

_MARKER = {"type": "fixed", "name": "marker", "size": 16}
_HEADER = {
    "type": "record",
    "name": "header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
        {"name": "metadata", "type": {"type": "map", "values": "bytes"}},
        {"name": "marker", "type": _MARKER},
    ],
}
_BLOCK = {
    "type": "record",
    "name": "block",
    "fields": [
        {"name": "entries", "type": "long"},
        {"name": "content", "type": "bytes"},
        {"name": "marker", "type": _MARKER},
    ],
}


def in_blocks_of(most: int, content: bytes, more: bytes = b"") -> bytes:
    """Return an Avro file with the same entries, up to so many a block; `more` is added to the end of each block."""
    file, out = io.BytesIO(content), io.BytesIO()
    header: Any = fastavro.schemaless_reader(file, _HEADER, None)
    deflated = header["metadata"].get("avro.codec") == b"deflate"
    fastavro.schemaless_writer(out, _HEADER, header)
    entries: list[bytes] = []
    while file.tell() < len(content):
        block: Any = fastavro.schemaless_reader(file, _BLOCK, None)
        assert block["entries"] == 1
        entries.append(zlib.decompress(block["content"], -zlib.MAX_WBITS) if deflated else block["content"])
    for first in range(0, len(entries), most):
        block_entries = entries[first : first + most]
        body = b"".join(block_entries) + more
        if deflated:
            compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            body = compressor.compress(body) + compressor.flush()
        fastavro.schemaless_writer(
            out, _BLOCK, {"entries": len(block_entries), "content": body, "marker": header["marker"]}
        )
    return out.getvalue()
