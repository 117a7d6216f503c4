"""A short share of `make chaos`, with the same seed every time: rounds about kinds of table that differ."""

from pathlib import Path

import pytest

from integration_tests.chaos.aws.adversary import HostileAws
from integration_tests.chaos.play import play
from integration_tests.chaos.subjects import SUBJECTS
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.warm import WarmLaunch

SEED = 4027
ATTEMPTS = 4


PLAYED = (
    "iceberg overwrite",
    "iceberg partitioned append",
    "iceberg partitioned dedup merge_on_read append",
    "hive-parquet partitioned overwrite",
    "hive-jsonl overwrite",
    "iceberg rest overwrite",
    "iceberg rest dedup merge_on_read append",
)
"""Each kind of table, both modes, with partitions and without, deduplicated, in a REST catalog.

`make chaos` plays all subjects.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, id=str(subject))
        for number, subject in enumerate(SUBJECTS, start=1)
        if str(subject) in PLAYED
    ],
)
def test_whatever_happens_to_syncs_nothing_acknowledged_is_lost_and_overwrites_are_exact(
    lake: Lake, hostile_aws: HostileAws, launch: WarmLaunch, tmp_path: Path, number: int
) -> None:
    verdict = play(hostile_aws, lake, launch, tmp_path, SEED, number, ATTEMPTS)

    assert not verdict.violation, verdict.details(SEED)
