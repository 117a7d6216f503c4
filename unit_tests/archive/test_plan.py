"""What is replayed of an archive, in which order: histories of syncs as tables, and the steps that are left of them.

A history is written as what happened, in order of time: "a+" sync a begins, "a1" it commits its batch 1, "a!" it
publishes. Its steps are written alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs
from pyroaring import BitMap

from destination_datalake.archive.objects import ArchivedSync
from destination_datalake.archive.plan import (
    SPACING,
    History,
    Plan,
    StepKind,
    StoredBatch,
    StoredLines,
    StoredSync,
    StoredTable,
    as_append,
    build_plan,
    unindexed_units,
)
from destination_datalake.errors import ConfigError
from destination_datalake.files.plan import UnitLines
from destination_datalake.protocol.catalog import Stream
from destination_datalake.tables.table import TableState
from integration_tests.harness.messages import configured_stream

ICEBERG = TableState(published_by=None, has_pending=False, commits_whole=True, sources=(), version="", columns=())
HIVE = replace(ICEBERG, commits_whole=False)

APPEND: dict[str, Any] = {"generation": 1}


def refresh(generation: int) -> dict[str, Any]:
    return {"generation": generation, "minimum": generation}


WITHOUT_IDS: dict[str, Any] = {"mode": "overwrite", "generation": None, "minimum": None, "sync_id": None}
PYAIRBYTE: dict[str, Any] = {"mode": "overwrite", "generation": 1, "minimum": 1, "sync_id": 1}
DEDUP: dict[str, Any] = {"mode": "append_dedup", "primary_key": ["id"], "generation": 1}

ROWS = BitMap(range(4))

SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}}


class Archive:
    """The history of syncs of these configurations, to which this has happened.

    The first one has found the table empty.
    """

    def __init__(self, happened: str, *, found_empty: bool = True, **streams: Mapping[str, Any]) -> None:
        self.syncs: dict[str, StoredSync] = {}
        self.lost: list[StoredSync] = []
        for number, event in enumerate(happened.split(), start=1):
            sequence_number, name, action = number * SPACING, event[0], event[1:]
            if action == "+":
                self.syncs[name] = stored_sync(
                    name, sequence_number, streams.get(name, APPEND), found_empty and not self.syncs
                )
            elif action == "!":
                self.syncs[name].published = sequence_number
            else:
                self.syncs[name].batches[int(action)] = StoredBatch(
                    sequence_number, (lines_of(name, int(action)),), rows=4
                )

    @property
    def history(self) -> History:
        syncs = [*self.syncs.values()]
        first = {sync.entry.table: sync for sync in reversed(syncs)}
        tables = [StoredTable(sync, sync.begun, sync.entry.found_empty) for sync in reversed(first.values())]
        return History(syncs, self.lost, tables)

    def unindexed(self, name: str, batch: int, attempt: int = 0) -> StoredLines:
        """Add lines that the journal does not have."""
        lines = lines_of(name, batch, attempt)
        self.syncs[name].unindexed.setdefault(batch, []).append(lines)
        return lines

    def expire(self, name: str, batch: int) -> None:
        """Lose the lines of a batch: the journal has it, and S3 has not."""
        stored = self.syncs[name].batches[batch]
        missing = tuple(lines.archived.name for lines in stored.lines)
        self.syncs[name].batches[batch] = replace(stored, lines=(), missing=missing)

    def lose(self, name: str, **known: Any) -> None:
        """Lose the configuration of a sync, and of its first entry all but this."""
        sync = self.syncs.pop(name)
        sync.entry = ArchivedSync(name, sync.entry.started, "", mode="", **{"catalog": "", **known})
        self.lost.append(sync)


def stored_sync(name: str, started: int, stream: Mapping[str, Any], found_empty: bool) -> StoredSync:
    configured = configured_stream(
        "orders", stream.get("schema", SCHEMA), **{"sync_id": None, **without_schema(stream)}
    )
    ids: Any = [configured.pop(key, None) for key in ("generation_id", "minimum_generation_id", "sync_id")]
    generation, minimum, sync_id = ids
    sync = ArchivedSync(name, started, "orders", "hash", "", None, (), (), generation, minimum, sync_id, found_empty)
    return StoredSync(sync, configured, started)


def without_schema(stream: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stream.items() if key != "schema"}


def lines_of(name: str, batch: int, attempt: int = 0) -> StoredLines:
    first_id = f"{name.encode().hex()}{batch:08d}{attempt:014d}00000000"
    key = f"dt=2026-11-25/{name}-{batch:06d}-0000-{attempt:08x}.jsonl.gz"
    return StoredLines(UnitLines(key, 4, 100, 0, first_id), f"s3://lake/{key}", "etag", 50)


def steps(plan: Plan) -> str:
    marks = {StepKind.BEGIN: "+", StepKind.END: "!"}
    return " ".join(f"{step.sync}{marks.get(step.kind, step.batch)}" for step in plan.steps)


@pytest.mark.parametrize(
    ("happened", "streams", "expected"),
    [
        pytest.param("a+ a1 a2 a!", {}, "a+ a1 a2 a!", id="one sync"),
        pytest.param("a+ b+ b1 a1 b! a2 a!", {}, "a+ b+ b1 a1 b! a2 a!", id="two that overlap"),
        pytest.param("a+ a2 a1 a!", {}, "a+ a2 a1 a!", id="a batch that another has overtaken"),
        pytest.param("a+ a1 b+ b1 b!", {}, "a+ a1 b+ b1 b!", id="one that was killed"),
        pytest.param("a+ a1 a! b+ b1 b!", {"b": refresh(2)}, "b+ b1 b!", id="a refresh"),
        pytest.param(
            "a+ a1 a! b+ b1 b! c+ c1 c! d+ d1 d!",
            {"b": refresh(2), "c": refresh(3), "d": {"generation": 3}},
            "c+ c1 c! d+ d1 d!",
            id="the last refresh, and what came after it",
        ),
        pytest.param(
            "a+ a1 b+ a2 b1 b! a3 a!", {"b": refresh(2)}, "a+ b+ b1 b! a3 a!", id="appends before and after a refresh"
        ),
        pytest.param(
            "a+ a1 a! b+ b1 c+ c1 c!",
            {"b": refresh(2), "c": refresh(2)},
            "b+ b1 c+ c1 c!",
            id="a refresh that another sync of its generation has completed",
        ),
        pytest.param(
            "b+ b1 b! d+ d1 d! c+ c1 c!",
            {"b": refresh(2), "c": refresh(2), "d": {"generation": 2}},
            "b+ b1 b! d+ d1 d! c+ c1 c!",
            id="a refresh that was published twice, with an append in between",
        ),
        pytest.param(
            "a+ a1 a! b+ b1 c+ c1 c!",
            {"b": refresh(2), "c": refresh(3)},
            "c+ c1 c!",
            id="a refresh that was given up for another one",
        ),
        pytest.param(
            "a+ a1 a! b+ b1 c+ c1 c!",
            {"b": refresh(2), "c": {"generation": 3}},
            "a+ a1 a! b+ b1 c+ c1 c!",
            id="an overwrite that was not published: a later sync takes its rows",
        ),
        pytest.param(
            "a+ a1 a! b+ b1 b!", {"a": WITHOUT_IDS, "b": WITHOUT_IDS}, "b+ b1 b!", id="overwrites without ids"
        ),
        pytest.param(
            "a+ a1 a! b+ b1", {"a": WITHOUT_IDS, "b": WITHOUT_IDS}, "a+ a1 a! b+ b1", id="one that was not published"
        ),
        pytest.param("a+ a1 a! b+ b1 b!", {"a": PYAIRBYTE, "b": PYAIRBYTE}, "b+ b1 b!", id="overwrites of PyAirbyte's"),
        pytest.param("a+ a! b+ b!", {"b": refresh(2)}, "b+ b!", id="a refresh to nothing"),
        pytest.param("", {}, "", id="nothing"),
    ],
)
def test_syncs_are_lived_through_in_the_order_in_which_they_did_what_they_did(
    happened: str, streams: Mapping[str, Any], expected: str
) -> None:
    plan = build_plan(Archive(happened, **streams).history, ICEBERG, {})

    assert steps(plan) == expected
    assert plan.notes == []
    assert {*plan.syncs} == {step.sync for step in plan.steps}


def test_a_plan_counts_what_it_replays_and_names_what_a_refresh_has_replaced() -> None:
    plan = build_plan(Archive("a+ a1 b+ a2 b1 b! a3 a!", b=refresh(2)).history, ICEBERG, {})

    assert (plan.records, plan.bytes) == (8, 200)
    assert [stored.line_numbers for stored in plan.lines(plan.steps)] == [None, None]
    assert plan.replaced_batches == {"a": [1, 2]}


def test_of_what_a_refresh_has_replaced_columns_are_left() -> None:
    """Each schema once, in the order of syncs, as of syncs that append, without ids or keys."""
    older = {**DEDUP, "schema": {**SCHEMA, "properties": {"old": {}, "id": {}}}}
    archive = Archive("a+ a1 a! b+ b1 b! c+ c1 c! d+ d1 d!", a=older, d=refresh(2))

    columns = build_plan(archive.history, ICEBERG, {}).columns

    assert [[*stream.json_schema["properties"]] for stream in columns] == [["old", "id"], ["id"]]
    assert {(stream.overwrites_table, stream.dedup, stream.primary_key, stream.sync_id) for stream in columns} == {
        (False, False, (), None)
    }


# Lines without an index entry


@pytest.mark.parametrize(
    ("facts", "rows", "line_numbers"),
    [
        pytest.param(ICEBERG, [2], None, id="a commit of the whole batch"),
        pytest.param(HIVE, [0, 2], (0, 2), id="a commit of some of its files"),
        pytest.param(None, [0, 2], (0, 2), id="no table any more"),
    ],
)
def test_lines_that_the_index_lacks_are_replayed_if_the_table_has_rows_of_them(
    facts: TableState | None, rows: Sequence[int], line_numbers: tuple[int, ...] | None
) -> None:
    archive = Archive("a+ a1 b+ b1 b!")
    lost = archive.unindexed("a", 2)
    assert unindexed_units(archive.history) == {lost.unit}

    plan = build_plan(archive.history, facts, {lost.unit: BitMap(rows)})

    assert steps(plan) == "a+ a1 a2 b+ b1 b!"
    assert plan.syncs["a"].batches[2].lines == (replace(lost, line_numbers=line_numbers),)
    assert plan.notes == []


def test_lines_that_the_index_lacks_are_left_out_if_the_table_has_no_row_of_them() -> None:
    archive = Archive("a+ a1 b+ b1 b!")
    lost = archive.unindexed("a", 2)

    plan = build_plan(archive.history, ICEBERG, {})

    assert steps(plan) == "a+ a1 b+ b1 b!"
    assert plan.skipped == [lost.uri]
    assert plan.is_complete


def test_of_two_attempts_at_a_batch_the_one_is_replayed_of_which_there_are_rows() -> None:
    archive = Archive("a+")
    archive.unindexed("a", 1, attempt=1)
    second = archive.unindexed("a", 1, attempt=2)

    plan = build_plan(archive.history, HIVE, {second.unit: ROWS})

    assert steps(plan) == "a+ a1"
    assert plan.lines(plan.steps) == [replace(second, line_numbers=(0, 1, 2, 3))]
    assert len(plan.skipped) == 1


def test_lines_without_an_entry_are_after_the_refresh_if_the_table_has_their_rows() -> None:
    archive = Archive("a+ a1 b+ b1 b!", b=refresh(2))
    lost = archive.unindexed("a", 2)

    plan = build_plan(archive.history, ICEBERG, {lost.unit: ROWS})

    assert steps(plan) == "a+ b+ b1 b! a2"
    assert plan.replaced_batches == {"a": [1]}


# Syncs that were killed after they had published


@pytest.mark.parametrize(
    ("stream", "facts", "expected"),
    [
        pytest.param(refresh(2), {"published_by": "b"}, "b+ b1 b!", id="a refresh that the table names"),
        pytest.param(refresh(2), {"published_by": "a"}, "a+ a1 a! b+ b1", id="a refresh of another sync"),
        pytest.param(refresh(2), {}, "a+ a1 a! b+ b1", id="no refresh"),
        pytest.param(WITHOUT_IDS, {"published_by": "b"}, "b+ b1 b!", id="an overwrite without ids"),
        pytest.param(PYAIRBYTE, {"published_by": "b"}, "b+ b1 b!", id="an overwrite of PyAirbyte"),
        pytest.param(DEDUP, {}, "a+ a1 a! b+ b1 b!", id="a merge that was made"),
        pytest.param(DEDUP, {"has_pending": True}, "a+ a1 a! b+ b1", id="a merge that was not"),
    ],
)
def test_table_shows_whether_a_killed_sync_had_published_it(
    stream: Mapping[str, Any], facts: Mapping[str, Any], expected: str
) -> None:
    archive = Archive("a+ a1 a! b+ b1", b=stream)

    assert steps(build_plan(archive.history, replace(ICEBERG, **facts), {})) == expected


# What is not there any more


@pytest.mark.parametrize(
    ("archive", "is_complete"),
    [
        pytest.param(Archive("a+ a1 a!"), True, id="from the table's first sync on"),
        pytest.param(Archive("a+ a1 a!", found_empty=False), False, id="from a later sync on"),
        pytest.param(Archive("a+ a1 a! b+ b1 b!", found_empty=False, b=refresh(2)), True, id="from a refresh on"),
        pytest.param(
            Archive("a+ a1 a! b+ b1", found_empty=False, b=refresh(2)), False, id="from a refresh on, unpublished"
        ),
        pytest.param(Archive(""), False, id="no sync"),
    ],
)
def test_an_archive_is_complete_if_nothing_was_before_it(archive: Archive, is_complete: bool) -> None:
    assert build_plan(archive.history, ICEBERG, {}).is_complete == is_complete


@pytest.mark.parametrize(
    ("happened", "streams", "expired", "is_complete"),
    [
        ("a+ a1 a2 a!", {}, [("a", 1)], False),
        ("a+ a1 a! b+ b1 b!", {"b": refresh(2)}, [("a", 1)], True),
        ("a+ a1 a! b+ b1 b!", {"b": refresh(2)}, [("b", 1)], False),
        ("a+ a1 b+ b1 b! a2 a!", {"b": refresh(2)}, [("a", 1)], True),
        ("a+ a1 b+ b1 b! a2 a!", {"b": refresh(2)}, [("a", 2)], False),
    ],
)
def test_an_archive_is_not_complete_if_lines_have_expired_whose_rows_no_refresh_has_replaced(
    happened: str, streams: Mapping[str, Any], expired: Sequence[tuple[str, int]], is_complete: bool
) -> None:
    archive = Archive(happened, **streams)
    for sync, batch in expired:
        archive.expire(sync, batch)

    plan = build_plan(archive.history, ICEBERG, {})

    assert plan.is_complete == is_complete
    assert len(plan.gaps) == (0 if is_complete else 1)


@pytest.mark.parametrize(
    ("happened", "streams", "lost", "known", "is_complete"),
    [
        pytest.param("a+ a1 a! c+ c1 c!", {}, "c", {}, False, id="no refresh"),
        pytest.param("c+ c1 c! b+ b1 b!", {"b": WITHOUT_IDS}, "c", {}, True, id="before an overwrite without ids"),
        pytest.param("c+ c1 c! b+ b1 b!", {"b": refresh(2)}, "c", {}, False, id="of this refresh, perhaps"),
        pytest.param("c+ c1 c! b+ b1 b!", {"b": refresh(2)}, "c", {"catalog": "x", "generation": 1}, True, id="before"),
        pytest.param("c+ c1 b+ b1 b!", {"b": refresh(2)}, "c", {"catalog": "x", "generation": 2}, False, id="of it"),
        pytest.param("b+ b1 b! c+ c1 c!", {"b": refresh(2)}, "c", {"catalog": "x", "generation": 2}, False, id="after"),
        pytest.param("b+ b1 b! c+ c!", {"b": refresh(2)}, "c", {}, False, id="after, perhaps a refresh to nothing"),
    ],
)
def test_sync_that_cannot_run_is_a_gap_unless_a_refresh_has_replaced_its_rows(
    happened: str, streams: Mapping[str, Any], lost: str, known: Mapping[str, Any], is_complete: bool
) -> None:
    archive = Archive(happened, **streams)
    archive.lose(lost, **known)

    gaps = build_plan(archive.history, ICEBERG, {}).gaps

    assert [gap.startswith(f"Cannot replay sync {lost} of ") for gap in gaps] == [True] * (not is_complete)


@pytest.mark.parametrize(("committed", "is_complete"), [(None, True), (2, True), (3, False)])
def test_batches_that_the_journal_lacks_are_a_gap_if_their_number_is_known(
    committed: int | None, is_complete: bool
) -> None:
    archive = Archive("a+ a1 a3 a!")
    archive.syncs["a"].committed_batches = committed

    assert build_plan(archive.history, ICEBERG, {}).is_complete == is_complete


def test_rows_that_a_later_table_had_at_its_first_sync_are_a_gap_even_after_a_refresh() -> None:
    archive = Archive("a+ a1 a! b+ b1 b!", a=refresh(2))
    archive.syncs["b"].entry = structs.replace(archive.syncs["b"].entry, table="another")

    [gap] = build_plan(archive.history, ICEBERG, {}).gaps

    assert gap.startswith("The table contained rows before its first archived sync, b of ")


def test_gaps_name_the_syncs_without_an_archive_whose_rows_no_refresh_has_replaced() -> None:
    archive = Archive("a+ a1 a! b+ b1 b! c+ c1 c2 c!", b=refresh(2))
    for name in "ac":
        stored = archive.syncs[name]
        stored.entry = structs.replace(stored.entry, keeps_lines=False)
        stored.batches = {number: replace(batch, lines=()) for number, batch in stored.batches.items()}

    plan = build_plan(archive.history, ICEBERG, {})

    assert steps(plan) == "b+ b1 b! c+ c1 c2 c!"
    [gap] = plan.gaps
    assert gap.startswith("Sync c of 1970-01-01")
    assert gap.endswith(" wrote 8 rows, but did not archive its records.")


def test_rows_of_a_dropped_table_are_replayed_and_a_note_says_so() -> None:
    archive = Archive("a+ a1 a! b+ b1 b!")
    for name, table in (("a", "one"), ("b", "two")):
        archive.syncs[name].entry = structs.replace(archive.syncs[name].entry, table=table, found_empty=True)

    plan = build_plan(archive.history, ICEBERG, {})

    assert steps(plan) == "a+ a1 a! b+ b1 b!"
    assert plan.is_complete
    assert [note.startswith("Another table had this name before sync b") for note in plan.notes] == [True]


def test_a_catalog_that_is_none_is_an_error_of_the_user_s() -> None:
    archive = Archive("a+")
    archive.syncs["a"].catalog = {"stream": {}}

    with pytest.raises(ConfigError):
        build_plan(archive.history, ICEBERG, {})


@pytest.mark.parametrize(("dedup", "key"), [(False, ()), (True, ("id",))])
def test_a_stream_as_one_that_appends_overwrites_nothing(dedup: bool, key: tuple[str, ...]) -> None:
    plan = build_plan(Archive("a+ a!", a={**DEDUP, **refresh(2)}).history, ICEBERG, {})
    stream: Stream = plan.syncs["a"].stream
    assert stream.overwrites_table

    appended = as_append(stream, dedup=dedup)

    assert (appended.overwrites_table, appended.generation, appended.dedup, appended.primary_key) == (
        False,
        None,
        dedup,
        key,
    )
    assert (appended.id, appended.json_schema) == (stream.id, stream.json_schema)
