"""The rule by which manifests are merged: few of them, each entry seldom rewritten, no commit that does a lot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestFile

from destination_datalake.tables.iceberg.snapshots.merging import MergePolicy

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


POLICY = MergePolicy(fan_in=4, target_bytes=100_000)


@pytest.mark.parametrize(
    ("manifests", "chosen"),
    [
        pytest.param([], 0, id="none"),
        pytest.param(many(3), 0, id="a level that is not full"),
        pytest.param(many(4), 4, id="a full level"),
        pytest.param(many(3) + many(3, files=4), 0, id="several levels, none of them full"),
        pytest.param(many(4, files=3) + many(3, files=4), 4, id="the full one of several levels"),
        pytest.param(many(5, files=4) + many(4), 4, id="the lowest of several full levels"),
        pytest.param(many(90), 18, id="no more than the target size"),
        pytest.param(many(4, manifest_length=100_000), 0, id="as large as the target size"),
        pytest.param(many(4, manifest_length=60_000), 0, id="no two of them fit into one"),
        pytest.param(many(3) + many(3, partition_spec_id=1), 0, id="two partition specs"),
        pytest.param(many(9, content=ManifestContent.DELETES), 0, id="delete files"),
        pytest.param(many(9, key_metadata=b"key"), 0, id="encrypted manifests"),
        pytest.param(many(9, added_files_count=None), 0, id="manifests of unknown counts"),
        pytest.param(many(9, files=0, deleted_files_count=1), 0, id="manifests without live files"),
    ],
)
def test_the_manifests_of_one_full_level_and_one_spec_are_merged(manifests: list[ManifestFile], chosen: int) -> None:
    assert len(POLICY.choose(manifests)) == chosen


def test_the_oldest_manifests_are_merged_first() -> None:
    manifests = many(30)

    assert POLICY.choose(manifests[::-1]) == manifests[: len(POLICY.choose(manifests))]


def test_a_commit_to_a_table_that_never_merged_reads_at_most_a_hundred_manifests() -> None:
    assert len(MergePolicy().choose(many(5_000))) == 100


@pytest.mark.parametrize(
    ("properties", "policy"),
    [
        ({}, MergePolicy(enabled=True, fan_in=20, target_bytes=1 << 20)),
        ({"commit.manifest-merge.enabled": "false"}, MergePolicy(enabled=False)),
        ({"commit.manifest.min-count-to-merge": "100"}, MergePolicy(fan_in=100)),
        ({"commit.manifest.min-count-to-merge": "1"}, MergePolicy(fan_in=2)),
        ({"commit.manifest.min-count-to-merge": "-3"}, MergePolicy(fan_in=2)),
        ({"commit.manifest.target-size-bytes": "8388608"}, MergePolicy(target_bytes=8 << 20)),
        ({"commit.manifest.target-size-bytes": "0"}, MergePolicy()),
        ({"commit.manifest.min-count-to-merge": "many", "commit.manifest.target-size-bytes": ""}, MergePolicy()),
    ],
)
def test_the_table_s_properties_are_respected(properties: Mapping[str, str], policy: MergePolicy) -> None:
    assert MergePolicy.of(properties) == policy


def test_nothing_is_merged_where_the_table_forbids_it() -> None:
    assert MergePolicy(enabled=False).choose(many(500)) == []


@given(st.integers(2, 30), st.lists(st.integers(1, 50), min_size=1, max_size=400))
def test_manifests_grow_with_the_logarithm_of_the_commits_and_no_file_is_lost(fan_in: int, commits: list[int]) -> None:
    policy, manifests, rewritten = MergePolicy(fan_in=fan_in, target_bytes=10**9), list[ManifestFile](), 0
    for files in commits:
        chosen = policy.choose(manifests)
        assert len(chosen) != 1
        rewritten += total(chosen)
        merged = [manifest(total(chosen))] if chosen else []
        manifests = [*(each for each in manifests if each not in chosen), *merged, manifest(files)]

    assert total(manifests) == sum(commits)
    levels = 1
    while fan_in**levels <= sum(commits):
        levels += 1
    assert len(manifests) <= fan_in * levels + 1
    assert rewritten <= levels * sum(commits)


def total(manifests: Iterable[ManifestFile]) -> int:
    return sum((each.added_files_count or 0) + (each.existing_files_count or 0) for each in manifests)
