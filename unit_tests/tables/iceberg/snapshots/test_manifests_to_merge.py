"""Which manifests are merged: few are left, and no commit does a lot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestFile

from destination_datalake.tables.iceberg.snapshots.change import manifests_to_merge

_SEQUENCE = count(1)
HEADER = 5_000


def manifest(files: int = 1, **more: Any) -> ManifestFile:
    """A manifest of so many files, half of them new in its snapshot."""
    values = {
        "manifest_path": f"m{next(_SEQUENCE)}",
        "manifest_length": HEADER + 400 * files,
        "partition_spec_id": 0,
        "content": ManifestContent.DATA,
        "sequence_number": next(_SEQUENCE),
        "min_sequence_number": 1,
        "added_snapshot_id": 1,
        "added_files_count": files - files // 2,
        "existing_files_count": files // 2,
        "deleted_files_count": 0,
        **more,
    }
    return ManifestFile.from_args(**values)


def many(number: int, files: int = 1, **more: Any) -> list[ManifestFile]:
    return [manifest(files, **more) for _ in range(number)]


PROPERTIES = {"commit.manifest.min-count-to-merge": "4", "commit.manifest.target-size-bytes": "100000"}


@pytest.mark.parametrize(
    ("manifests", "chosen"),
    [
        pytest.param([], 0, id="none"),
        pytest.param(many(3), 0, id="few"),
        pytest.param(many(4), 4, id="enough"),
        pytest.param(many(3) + many(3, files=4), 6, id="enough of several sizes"),
        pytest.param(many(90), 18, id="no more than the target size"),
        pytest.param(many(3) + many(9, manifest_length=100_000), 0, id="few besides large ones"),
        pytest.param(many(4, manifest_length=60_000), 0, id="no two of them fit into one"),
        pytest.param(many(3, manifest_length=50_000) + many(1), 2, id="the smallest ones"),
        pytest.param(many(3) + many(3, partition_spec_id=1), 0, id="few of each partition spec"),
        pytest.param(many(3) + many(4, partition_spec_id=1), 4, id="enough of one partition spec"),
        pytest.param(many(9, content=ManifestContent.DELETES), 0, id="delete files"),
        pytest.param(many(9, key_metadata=b"key"), 0, id="encrypted manifests"),
        pytest.param(many(9, added_files_count=None), 0, id="manifests of unknown counts"),
        pytest.param(many(9, files=0, deleted_files_count=1), 0, id="manifests without live files"),
    ],
)
def test_the_small_manifests_of_one_spec_are_merged(manifests: list[ManifestFile], chosen: int) -> None:
    assert len(manifests_to_merge(manifests, PROPERTIES)) == chosen


def test_the_oldest_of_manifests_of_the_same_size_are_merged_first() -> None:
    manifests = many(30)

    assert manifests_to_merge(manifests[::-1], PROPERTIES) == manifests[:18]


@pytest.mark.parametrize(
    ("properties", "few", "enough", "most"),
    [
        ({}, 19, 20, 100),
        ({"commit.manifest.min-count-to-merge": "100"}, 99, 100, 100),
        ({"commit.manifest.min-count-to-merge": "300"}, 299, 300, 194),
        ({"commit.manifest.min-count-to-merge": "1"}, 1, 2, 100),
        ({"commit.manifest.min-count-to-merge": "-3"}, 1, 2, 100),
        ({"commit.manifest.target-size-bytes": "54000"}, 19, 20, 10),
        ({"commit.manifest.target-size-bytes": "0"}, 19, 20, 100),
        ({"commit.manifest.min-count-to-merge": "many", "commit.manifest.target-size-bytes": ""}, 19, 20, 100),
        ({"commit.manifest-merge.enabled": "maybe"}, 19, 20, 100),
    ],
)
def test_the_table_s_properties_are_respected(properties: Mapping[str, str], few: int, enough: int, most: int) -> None:
    assert manifests_to_merge(many(few), properties) == []
    assert len(manifests_to_merge(many(enough), properties)) == min(enough, most)
    assert len(manifests_to_merge(many(5_000), properties)) == most


def test_nothing_is_merged_where_the_table_forbids_it() -> None:
    assert manifests_to_merge(many(500), {"commit.manifest-merge.enabled": "false"}) == []


@given(st.integers(2, 30), st.lists(st.integers(1, 50), min_size=1, max_size=400))
def test_few_small_manifests_are_left_and_no_file_is_lost(least: int, commits: list[int]) -> None:
    target, manifests = 200_000, list[ManifestFile]()
    properties = {**PROPERTIES, "commit.manifest.min-count-to-merge": f"{least}"}
    properties["commit.manifest.target-size-bytes"] = f"{target}"
    for files in commits:
        chosen = manifests_to_merge(manifests, properties)
        assert len(chosen) != 1
        assert sum(manifest_file.manifest_length for manifest_file in chosen) <= target
        merged = [manifest(total(chosen))] if chosen else []
        manifests = [
            *(manifest_file for manifest_file in manifests if manifest_file not in chosen),
            *merged,
            manifest(files),
        ]

    assert total(manifests) == sum(commits)
    small = [manifest_file for manifest_file in manifests if 2 * manifest_file.manifest_length <= target]
    assert len(small) <= least + 1


def total(manifests: Iterable[ManifestFile]) -> int:
    return sum(
        (manifest_file.added_files_count or 0) + (manifest_file.existing_files_count or 0)
        for manifest_file in manifests
    )
