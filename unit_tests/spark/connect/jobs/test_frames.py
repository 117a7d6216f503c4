"""Where Spark's shuffle sends a key."""

from __future__ import annotations

import pytest

from destination_datalake.spark.connect.jobs.frames import shuffle_keys


@pytest.mark.parametrize("partitions", [1, 2, 7, 200])
def test_there_is_one_key_for_each_partition(partitions: int) -> None:
    assert len(set(shuffle_keys(partitions))) == partitions


def test_keys_are_the_first_numbers_that_spark_hashes_to_their_partitions() -> None:
    # SELECT pmod(hash(int(id)), 4) FROM range(13), Spark 4.3
    partitions_of_numbers = [3, 3, 2, 3, 2, 2, 1, 3, 3, 1, 2, 3, 0]

    assert shuffle_keys(4) == [partitions_of_numbers.index(partition) for partition in range(4)]
