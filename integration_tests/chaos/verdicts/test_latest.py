"""The oracle of deduplicated tables itself: what it lets a reader see, and what it does not."""

from collections.abc import Collection

import pytest

from integration_tests.chaos.attempts.source import Sending, Sent
from integration_tests.chaos.attempts.versions import CURSOR, DELETED_AT
from integration_tests.chaos.verdicts.latest import LatestOracle
from integration_tests.chaos.verdicts.oracle import Effect

GONE = (3, 8)
"""Positions of deletions. Positions that are the same modulo five have the same key, and neighbours the same cursor."""

ATTEMPTS = range(1, 5)


def rows(attempt: int, *positions: int) -> frozenset[Sending]:
    return frozenset(Sending(position, attempt) for position in positions)


def merged(attempt: int, sent: range, acknowledged: Collection[int] = (), succeeded: bool = False) -> Effect:
    return Effect(0, False, rows(attempt, *sent), rows(attempt, *acknowledged), succeeded, succeeded)


def replaced(generation: int, attempt: int, sent: range, **how: bool) -> Effect:
    completed, succeeded = how.get("completed", False), how.get("succeeded", False)
    return Effect(generation, True, rows(attempt, *sent), frozenset(), completed or succeeded, succeeded)


@pytest.fixture
def oracle() -> LatestOracle:
    sent = {}
    for position in range(20):
        for attempt in ATTEMPTS:
            key = {"item": position % 5, "shop": None}
            row = {**key, CURSOR: position // 2, DELETED_AT: "now" if position in GONE else None}
            sending = Sending(position, attempt)
            sent[sending] = Sent(sending, b"", row, misfit=False)
    return LatestOracle(sent)


@pytest.mark.parametrize(
    ("seen", "possible"),
    [
        pytest.param(rows(1, 5, 6, 7, 9), True, id="the latest of each key, without the deleted one"),
        pytest.param(rows(1, 5, 6, 7, 4), False, id="not an older one"),
        pytest.param(rows(1, 5, 6, 7), False, id="none may be missing"),
        pytest.param(rows(1, 5, 6, 7, 9, 4), False, id="none may be there twice"),
        pytest.param(rows(1, 5, 6, 7, 9, 8), False, id="deletions are no rows"),
        pytest.param(rows(1, 10, 6, 7, 9), False, id="nothing that was not sent"),
    ],
)
def test_a_sync_that_succeeds_leaves_the_latest_row_of_each_key(
    oracle: LatestOracle, seen: frozenset[Sending], possible: bool
) -> None:
    oracle.after([merged(1, range(10), succeeded=True)])

    assert oracle.see(seen) is possible


def test_a_sync_that_dies_has_merged_what_was_landed_or_nothing(oracle: LatestOracle) -> None:
    oracle.after([merged(1, range(3), succeeded=True)])
    assert oracle.see(rows(1, 0, 1, 2))
    oracle.keep(rows(1, 0, 1, 2))

    oracle.after([merged(2, range(5, 8), acknowledged=(5, 6))])

    assert oracle.see(rows(1, 0, 1, 2)), "nothing is merged"
    assert oracle.see(rows(2, 5, 6) | rows(1, 2)), "what was acknowledged"
    assert oracle.see(rows(2, 5, 6, 7)), "and what was not"
    assert not oracle.see(rows(2, 5) | rows(1, 1, 2)), "a part of it"


def test_what_is_acknowledged_after_another_sync_has_merged_waits_for_the_next(oracle: LatestOracle) -> None:
    oracle.after([merged(1, range(3), acknowledged=range(1)), merged(2, range(1, 3), succeeded=True)])
    assert oracle.see(rows(1, 0) | rows(2, 1, 2))

    oracle.after([merged(1, range(1, 6), acknowledged=range(1, 6))])

    assert oracle.see(rows(1, 0) | rows(2, 1, 2))
    assert not oracle.see(rows(1, 0) | rows(2, 1))


def test_the_next_sync_merges_what_was_landed(oracle: LatestOracle) -> None:
    oracle.after([merged(1, range(3), acknowledged=range(3))])
    oracle.after([merged(2, range(4, 5), succeeded=True)])

    assert not oracle.see(rows(2, 4))
    assert oracle.see(rows(1, 0, 1, 2) | rows(2, 4))


def test_what_is_sent_again_comes_later_than_what_has_the_same_cursor(oracle: LatestOracle) -> None:
    oracle.after([merged(1, range(2), acknowledged=range(2))])
    oracle.after([merged(2, range(2), succeeded=True)])

    assert not oracle.see(rows(1, 0, 1))
    assert oracle.see(rows(2, 0, 1))


def test_a_deletion_is_forgotten_once_it_is_merged(oracle: LatestOracle) -> None:
    oracle.after([merged(1, range(8, 9), succeeded=True)])
    oracle.after([merged(2, range(4), succeeded=True)])

    assert oracle.see(rows(2, 0, 1, 2)), "position 3 is a deletion of the same key, too"
    oracle.after([merged(3, range(13, 14), succeeded=True)])
    assert not oracle.see(rows(2, 0, 1, 2))
    assert oracle.see(rows(2, 0, 1, 2) | rows(3, 13))


def test_an_overwrite_that_dies_at_its_end_is_seen_whole_or_not_at_all(oracle: LatestOracle) -> None:
    oracle.after([merged(1, range(3), succeeded=True)])
    assert oracle.see(rows(1, 0, 1, 2))
    oracle.keep(rows(1, 0, 1, 2))

    oracle.after([replaced(2, 2, range(6), completed=True)])

    assert not oracle.see(rows(2, 5, 1))
    assert oracle.see(rows(1, 0, 1, 2))
    oracle.keep(rows(1, 0, 1, 2))
    assert oracle.see(rows(2, 5, 1, 2, 4))
