"""The options of maintenance, as users write them."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.groups.maintenance import ConnectorMaintenance, GlueOptimizers, NoMaintenance
from destination_datalake.config.options import Config
from unit_tests.config.examples import options, refusal

ROLE = "arn:aws:iam::123456789012:role/optimizers"


def test_without_the_option_nothing_is_maintained() -> None:
    assert Config.parse(options()).maintenance == NoMaintenance(mode="none")


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ({"mode": "none"}, NoMaintenance(mode="none")),
        ({"mode": "connector"}, ConnectorMaintenance(mode="connector")),
        (
            {"mode": "connector", "snapshot_retention_days": 1, "min_snapshots_to_keep": 20},
            ConnectorMaintenance(mode="connector", snapshot_retention_days=1, min_snapshots_to_keep=20),
        ),
        ({"mode": "glue", "role_arn": ROLE}, GlueOptimizers(mode="glue", role_arn=ROLE)),
    ],
)
def test_a_mode_has_the_options_that_belong_to_it(given: dict[str, Any], understood: object) -> None:
    assert Config.parse(options(maintenance=given)).maintenance == understood


def test_the_defaults_are_those_of_iceberg_and_of_glues_optimizers() -> None:
    default = ConnectorMaintenance(mode="connector")

    assert (default.snapshot_retention_days, default.min_snapshots_to_keep, default.orphan_retention_days) == (5, 1, 3)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "maintenance is incomplete. It must be an object whose mode is none, glue or connector."),
        (
            {"mode": "glue"},
            "maintenance.role_arn is missing. It must be the ARN of the role that Glue's table optimizers use, such as "
            "arn:aws:iam::123456789012:role/glue.",
        ),
        (
            {"mode": "connector", "orphan_retention_days": 0},
            "maintenance.orphan_retention_days 0 is not valid. It must be a whole number of days from 1 to 365.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    assert refusal(options(maintenance=given)) == sentence
