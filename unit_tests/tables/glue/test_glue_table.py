"""A Glue table that several writers update: no change of another writer is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from destination_datalake.tables.glue.glue_table import GlueTable, TableInput
from destination_datalake.tables.table import TableName
from unit_tests.cloud import Cloud, another_client, before

NAME = TableName("shop", "orders")


@pytest.fixture
def table(cloud: Cloud) -> GlueTable:
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": NAME.database})
    glue.create_table(DatabaseName=NAME.database, TableInput={"Name": NAME.table, "Owner": "the shop"})
    return GlueTable(NAME, cloud.access)


def setting(key: str, value: str = "1") -> Callable[[TableInput], str]:
    def change(table_input: TableInput) -> str:
        table_input["Parameters"][key] = value
        return f"set {key}"

    return change


def test_update_returns_the_result_of_the_change_and_keeps_everything_else(table: GlueTable) -> None:
    assert table.update(setting("ours")) == "set ours"

    read = table.read()
    assert (read["Owner"], read["Parameters"]) == ("the shop", {"ours": "1"})


def test_update_without_a_difference_makes_no_call(table: GlueTable) -> None:
    table.update(setting("ours"))
    access, updates = another_client(), list[int]()
    before(access, "glue", "UpdateTable", updates.append)

    GlueTable(NAME, access).update(setting("ours"))

    assert updates == []


def test_update_is_retried_on_the_table_as_another_writer_left_it(table: GlueTable) -> None:
    access = another_client()
    before(access, "glue", "UpdateTable", lambda times: times == 1 and table.update(setting("theirs")))

    GlueTable(NAME, access).update(setting("ours"))

    assert table.read()["Parameters"] == {"theirs": "1", "ours": "1"}


def test_update_of_an_outdated_version_is_retried_too(table: GlueTable) -> None:
    version = table.read_version()
    table.update(setting("theirs"))

    table.update(setting("ours"), version)

    assert table.read()["Parameters"] == {"theirs": "1", "ours": "1"}


def test_update_of_a_version_just_read_does_not_read_the_table_again(table: GlueTable) -> None:
    access, reads = another_client(), list[int]()
    ours = GlueTable(NAME, access)
    version = ours.read_version()
    before(access, "glue", "GetTable", reads.append)

    ours.update(setting("ours"), version)

    assert (reads, table.read()["Parameters"]) == ([], {"ours": "1"})


def test_compare_and_set_changes_a_table_that_still_has_the_version(table: GlueTable) -> None:
    assert table.compare_and_set(table.read_version(), setting("ours"))

    assert table.read()["Parameters"] == {"ours": "1"}


def test_compare_and_set_changes_nothing_after_another_writers_update(table: GlueTable) -> None:
    version = table.read_version()
    table.update(setting("theirs"))

    assert not table.compare_and_set(version, setting("ours"))

    assert table.read()["Parameters"] == {"theirs": "1"}


def test_compare_and_set_leaves_the_version_as_it_was_read(table: GlueTable) -> None:
    version = table.read_version()

    table.compare_and_set(version, setting("ours"))

    assert version.table_input["Parameters"] == {}


def test_table_that_does_not_exist_raises_glues_own_error(cloud: Cloud) -> None:
    missing: Any = cloud.access.client("glue").exceptions.EntityNotFoundException

    with pytest.raises(missing):
        GlueTable(NAME, cloud.access).read()
