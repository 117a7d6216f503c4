"""The oracle itself: what it lets a reader see, and what it does not."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace

import pytest

from integration_tests.chaos.attempts.source import Sending
from integration_tests.chaos.verdicts.oracle import Effect, Oracle, orders_after_overtaking


def rows(attempt: int, *positions: int) -> frozenset[Sending]:
    return frozenset(Sending(position, attempt) for position in positions)


def appended(sent: Iterable[Sending], acknowledged: Iterable[Sending], succeeded: bool = False) -> Effect:
    return Effect(0, False, frozenset(sent), frozenset(acknowledged), succeeded, succeeded)


def replaced(generation: int, sent: Iterable[Sending], acknowledged: Iterable[Sending] = (), **how: bool) -> Effect:
    completed, succeeded = how.get("completed", False), how.get("succeeded", False)
    return Effect(generation, True, frozenset(sent), frozenset(acknowledged), completed or succeeded, succeeded)


@pytest.mark.parametrize(
    ("seen", "possible"),
    [
        pytest.param(rows(1, 0), True, id="what was acknowledged"),
        pytest.param(rows(1, 0, 1), True, id="and what was sent after it"),
        pytest.param(rows(1, 1), False, id="not what was acknowledged"),
        pytest.param(rows(1, 0, 2), False, id="what was never sent"),
        pytest.param(rows(2, 0), False, id="what another attempt sent"),
    ],
)
def test_an_append_that_dies_leaves_what_it_acknowledged(seen: frozenset[Sending], possible: bool) -> None:
    oracle = Oracle()
    oracle.after([appended(rows(1, 0, 1), rows(1, 0))])

    assert oracle.see(seen) is possible


def test_an_append_that_succeeds_leaves_all_it_sent() -> None:
    oracle = Oracle()
    oracle.after([appended(rows(1, 0, 1), (), succeeded=True)])

    assert not oracle.see(rows(1, 0))
    assert oracle.see(rows(1, 0, 1))


def test_what_a_reader_has_seen_stays_until_it_is_replaced() -> None:
    oracle = Oracle()
    oracle.after([appended(rows(1, 0, 1), rows(1, 0))])
    oracle.keep(rows(1, 0, 1))

    assert not oracle.see(rows(1, 0))
    oracle.after([replaced(2, rows(2, 0), succeeded=True)])
    assert oracle.see(rows(2, 0))


def test_an_overwrite_that_is_not_complete_is_not_seen() -> None:
    oracle = Oracle()
    oracle.after([appended(rows(1, 0), rows(1, 0), succeeded=True), replaced(2, rows(2, 0), rows(2, 0))])

    assert not oracle.see(rows(2, 0))
    assert not oracle.see(rows(1, 0) | rows(2, 0))
    assert oracle.see(rows(1, 0))


def test_an_overwrite_that_dies_at_its_end_is_seen_whole_or_not_at_all() -> None:
    for seen in (rows(1, 0), rows(2, 0, 1)):
        oracle = Oracle()
        oracle.after([appended(rows(1, 0), (), succeeded=True), replaced(2, rows(2, 0, 1), rows(2, 0), completed=True)])
        assert not oracle.see(rows(2, 0))
        assert oracle.see(seen)


def test_an_overwrite_that_is_resumed_keeps_what_was_acknowledged() -> None:
    oracle = Oracle()
    oracle.after([replaced(2, rows(1, 0, 1), rows(1, 0)), replaced(2, rows(2, 1), succeeded=True)])

    assert not oracle.see(rows(2, 1))
    assert oracle.see(rows(1, 0) | rows(2, 1))
    assert oracle.see(rows(1, 0, 1) | rows(2, 1)), "what was sent again may be there twice"


def test_an_overwrite_that_starts_over_keeps_nothing() -> None:
    oracle = Oracle()
    oracle.after([replaced(2, rows(1, 0), rows(1, 0)), replaced(3, rows(2, 0), succeeded=True)])

    assert not oracle.see(rows(1, 0) | rows(2, 0))
    assert oracle.see(rows(2, 0))


def test_what_a_cancelled_overwrite_acknowledged_is_there_after_the_next_append() -> None:
    oracle = Oracle()
    oracle.after([replaced(2, rows(1, 0), rows(1, 0)), appended(rows(2, 1), (), succeeded=True)])

    assert not oracle.see(rows(2, 1))
    assert oracle.see(rows(1, 0) | rows(2, 1))


@pytest.mark.parametrize(
    ("seen", "possible"),
    [
        pytest.param(rows(1, 0), True, id="old partitions"),
        pytest.param(rows(2, 1), True, id="new partitions"),
        pytest.param(rows(1, 0) | rows(2, 1), True, id="old and new partitions"),
        pytest.param(frozenset(), False, id="no partition"),
        pytest.param(rows(1, 2), False, id="rows of neither"),
    ],
)
def test_a_killed_publication_leaves_old_partitions_beside_new_ones(seen: frozenset[Sending], possible: bool) -> None:
    oracle = Oracle(swaps_in_steps=True)
    oracle.after([appended(rows(1, 0, 1), (), succeeded=True), replaced(2, rows(2, 0, 1), completed=True)])

    assert oracle.see(seen) is possible


def test_the_sync_after_a_killed_publication_leaves_all_new_rows_and_no_old_ones() -> None:
    oracle = Oracle(swaps_in_steps=True)
    oracle.after([appended(rows(1, 0, 1), (), succeeded=True), replaced(2, rows(2, 0, 1), completed=True)])
    assert oracle.see(rows(1, 0) | rows(2, 1))
    oracle.keep(rows(1, 0) | rows(2, 1))

    oracle.after([appended(rows(3, 2), (), succeeded=True)])

    assert not oracle.see(rows(2, 1) | rows(3, 2))
    assert not oracle.see(rows(1, 0) | rows(2, 0, 1) | rows(3, 2))
    assert oracle.see(rows(2, 0, 1) | rows(3, 2))


def test_without_partitions_an_overwrite_is_never_seen_in_part() -> None:
    oracle = Oracle()
    oracle.after([appended(rows(1, 0, 1), (), succeeded=True), replaced(2, rows(2, 0, 1), completed=True)])

    assert not oracle.see(rows(1, 0))


REFRESHED = replaced(5, rows(2, 1), rows(2, 1))
"""Not complete, and acknowledged."""


@pytest.mark.parametrize(
    ("rival_effects", "retry", "refused"),
    [
        pytest.param([], replaced(5, rows(9, 9), succeeded=True), False, id="nobody"),
        pytest.param([replaced(6, rows(3, 3), rows(3, 3))], REFRESHED, True, id="a later one that is pending"),
        pytest.param([replaced(6, rows(3, 3), succeeded=True)], REFRESHED, True, id="a later one"),
        pytest.param([replaced(6, rows(3, 3), succeeded=True)], appended(rows(9, 9), ()), False, id="then an append"),
        pytest.param([appended(rows(3, 3), (), succeeded=True)], REFRESHED, True, id="an append"),
        pytest.param([replaced(5, rows(3, 3), succeeded=True)], REFRESHED, False, id="one of the same generation"),
        pytest.param([replaced(4, rows(3, 3))], REFRESHED, False, id="an older one, which is refused itself"),
    ],
)
def test_a_retry_is_refused_if_another_connection_has_taken_its_rows(
    rival_effects: Iterable[Effect], retry: Effect, refused: bool
) -> None:
    oracle = Oracle()
    oracle.after([appended(rows(1, 0), (), succeeded=True)])
    oracle.after([REFRESHED])
    oracle.after(rival_effects)

    assert oracle.refuses(retry) is refused
    with pytest.raises(AssertionError, match="had to be refused") if refused else nullcontext():
        oracle.after([retry])


def test_a_sync_is_refused_because_of_the_unfinished_one_that_it_overtakes() -> None:
    oracle = Oracle()
    oracle.after([replaced(2, rows(1, 0))])
    overtaken = replace(appended(rows(2, 0, 1), rows(2, 0)), generation=1)
    overtaking = replaced(2, rows(3, 0))

    assert not oracle.refuses(overtaking)
    assert oracle.refuses(overtaking, [overtaken]), "the overtaken append has taken the rows of generation 2"


def test_an_older_overwrite_that_succeeds_is_no_possible_world() -> None:
    oracle = Oracle()
    oracle.after([replaced(6, rows(1, 0), succeeded=True)])

    with pytest.raises(AssertionError, match="had to be refused"):
        oracle.after([replaced(5, rows(2, 0), succeeded=True)])


def test_a_killed_overwrite_that_overtook_a_published_one_may_leave_rows_to_resume() -> None:
    oracle = Oracle()
    before = replaced(1, rows(1, 0), rows(1, 0), completed=True)
    old = replaced(1, rows(1, 0), rows(1, 0), succeeded=True)
    killed = replaced(2, rows(2, 0))

    oracle.after([before, killed])
    oracle.after(*orders_after_overtaking(before, killed, old))

    assert not oracle.see(rows(2, 0))
    assert oracle.see(rows(1, 0))
    oracle.after([replaced(2, rows(3, 1), succeeded=True)])
    assert not oracle.see(rows(1, 0) | rows(3, 1))
    assert oracle.see(rows(2, 0) | rows(3, 1))
