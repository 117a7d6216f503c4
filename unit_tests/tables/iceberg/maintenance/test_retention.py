"""Which snapshots expire: rules of branches and tags first, then the table's properties, then the options."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from destination_datalake.tables.iceberg.maintenance.cleanup import Expired, Retention, expired
from destination_datalake.tables.iceberg.maintenance.references import MaintenanceSkipped

NOW = datetime(2026, 1, 31, tzinfo=UTC)
DAY = 24 * 60 * 60 * 1000

LINE = {1: (20, None), 2: (10, 1), 3: (6, 2), 4: (4, 3), 5: (1, 4)}
"""A table's history: each snapshot's age in days, and its parent."""


def metadata(snapshots: dict[int, tuple[int, int | None]], refs: dict[str, dict[str, Any]]) -> TableMetadata:
    at = int(NOW.timestamp() * 1000)
    listed = [
        {
            "snapshot-id": id_,
            **({"parent-snapshot-id": parent} if parent is not None else {}),
            "sequence-number": number,
            "timestamp-ms": at - age * DAY,
            "manifest-list": f"s3://lake/t/metadata/snap-{id_}.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
        }
        for number, (id_, (age, parent)) in enumerate(snapshots.items(), 1)
    ]
    return TableMetadataUtil.parse_obj(
        {
            "format-version": 2,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "s3://lake/t",
            "last-sequence-number": len(snapshots),
            "last-updated-ms": at,
            "last-column-id": 0,
            "current-schema-id": 0,
            "schemas": [
                {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "x", "required": False, "type": "int"}]}
            ],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "current-snapshot-id": refs["main"]["snapshot-id"] if "main" in refs else -1,
            "refs": refs,
            "snapshots": listed,
        }
    )


def branch(head: int, **rules: Any) -> dict[str, Any]:
    return {"snapshot-id": head, "type": "branch", **{name.replace("_", "-"): value for name, value in rules.items()}}


def tag(head: int, **rules: Any) -> dict[str, Any]:
    return {**branch(head, **rules), "type": "tag"}


@pytest.mark.parametrize(
    ("refs", "properties", "gone", "refs_gone"),
    [
        pytest.param({"main": branch(5)}, {}, (1, 2, 3), (), id="those older than five days"),
        pytest.param({"main": branch(3)}, {}, (1, 2), (), id="never a branch's head; a rolled back one goes by age"),
        pytest.param(
            {"main": branch(5)}, {"history.expire.max-snapshot-age-ms": str(15 * DAY)}, (1,), (), id="the table's age"
        ),
        pytest.param(
            {"main": branch(5)}, {"history.expire.min-snapshots-to-keep": "4"}, (1,), (), id="the table's minimum"
        ),
        pytest.param(
            {"main": branch(5, min_snapshots_to_keep=2, max_snapshot_age_ms=DAY // 2)},
            {"history.expire.min-snapshots-to-keep": "4"},
            (1, 2, 3),
            (),
            id="a branch's own rules",
        ),
        pytest.param({"main": branch(5), "audit": tag(2)}, {}, (1, 3), (), id="never a tag's"),
        pytest.param({"main": branch(5), "audit": branch(2)}, {}, (1, 3), (), id="never another branch's head"),
        pytest.param(
            {"main": branch(5), "audit": tag(2, max_ref_age_ms=DAY)}, {}, (1, 2, 3), ("audit",), id="an old tag expires"
        ),
        pytest.param(
            {"main": branch(5), "airbyte-fence-3": tag(2, max_ref_age_ms=2**63 - 1)},
            {},
            (1, 3),
            (),
            id="never the tag of a token that is held",
        ),
        pytest.param(
            {"main": branch(5), "airbyte-fence-3": tag(2, max_ref_age_ms=1)},
            {},
            (1, 2, 3),
            ("airbyte-fence-3",),
            id="a tag of ours that nobody needs goes with its snapshot",
        ),
        pytest.param(
            {"main": branch(5), "airbyte-fence-3": tag(4, max_ref_age_ms=1)},
            {},
            (1, 2, 3),
            (),
            id="and stays with it",
        ),
        pytest.param(
            {"main": branch(5), "dev": branch(3), "late": branch(4)},
            {"history.expire.max-ref-age-ms": str(5 * DAY)},
            (1, 2, 3),
            ("dev",),
            id="an old branch expires by the table's rule",
        ),
        pytest.param(
            {"main": branch(5, max_ref_age_ms=1)}, {}, (1, 2, 3), (), id="main does not expire, whatever it says"
        ),
        pytest.param(
            {"main": branch(1), "airbyte_generation_7": branch(5, max_ref_age_ms=1)},
            {},
            (),
            (),
            id="nothing of an unpublished overwrite",
        ),
        pytest.param(
            {"main": branch(5), "airbyte_pending_1": tag(2, max_ref_age_ms=1)}, {}, (1, 3), (), id="nothing pending"
        ),
    ],
)
def test_what_expires(
    refs: dict[str, dict[str, Any]], properties: dict[str, str], gone: tuple[int, ...], refs_gone: tuple[str, ...]
) -> None:
    retention = Retention.from_properties(properties, timedelta(days=5), 1)

    assert expired(metadata(LINE, refs), retention, NOW) == Expired(gone, refs_gone)


def test_a_snapshot_of_no_branch_expires_by_age() -> None:
    """As those are that were staged for an audit and never published."""
    staged = {**LINE, 6: (9, 2), 7: (2, 2)}

    assert expired(metadata(staged, {"main": branch(5)}), Retention(5 * DAY, 1), NOW) == Expired((1, 2, 3, 6))


def test_the_history_of_a_pending_branch_before_it_left_main_expires_with_that_of_main() -> None:
    pending = {**LINE, 6: (9, 2), 7: (8, 6)}
    refs = {"main": branch(5), "airbyte_generation_2": branch(7)}

    assert expired(metadata(pending, refs), Retention(5 * DAY, 1), NOW) == Expired((1, 2, 3))


def test_parents_that_go_round_in_a_circle_end() -> None:
    assert expired(metadata({1: (9, 2), 2: (9, 1)}, {"main": branch(2)}), Retention(5 * DAY, 1), NOW) == Expired((1,))


def test_an_empty_table_has_nothing_that_expires() -> None:
    assert not expired(metadata({}, {}), Retention(5 * DAY, 1), NOW)


@pytest.mark.parametrize("value", ["five days", "-1", "0", "1e9", ""])
def test_a_table_whose_own_rule_cannot_be_read_is_left_alone(value: str) -> None:
    with pytest.raises(MaintenanceSkipped, match="max-snapshot-age-ms"):
        Retention.from_properties({"history.expire.max-snapshot-age-ms": value}, timedelta(days=5), 1)
