"""A short share of `make chaos`, with the same seed every time: a round about each of its subjects."""

from pathlib import Path

import pytest

from integration_tests.chaos.aws.adversary import HostileAws
from integration_tests.chaos.play import play
from integration_tests.chaos.subjects import SUBJECTS
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.warm import WarmLaunch

SEED = 4027
ATTEMPTS = 4


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, len(SUBJECTS) + 1), ids=map(str, SUBJECTS))
def test_whatever_happens_to_syncs_nothing_acknowledged_is_lost_and_overwrites_are_exact(
    lake: Lake, hostile_aws: HostileAws, launch: WarmLaunch, tmp_path: Path, number: int
) -> None:
    verdict = play(hostile_aws, lake, launch, tmp_path, SEED, number, ATTEMPTS)

    assert not verdict.violation, verdict.details(SEED)
