"""A first reader that takes one manifest for another, as a process would that has kept the wrong one."""

from __future__ import annotations

from destination_datalake.tables.iceberg.file_io import MANIFESTS
from unit_tests.tables.iceberg.lake import Lake


def misread_first_manifest(lake: Lake) -> None:
    """Let the first reader find another manifest's file in the table's oldest one."""
    table = lake.load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    newest, *_, oldest = snapshot.manifests(table.io)
    content = table.io.new_input(newest.manifest_path).open().read()
    MANIFESTS.put(oldest.manifest_path, content, len(content))
