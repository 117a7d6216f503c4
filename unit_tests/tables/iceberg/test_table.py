"""Iceberg tables: what is committed, and when not."""

from __future__ import annotations

from destination_datalake.tables.table import Committed, Reencode
from unit_tests.tables.iceberg.lake import Lake, no_rewrite


def test_preparing_a_table_commits_at_most_once(lake: Lake) -> None:
    locations = []
    for generation, overwrite in [(1, False), (1, False), (2, True), (3, False), (3, False)]:
        lake.open(generation, overwrite=overwrite)
        locations.append(lake.load().metadata_location)

    # The first creates the table, the third begins an overwrite, the fourth adopts its rows. The others change nothing.
    versions = [int(location.rpartition("/")[2].partition("-")[0]) for location in locations]
    assert versions == [0, 0, 1, 2, 2]


def test_a_batch_without_files_makes_no_snapshot(lake: Lake) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    before = lake.load().metadata_location

    assert syncing.commit([], no_rewrite) == Committed()

    assert lake.load().metadata_location == before


def test_a_batch_planned_before_its_column_was_renamed_is_encoded_again(lake: Lake) -> None:
    """Readers find columns by field id, and the renamed column has kept the one in the file."""
    syncing = lake.open()
    files = [lake.write(syncing, 1)]
    with lake.load().update_schema() as update:
        update.rename_column("id", "number")

    answer = syncing.commit(files, no_rewrite)

    assert answer == Reencode("its column id was dropped or renamed after the files were planned")
    assert not any(key in files[0].uri for key in lake.objects())
    lake.commit(syncing, 1)
    assert lake.ids() == [1]
