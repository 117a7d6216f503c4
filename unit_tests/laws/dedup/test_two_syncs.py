"""Two syncs of one stream at once, each killed or not: no row that was landed is lost, and none is there twice."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from destination_datalake.aws.access import AwsAccess
from destination_datalake.tables.iceberg.commit import TableOperations
from unit_tests.cloud import another_client, ungoverned
from unit_tests.examples import long_examples
from unit_tests.laws.dedup.histories import Draft, History, Kill, Step
from unit_tests.laws.dedup.judges import by_duckdb, by_pyiceberg, versions_of
from unit_tests.laws.dedup.kills import Killed, watched
from unit_tests.laws.dedup.model.versions import Version, latest
from unit_tests.laws.dedup.model.worlds import Sync
from unit_tests.laws.dedup.syncs import RunningSync

_streams = count()
_FIRST, _SECOND, _READER = another_client(), another_client(), another_client()
_HISTORY = History(("k_integer",), ("c_integer",))
_LAST = Step(batches=((Draft(key=4),),))


@dataclass(frozen=True)
class Pair:
    """Two syncs: at the `at`-th call of the first, all of the second happens."""

    first: Step
    second: Step
    at: int


_kills = st.none() | st.builds(Kill, call=st.integers(1, 70), moment=st.sampled_from(["before", "after"]))
_drafts = st.builds(Draft, key=st.sampled_from([0, 2, 3]), cursor=st.integers(0, 3))
_steps = st.builds(
    Step,
    batches=st.lists(st.lists(_drafts, min_size=1, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple),
    dedup=st.sampled_from([True, True, False]),
    merge_on_read=st.booleans(),
    killed=_kills,
)
_pairs = st.builds(Pair, _steps, _steps, st.integers(1, 60))


class Stage:
    """One table, and what was sent to it. Versions are extracted one after the other: none is as late as another."""

    def __init__(self, folder: Path) -> None:
        self.sent: list[Version] = []
        self.landed: set[Version] = set()
        self.perhaps: set[Version] = set()
        self._folder = folder
        self._stream = f"twice_{next(_streams)}"
        self._numbers = count(1)

    def sync(self, step: Step, access: AwsAccess, second: tuple[int, Step] | None = None) -> RunningSync:
        """Run a sync until it ends or is killed; at a call of it, if it comes to that, all of a second one."""
        asked = Sync(1, False, _HISTORY.definition(step))
        sync = RunningSync(_HISTORY, step, asked, next(self._numbers), self._stream, access, self._folder)
        act = None if second is None else (second[0], lambda: self.sync(second[1], _SECOND))
        rows: set[Version] = set()
        try:
            with watched(access, step.killed, act):
                sync.begin()
                for drafts in step.batches:
                    timed = [
                        replace(draft, extracted=len(self.sent) + position) for position, draft in enumerate(drafts)
                    ]
                    batch = [*_HISTORY.versions(step, timed, len(self.sent))]
                    self.sent += [version for version, _ in batch]
                    rows = {version for version, _ in batch}
                    sync.land([line for _, line in batch])
                    self.landed |= rows
                    rows = set()
                sync.end()
        except Killed:
            self.perhaps |= rows
        return sync

    def read(self, sync: RunningSync) -> list[Version]:
        """Return what readers find."""
        table = TableOperations(sync.name, ungoverned(_READER)).load()
        versions = versions_of(by_pyiceberg(table), self.sent)
        assert {*versions_of(by_duckdb(table, _READER), self.sent)} == {*versions}
        return versions


@pytest.mark.slow
@pytest.mark.law
@pytest.mark.usefixtures("cloud")
def test_nothing_that_two_syncs_have_landed_at_once_is_lost() -> None:
    @settings(max_examples=long_examples(200, more=5), suppress_health_check=[HealthCheck.too_slow])
    @given(_pairs)
    def law(pair: Pair) -> None:
        with tempfile.TemporaryDirectory() as folder:
            stage = Stage(Path(folder))

            stage.sync(pair.first, _FIRST, (pair.at, pair.second))
            versions = stage.read(stage.sync(_LAST, _FIRST))

            by = _HISTORY.definition(_LAST)
            assert by is not None
            possible = [{*latest(stage.landed | part, by).values()} for part in _parts(stage.perhaps)]
            assert {*versions} in possible, f"{versions} of {possible}"

    law()


def _parts(versions: set[Version]) -> list[set[Version]]:
    """Return what of two batches of which it is not known may have been landed."""
    parts: list[set[Version]] = [set()]
    for version in versions:
        parts += [part | {version} for part in parts]
    return parts
