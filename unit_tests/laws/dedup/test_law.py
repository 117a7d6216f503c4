"""The law: whatever syncs are asked for, and wherever they are killed, readers find what the model has."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Hashable
from contextlib import nullcontext
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis.strategies import SearchStrategy
from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.tables.iceberg.commit import TableOperations
from unit_tests.cloud import another_client, ungoverned
from unit_tests.examples import IS_EXHAUSTIVE, long_examples
from unit_tests.laws.dedup.extension.judge import Extension, extension
from unit_tests.laws.dedup.foreign import act
from unit_tests.laws.dedup.histories import (
    Foreign,
    History,
    Step,
    histories,
    partitioned_histories,
    shared_histories,
)
from unit_tests.laws.dedup.judges import by_duckdb, by_pyiceberg, versions_of
from unit_tests.laws.dedup.kills import Killed, watched
from unit_tests.laws.dedup.model.versions import Definition, Version
from unit_tests.laws.dedup.model.worlds import Sync, Worlds
from unit_tests.laws.dedup.syncs import RunningSync, maintain

_streams = count()
_CONNECTOR, _READER = another_client(), another_client()
"""Kills concern the connector's clients alone."""


class Play:
    """One history, played and judged after every sync."""

    def __init__(self, history: History, folder: Path, extension: Extension | None = None) -> None:
        self._history = history
        self._extension = extension
        self._folder = folder
        self._stream = f"orders_{next(_streams)}"
        self._worlds = Worlds()
        self._sent: list[Version] = []
        self._generation, self._overwrites = 1, False

    def sync(self, number: int, step: Step) -> None:
        """Run a sync, until it ends or is killed."""
        if step.asks == "refresh":
            self._generation += 1
        self._overwrites = step.asks == "refresh" or (step.asks == "resume" and self._overwrites)
        asked = Sync(self._generation, self._overwrites, self._history.definition(step))
        sync = RunningSync(self._history, step, asked, number, self._stream, _CONNECTOR, self._folder)
        worlds, operation = self._worlds, "begin"
        try:
            with watched(_CONNECTOR, step.killed):
                sync.begin()
                worlds.begin(asked)
                for drafts in step.batches:
                    operation = "land"
                    batch = [*self._history.versions(step, drafts, len(self._sent))]
                    self._sent += [version for version, _ in batch]
                    rows = frozenset(version for version, _ in batch)
                    sync.land([line for _, line in batch])
                    worlds.land(asked, rows)
                    if step.eager:
                        operation = "merge"
                        sync.merge()
                        worlds.merge(asked)
                operation = "end"
                sync.end()
                worlds.end(asked)
        except Killed:
            match operation:
                case "begin":
                    worlds.begin(asked, killed=True)
                case "land":
                    worlds.land(asked, rows, killed=True)
                case "merge":
                    worlds.merge(asked, killed=True)
                case _:
                    worlds.end(asked, killed=True)
            note(f"sync {number} was killed at {operation}")
        self._judge(sync, days=9 * number if step.maintained else 0)
        for foreign in step.foreign:
            self._share(sync, foreign)

    def main(self, by: Definition) -> dict[tuple[Hashable, ...], Version]:
        """Return by their keys the rows that readers find, of syncs none of which was killed."""
        [world] = self._worlds.possible
        return {by.key_of(version): version for version in world.main}

    def _share(self, sync: RunningSync, foreign: Foreign) -> None:
        try:
            table = TableOperations(sync.name, ungoverned(_READER)).load()
        except NoSuchTableError:
            return  # The sync that would have made it was killed before.
        if table.current_snapshot() is None:
            return
        act(foreign, table, self._sent)
        versions = versions_of(by_pyiceberg(TableOperations(sync.name, ungoverned(_READER)).load()), self._sent)
        self._worlds.share(versions)
        note(f"{foreign.does}: {sorted(versions, key=repr)}")

    def _judge(self, sync: RunningSync, days: int) -> None:
        try:
            table = TableOperations(sync.name, ungoverned(_READER)).load()
        except NoSuchTableError:
            assert self._worlds.see(()), "there is no table"
            return
        if days:
            maintain(sync.name, _READER, days)
            table.refresh()
        readers = [by_pyiceberg(table), by_duckdb(table, _READER)]
        if self._extension is not None:
            readers.append([*self._extension.rows(table, _READER)])
        for rows in readers:
            versions = versions_of(rows, self._sent)
            assert self._worlds.see(versions), (
                f"{sorted(versions, key=repr)} of {[w.main for w in self._worlds.possible]}"
            )


def holds(drawn: SearchStrategy[History], examples: int, judge: Extension | None = None) -> None:
    """Play histories, so many, and judge each."""

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(drawn)
    def law(history: History) -> None:
        with tempfile.TemporaryDirectory() as folder:
            play = Play(history, Path(folder), judge)
            for number, step in enumerate(history.steps, start=1):
                play.sync(number, step)

    law()


@pytest.mark.law
@pytest.mark.usefixtures("cloud")
def test_a_table_has_the_rows_that_a_dict_has() -> None:
    with extension() if IS_EXHAUSTIVE else nullcontext() as judge:
        holds(histories(steps=4), long_examples(300, more=7), judge)


@pytest.mark.law
@pytest.mark.usefixtures("cloud")
def test_a_table_that_others_write_to_and_roll_back_has_the_rows_that_a_dict_has() -> None:
    holds(shared_histories(steps=4), long_examples(200, more=5))


_FIGURES = re.compile(r"merged [\d,]+ rows? by .*: (\d+) inserted, (\d+) replaced, (\d+) deleted")


@pytest.mark.law
@pytest.mark.usefixtures("cloud")
def test_rows_are_found_and_counted_whatever_partitions_the_table_had_when_they_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    @settings(max_examples=long_examples(100, more=6), suppress_health_check=[HealthCheck.too_slow])
    @given(partitioned_histories())
    def law(history: History) -> None:
        with tempfile.TemporaryDirectory() as folder:
            play = Play(history, Path(folder))
            for number, step in enumerate(history.steps, start=1):
                by = history.definition(step)
                assert by is not None
                before = play.main(by)
                caplog.clear()
                play.sync(number, step)
                after = play.main(by)
                [figures] = filter(None, map(_FIGURES.search, caplog.messages))
                inserted, replaced, deleted = map(int, figures.groups())
                assert inserted == len(after.keys() - before.keys())
                assert replaced == sum(before[key] != after[key] for key in before.keys() & after.keys())
                assert deleted == len(before.keys() - after.keys())

    law()
