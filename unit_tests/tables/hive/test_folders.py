"""Folders of Hive tables: unused ones for new content, and the files in them that readers see."""

from __future__ import annotations

import pytest

from destination_datalake.tables.hive.folders import Folders
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.tables.hive.orders import ROOT, put

OURS = f"{ROOT}/generation-7-0123456789ab"


def test_folder_of_a_new_table_lies_in_its_root_and_is_used_once(cloud: Cloud) -> None:
    folders = Folders(ROOT, cloud.access)

    first, second = folders.for_new_table(7), folders.for_new_table(7)

    assert first != second
    assert first.startswith(f"{ROOT}/generation-7-")
    assert Folders.is_created_by_connector(first)


@pytest.mark.parametrize(
    ("location", "parent"),
    [
        (OURS, ROOT),
        (f"s3://{BUCKET}/other/generation-0-0123456789ab", f"s3://{BUCKET}/other"),
        (f"s3://{BUCKET}/elsewhere", ROOT),
        (f"{ROOT}/data", ROOT),
        (ROOT, f"{ROOT}__generations"),
        (f"s3://{BUCKET}/shop", f"s3://{BUCKET}/shop__generations"),
    ],
)
def test_folder_for_new_content_is_never_inside_the_location(cloud: Cloud, location: str, parent: str) -> None:
    folder = Folders(ROOT, cloud.access).for_table_at(location, None)

    assert folder.startswith(f"{parent}/generation-0-")
    assert not folder.startswith(f"{location}/")


@pytest.mark.parametrize(
    "location",
    [OURS, ROOT, f"{ROOT}/data", f"s3://{BUCKET}/elsewhere", f"s3://{BUCKET}/old/orders/generation-0-0123456789ab"],
)
def test_table_owns_every_folder_created_for_it(cloud: Cloud, location: str) -> None:
    folders = Folders(ROOT, cloud.access)
    of_its_replay = Folders(location, cloud.access).for_table_at(location, None)
    created = (folders.for_new_table(1), folders.for_table_at(location, 1), of_its_replay)

    assert all(folders.owns(folder, location) for folder in created)
    assert not folders.owns(f"s3://{BUCKET}/shop/customers/generation-1-0123456789ab", location)
    assert not folders.owns(f"{ROOT}/2024/generation-1-0123456789ab", location)


def test_files_are_those_that_engines_read(cloud: Cloud) -> None:
    for key in ("part-0", "a/part-0", "_SUCCESS", "_temporary/part-1", ".part-0.crc", "a/.hidden/part-2"):
        put(cloud, f"shop/orders/data/{key}", b"rows")
    for key in ("empty", "folder/"):
        put(cloud, f"shop/orders/data/{key}")
    put(cloud, "shop/orders/data-of-another/part-3", b"rows")

    files = Folders(ROOT, cloud.access).files(f"{ROOT}/data")

    assert files.keys() == {"part-0", "a/part-0"}
    assert len(set(files.values())) == 1, "equal files have equal ETags"


def test_copy_keeps_names_and_is_idempotent(cloud: Cloud) -> None:
    folders = Folders(ROOT, cloud.access)
    put(cloud, "shop/orders/data/a b+%20/part-0", b"rows")

    for _ in range(2):
        folders.copy(["a b+%20/part-0"], f"{ROOT}/data", OURS)

    assert cloud.objects()["shop/orders/generation-7-0123456789ab/a b+%20/part-0"] == b"rows"


def test_only_folders_of_this_connector_are_deleted(cloud: Cloud) -> None:
    folders = Folders(ROOT, cloud.access)
    for folder in ("generation-7-0123456789ab", "generation-7-theirs"):
        put(cloud, f"shop/orders/{folder}/part-0", b"rows")

    folders.delete_folder(OURS)
    with pytest.raises(ValueError, match="because this connector did not create that folder"):
        folders.delete_folder(f"{ROOT}/generation-7-theirs")

    assert cloud.objects().keys() == {"shop/orders/generation-7-theirs/part-0"}
    assert folders.is_empty(OURS)
