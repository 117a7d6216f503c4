"""Airbyte's lists of scenarios against this suite: none is forgotten."""

import re
from pathlib import Path

from integration_tests.conformance.airbyte.scenarios import (
    BASIC_FUNCTIONALITY,
    LEGACY_ACCEPTANCE,
    REASONS,
    played_by,
)

FOLDER = Path(__file__).parents[1]
SCENARIOS = {**BASIC_FUNCTIONALITY, **LEGACY_ACCEPTANCE}


def functions_here() -> set[str]:
    return {
        name for path in FOLDER.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


def test_every_scenario_has_a_test_or_a_reason() -> None:
    """What Airbyte asks of destinations is either tested, or said not to be and why."""
    played = {played_by(scenario, entry) for scenario, entry in SCENARIOS.items() if entry not in REASONS}

    assert played - functions_here() == set()
    assert set(REASONS) <= set(SCENARIOS.values())
