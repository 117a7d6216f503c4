"""Airbyte's lists of scenarios against this suite: none is forgotten."""

import re
from pathlib import Path

from integration_tests.conformance.airbyte.scenarios import (
    BASIC_FUNCTIONALITY,
    LEGACY_ACCEPTANCE,
    REASONS,
    function_name,
)

FOLDER = Path(__file__).parent
SCENARIOS = {**BASIC_FUNCTIONALITY, **LEGACY_ACCEPTANCE}


def functions_here() -> set[str]:
    return {
        name for path in FOLDER.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


def test_every_scenario_has_a_test_or_a_reason() -> None:
    """What Airbyte asks of destinations is either tested under its name, or said not to apply."""
    without_reason = {function_name(scenario) for scenario, reason in SCENARIOS.items() if not reason}

    assert without_reason - functions_here() == set()
    assert {reason for reason in SCENARIOS.values() if reason} == set(REASONS)
