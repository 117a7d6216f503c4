"""What is saved in the parameters of a Hive table: keys and values as earlier versions wrote them."""

from __future__ import annotations

import pytest

from destination_datalake.schema.types import Int64, List, String
from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.hive.content import (
    FolderState,
    PendingOverwrite,
    list_folder,
    lowest_generation,
    other_folders,
    save_commit,
    save_lowest_generation,
    unlist_folders,
)

PENDING = PendingOverwrite("s3://lake/t/generation-2-0123456789ab", 2, {"id": "bigint", "tags": "array<string>"})


def table_input(**parameters: str) -> TableInput:
    return {"Name": "orders", "Parameters": {"theirs": "kept", **parameters}}


def test_pending_overwrite_is_saved_in_three_parameters() -> None:
    table = table_input()

    PENDING.save(table)

    assert table["Parameters"] == {
        "theirs": "kept",
        "airbyte.unpublished-location": "s3://lake/t/generation-2-0123456789ab",
        "airbyte.unpublished-generation-id": "2",
        "airbyte.unpublished-types": '{"id": "bigint", "tags": "array<string>"}',
    }
    assert PendingOverwrite.load(table) == PENDING


@pytest.mark.parametrize("generation", [None, 0, 7])
def test_pending_overwrite_replaces_the_one_before(generation: int | None) -> None:
    table = table_input()
    PENDING.save(table)
    replacement = PendingOverwrite("s3://lake/t/other", generation, {})

    replacement.save(table)

    assert PendingOverwrite.load(table) == replacement
    assert "airbyte.unpublished-types" not in table["Parameters"]


def test_cleared_pending_overwrite_leaves_only_the_parameters_of_others() -> None:
    table = table_input()
    PENDING.save(table)

    PendingOverwrite.clear(table)

    assert table == table_input()
    assert PendingOverwrite.load(table) is None


def test_types_of_a_pending_overwrite_are_parsed_from_glues_names() -> None:
    pending = PendingOverwrite("s3://lake/t/other", None, {**PENDING.type_names, "theirs": "map<string,int>"})

    assert pending.types() == {"id": Int64(), "tags": List(String()), "theirs": None}


def test_folders_are_listed_with_their_states() -> None:
    table = table_input()

    list_folder(table, "s3://lake/a", FolderState.SUPERSEDED)
    list_folder(table, "s3://lake/b", FolderState.SUPERSEDED)
    list_folder(table, "s3://lake/a", FolderState.DEAD)

    assert table["Parameters"]["airbyte.other-locations"] == '{"s3://lake/a": "dead", "s3://lake/b": "superseded"}'
    assert other_folders(table) == {"s3://lake/a": FolderState.DEAD, "s3://lake/b": FolderState.SUPERSEDED}


def test_folder_that_an_earlier_version_listed_as_being_written_is_dead() -> None:
    table = table_input(**{"airbyte.other-locations": '{"s3://lake/a": "being written"}'})

    assert other_folders(table) == {"s3://lake/a": FolderState.DEAD}


def test_list_without_folders_has_no_parameter() -> None:
    table = table_input()
    list_folder(table, "s3://lake/a", FolderState.DEAD)

    unlist_folders(table, "s3://lake/a", "s3://lake/unknown")

    assert (table, other_folders(table)) == (table_input(), {})


def test_lowest_generation_is_unknown_without_its_parameter() -> None:
    assert lowest_generation(table_input()) is None
    assert lowest_generation(table_input(**{"airbyte.lowest-generation-id": "3"})) == 3


@pytest.mark.parametrize(("generation", "saved"), [(4, {"airbyte.lowest-generation-id": "4"}), (None, {})])
def test_lowest_generation_is_saved_or_removed(generation: int | None, saved: dict[str, str]) -> None:
    table = table_input(**{"airbyte.lowest-generation-id": "3"})

    save_lowest_generation(table, generation)

    assert table == table_input(**saved)


def test_last_commit_is_saved_by_its_id() -> None:
    table = table_input()

    save_commit(table, "sync-7")

    assert table == table_input(**{"airbyte.last-commit": "sync-7"})
