"""An erasure that is killed, beside others that write: what is promised holds once the command has run to its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from destination_datalake.errors import ConnectorError
from destination_datalake.tables.iceberg.erasure.erase import TableErasure
from unit_tests.cloud import ungoverned
from unit_tests.tables.iceberg.erasure.people import COLUMNS, Killed, People, at_calls, ids_of, killed_at, person
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import compacted

pytestmark = pytest.mark.share(1)

_ERASED = (2, 3, 12)
_PLACES = 560
"""More than an erasure of the table below has."""


def settled(lake: Lake) -> People:
    """A table with history, an unfinished overwrite, rows that wait, and files that a compaction has replaced."""
    people = People(lake)
    people.commit([1, 2], [3, 4], [5, 6])
    overwrite = lake.open(generation=2, overwrite=True, columns=COLUMNS)
    lake.commit_rows(overwrite, person(11), person(12))
    return people


@pytest.mark.share(3)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Of connections: nobody closes them.
@pytest.mark.parametrize("place", range(1, _PLACES + 1))
def test_an_erasure_goes_on_where_it_was_killed(lake: Lake, place: int) -> None:
    people = settled(lake)
    other_rows = [
        [row for row in people.rows(branch) if row["user"]["age"] not in _ERASED]
        for branch in ("main", "airbyte_generation_2")
    ]

    with killed_at(lake, place) as reached, suppress(Killed):
        people.erase(*ids_of(*_ERASED))
    if len(reached) < place:
        pytest.skip(f"there are {len(reached)} places")
    report = people.erase(*ids_of(*_ERASED))

    assert report.complete, report
    assert people.traces(*ids_of(*_ERASED)) == {}
    assert [people.rows(branch) for branch in ("main", "airbyte_generation_2")] == other_rows


@pytest.mark.slow
def test_there_are_no_more_places_at_which_it_can_be_killed_than_are_tried(lake: Lake) -> None:
    people = settled(lake)

    with killed_at(lake, _PLACES * 10) as reached:
        people.erase(*ids_of(*_ERASED))

    assert len(reached) <= _PLACES


def _append(people: People) -> None:
    people.commit([2, 7])


def _overwrite(people: People) -> None:
    opened = people.lake.open(generation=3, overwrite=True, columns=COLUMNS)
    people.lake.commit_rows(opened, person(3), person(8))
    opened.publish(no_rewrite)


def _unfinished_overwrite(people: People) -> None:
    opened = people.lake.open(generation=3, overwrite=True, columns=COLUMNS)
    people.lake.commit_rows(opened, person(3), person(8))


def _compaction(people: People) -> None:
    people.commit(*([number] for number in range(20, 26)))
    compacted(people.lake)


def _other_erasure(people: People) -> None:
    People(people.lake).erase(*ids_of(5))


@pytest.mark.parametrize("act", [_append, _overwrite, _unfinished_overwrite, _compaction, _other_erasure])
@pytest.mark.parametrize("at", ["UpdateTable", "first find"])
def test_rows_that_others_commit_while_they_are_erased_are_erased_too(
    lake: Lake, act: Callable[[People], None], at: str
) -> None:
    people = settled(lake)
    acts: list[Callable[[People], None]] = [act]

    def once() -> None:
        if acts:
            acts.pop()(people)

    if at == "UpdateTable":
        lake.at_the_next_update(once)
        report = people.erase(*ids_of(*_ERASED))
    else:
        erasure = people.erasure(*ids_of(*_ERASED))
        for place in erasure.targets:
            place.require()
        once()
        done = erasure.run()
        assert done is not None
        report = done

    assert report.complete, report
    assert people.traces(*ids_of(*_ERASED)) == {}
    expected: dict[Callable[[People], None], list[int]] = {
        _append: [1, 4, 5, 6, 7, 11],  # An append adopts the rows of an overwrite that was not finished.
        _overwrite: [8],
        _compaction: [1, 4, 5, 6, 11, *range(20, 26)],
        _other_erasure: [1, 4, 6],
    }
    assert sorted(row["user"]["age"] for row in people.rows()) == expected.get(act, [1, 4, 5, 6])


def test_an_answer_that_is_lost_after_glue_has_acted_changes_nothing(lake: Lake) -> None:
    people = settled(lake)
    lake.at_the_next_update(lambda: None, response_lost=True)

    report = people.erase(*ids_of(*_ERASED))

    assert report.complete, report
    assert people.traces(*ids_of(*_ERASED)) == {}


def test_a_running_sync_goes_on_and_its_later_rows_are_its_own(lake: Lake) -> None:
    people = settled(lake)
    sync = lake.open(generation=2, columns=COLUMNS)

    people.erase(*ids_of(*_ERASED))
    lake.commit_rows(sync, person(2), person(9))

    assert people.traces(*ids_of(*_ERASED))
    assert people.erase(*ids_of(*_ERASED)).complete
    assert people.traces(*ids_of(*_ERASED)) == {}


def test_another_request_deletes_what_a_killed_one_was_about_to_delete(lake: Lake) -> None:
    people = settled(lake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableErasure, "_finish", _die)
        with pytest.raises(Killed):
            people.erase(*ids_of(*_ERASED))

    report = people.erase(*ids_of(*_ERASED, 5))

    assert report.complete, report
    assert people.traces(*ids_of(*_ERASED, 5)) == {}


def _die(*_: object) -> None:
    raise Killed


def test_two_erasures_of_the_same_people_at_the_same_time_do_no_harm(lake: Lake) -> None:
    people, other_people = settled(lake), People(lake)
    calls = count()

    def at(_number: int, moment: str) -> None:
        if moment == "before" and next(calls) == 40:
            with at_calls(lake, lambda *_: None), suppress(ConnectorError):
                other_people.erase(*ids_of(*_ERASED))

    with at_calls(lake, at):
        report: Any = people.erase(*ids_of(*_ERASED))

    assert report.complete or people.erase(*ids_of(*_ERASED)).complete
    assert people.traces(*ids_of(*_ERASED)) == {}
    assert sorted(row["user"]["age"] for row in people.rows()) == [1, 4, 5, 6]
    assert ungoverned(lake.access).find(lake.name) is not None


def test_table_that_a_replay_creates_before_the_request_is_written_stops_the_erasure(lake: Lake) -> None:
    """The replay has not read the request, and the command has not listed the table."""
    people = settled(lake)
    erasure = people.erasure(*ids_of(2))
    mark = {"airbyte.replay-of": str(lake.name)}
    created: Any = {"Name": "orders__replay", "Parameters": mark, "StorageDescriptor": {"Columns": []}}
    lake.access.client("glue").create_table(DatabaseName=lake.name.database, TableInput=created)

    with pytest.raises(ConnectorError, match=r"A replay created table .*orders__replay while") as raised:
        erasure.run()

    assert raised.value.failure.type == "transient_error"
