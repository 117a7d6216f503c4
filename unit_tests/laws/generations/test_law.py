"""The law: two connections, each in any mode, of lower, equal and higher generations, killed or overtaken at each call.

Every acknowledged row is in the table, unless another connection's overwrite was published in its place; or the last
attempt of its connection has failed. A connection that was refused starts over, and then the table has its rows alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Literal, get_args

import pytest

from unit_tests.cloud import another_client
from unit_tests.examples import DRAW, IS_EXHAUSTIVE, long_examples
from unit_tests.laws.dedup.kills import in_turns
from unit_tests.laws.generations.connections import APPEND, MODES, Connection, Mode, Stage, TableType

Happens = Literal["killed", "overtaken", "both killed", "in turns"]

_FIRST_GENERATION, _GENERATION, _LATER = 1, 5, 9
_SCHEDULES = 6
"""How many schedules of turns there are for each play."""

_streams = count()
_FIRST, _SECOND, _READER = another_client(), another_client(), another_client()


@dataclass(frozen=True)
class Play:
    """Two connections and what happens: one is killed, and the other runs; the other runs in the midst of one; one dies
    with rows acknowledged, and the other is killed; both run at once, in turns, and may be killed. `later`: by how much
    the other's generation is higher.
    """

    table_type: TableType
    first: Mode
    second: Mode
    later: int
    happens: Happens

    def __str__(self) -> str:
        return f"{self.table_type}: {self.first.name}, {self.second.name} ({self.later:+}), {self.happens}"

    def run(self, at: int) -> bool:
        """Play it, with what happens at a call (from 1); False if there were fewer. Fails if the law is broken."""
        with tempfile.TemporaryDirectory() as folder:
            stage = Stage(self.table_type, f"orders_{next(_streams)}", Path(folder), self.happens == "in turns")
            base = Connection(stage, APPEND, _FIRST_GENERATION, _FIRST)
            base.attempt(batches=1)
            first = Connection(stage, self.first, _GENERATION, _FIRST)
            second = Connection(stage, self.second, _GENERATION + self.later, _SECOND)
            match self.happens:
                case "killed":
                    calls = first.attempt(kill=at).calls
                    second.attempt()
                case "overtaken":
                    calls = first.attempt(act=(at, second.attempt)).calls
                case "both killed":
                    first.attempt(batches=1, ends=False)
                    calls = second.attempt(kill=at).calls
                case "in turns":
                    calls = self._in_turns(Random(at), first, second)
            for connection in (first, second):
                if not connection.ended and not connection.refused:
                    connection.attempt()
            for connection in (first, second):
                if not connection.ended:
                    connection.attempt()  # Once more, after the other has had its turn.
            self._judge(stage, base, at)
            for connection in (first, second):
                if connection.refused:
                    self._start_over(stage, connection)
        return calls >= at

    def _in_turns(self, random: Random, first: Connection, second: Connection) -> int:
        kills = [random.choice((None, random.randint(1, 14))) for _ in range(2)]
        in_turns(
            random, (_FIRST, partial(first.attempt, kill=kills[0])), (_SECOND, partial(second.attempt, kill=kills[1]))
        )
        return _SCHEDULES

    def _judge(self, stage: Stage, base: Connection, at: int) -> None:
        ids = stage.ids(base.table, _READER)
        told = [
            (connection.mode.name, connection.generation, connection.acknowledged, connection.ended, connection.refused)
            for connection in stage.connections
        ]
        for connection in stage.connections:
            assert connection.missing(ids) == [], f"{self}, at call {at}: {sorted(ids)} are found of {told}"
            if connection.mode.overwrites and connection.ended:
                old = ids & base.acknowledged.keys()
                assert not old, f"{self}, at call {at}: {sorted(old)} were not overwritten: {told}"

    def _start_over(self, stage: Stage, connection: Connection) -> None:
        connection.start_over(_LATER + stage.now())
        connection.attempt()
        assert not connection.refused, connection.refused
        assert stage.ids(connection.table, _READER) == connection.acknowledged.keys(), self


def plays(table_type: TableType, happens: Happens) -> Iterator[Play]:
    """Yield all of them. Without generations on one side, that of the other makes no difference."""
    for first, second, later in product(MODES[table_type], MODES[table_type], (-1, 0, 1)):
        if not later or (first.has_generations and second.has_generations):
            yield Play(table_type, first, second, later, happens)


_QUICK = {("REST", "overtaken"), ("REST", "in turns"), *product(("ICEBERG", "HIVE"), get_args(Happens)[:3])}
"""What `make test` plays: a catalog that compares little sees how syncs overlap, and any other the rest."""


@pytest.mark.law
@pytest.mark.parametrize(
    ("table_type", "happens"),
    [
        pytest.param(*pair, marks=() if pair in _QUICK else pytest.mark.slow)
        for pair in product(get_args(TableType), get_args(Happens))
    ],
)
@pytest.mark.usefixtures("cloud")
def test_what_two_connections_acknowledge_is_in_the_table_or_their_last_attempt_fails(
    table_type: TableType, happens: Happens
) -> None:
    if IS_EXHAUSTIVE:
        for play in plays(table_type, happens):
            for at in count(1):
                if not play.run(at):
                    break
        return
    random = Random(f"{table_type}, {happens}{DRAW}")
    for play in random.sample([*plays(table_type, happens)], long_examples(2, more=2)):
        play.run(random.randint(1, 14))
