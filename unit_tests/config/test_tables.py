"""Options of tables: deduplication and maintenance."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.config.tables import (
    ConnectorMaintenance,
    DedupOptions,
    GlueOptimizers,
    NoMaintenance,
    streams_without_dedup,
)
from destination_datalake.protocol.catalog import StreamId
from unit_tests.config.examples import options, refusal

JSONL = {"format_type": "JSONL"}


@pytest.mark.parametrize(
    ("given", "understood"),
    [
        ({}, DedupOptions(deletes="copy_on_write", cdc_deletion="hard")),
        ({"dedup": None}, DedupOptions()),
        ({"dedup": {"deletes": "merge_on_read"}}, DedupOptions(deletes="merge_on_read", cdc_deletion="hard")),
        ({"dedup": {"cdc_deletion": "soft"}}, DedupOptions(deletes="copy_on_write", cdc_deletion="soft")),
    ],
)
def test_files_are_rewritten_and_deletions_delete_unless_the_options_say_otherwise(
    given: dict[str, Any], understood: DedupOptions
) -> None:
    assert Config.parse(options(**given)).dedup == understood


@pytest.mark.parametrize(
    ("dedup", "sentence"),
    [
        (
            {"deletes": "deletion_vectors"},
            'dedup.deletes "deletion_vectors" is not valid. It must be copy_on_write or merge_on_read.',
        ),
        ({"cdc_deletion": True}, "dedup.cdc_deletion true is not valid. It must be hard or soft."),
        ("merge_on_read", 'dedup "merge_on_read" is not valid. It must be an object with deletes and cdc_deletion.'),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(dedup: object, sentence: str) -> None:
    assert refusal(options(dedup=dedup)) == sentence


@pytest.mark.parametrize(
    ("table", "dedup", "sentence"),
    [
        (
            {"table_type": "HIVE"},
            {"deletes": "merge_on_read"},
            "dedup.deletes requires Iceberg tables. Set table_type to ICEBERG, or remove dedup.deletes.",
        ),
        (
            {"format": JSONL},
            {"deletes": "merge_on_read", "cdc_deletion": "soft"},
            "dedup.deletes and dedup.cdc_deletion require Iceberg tables. Set table_type to ICEBERG and "
            "format_type to Parquet, or remove dedup.deletes and dedup.cdc_deletion.",
        ),
    ],
)
def test_tables_that_cannot_be_deduplicated_have_no_options_of_it(
    table: dict[str, Any], dedup: dict[str, Any], sentence: str
) -> None:
    assert refusal(options(**table, dedup=dedup)) == sentence


@pytest.mark.parametrize("table", [{"table_type": "HIVE"}, {"format": JSONL}])
def test_defaults_that_a_form_sends_contradict_nothing(table: dict[str, Any]) -> None:
    Config.parse(options(**table, dedup={"deletes": "copy_on_write", "cdc_deletion": "hard"}))


@pytest.mark.parametrize(
    ("streams", "format_type", "problems"),
    [
        (
            ["orders"],
            "Parquet",
            [
                "Stream orders uses the destination sync mode append_dedup",
                "Set table_type to ICEBERG. If the tables exist, also choose a new",
            ],
        ),
        (
            ["orders"],
            "JSONL",
            ["Set table_type to ICEBERG and format_type to Parquet. If the tables exist, also choose a new"],
        ),
        (["a", "b", "c", "d"], "Parquet", ["Streams a, b, c, … use the"]),
    ],
)
def test_streams_that_are_to_be_deduplicated_need_iceberg_tables(
    streams: list[str], format_type: str, problems: list[str]
) -> None:
    reason = streams_without_dedup([StreamId(None, name) for name in streams], "HIVE", format_type)

    assert reason is not None
    for text in problems:
        assert text in reason


@pytest.mark.parametrize(("streams", "table_type"), [([], "HIVE"), ([StreamId(None, "orders")], "ICEBERG")])
def test_other_streams_and_other_tables_go_together(streams: list[StreamId], table_type: str) -> None:
    assert streams_without_dedup(streams, table_type, "Parquet") is None


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
def test_what_is_wrong_with_maintenance_is_said_in_a_sentence(given: dict[str, Any], sentence: str) -> None:
    assert refusal(options(maintenance=given)) == sentence
