"""Repeated attempts: how many, how long between them, and what ends them."""

from __future__ import annotations

import pytest

from destination_datalake.aws.objects import retry_on, retry_until_done

ATTEMPTS = 8


class Conflict(Exception):
    """Another writer has changed what the attempt had read."""


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that would have been slept."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


class Conflicting:
    """Attempts that lose against another writer so many times."""

    def __init__(self, conflicts: int) -> None:
        self._conflicts = conflicts
        self.made = 0

    def raising(self) -> str:
        self.made += 1
        if self.made <= self._conflicts:
            raise Conflict(self.made)
        return "stored"

    def answering(self) -> bool:
        self.made += 1
        return self.made > self._conflicts


@pytest.mark.parametrize("conflicts", [0, 1, ATTEMPTS - 1])
def test_an_attempt_is_made_again_after_each_conflict(conflicts: int) -> None:
    raising, answering = Conflicting(conflicts), Conflicting(conflicts)

    assert retry_on(Conflict, raising.raising) == "stored"
    assert retry_until_done(answering.answering)
    assert raising.made == answering.made == conflicts + 1


def test_the_last_conflict_is_raised_when_attempts_are_used_up() -> None:
    attempts = Conflicting(100)

    with pytest.raises(Conflict, match=f"^{ATTEMPTS}$"):
        retry_on(Conflict, attempts.raising)

    assert attempts.made == ATTEMPTS


def test_false_is_returned_when_attempts_are_used_up() -> None:
    attempts = Conflicting(100)

    assert not retry_until_done(attempts.answering)
    assert attempts.made == ATTEMPTS


def test_any_other_error_is_raised_at_once() -> None:
    attempts = Conflicting(100)

    with pytest.raises(Conflict, match=r"^1$"):
        retry_on(KeyError, attempts.raising)
    with pytest.raises(Conflict, match=r"^2$"):
        retry_until_done(lambda: attempts.raising() == "stored")


def test_pauses_double_and_have_jitter(pauses: list[float]) -> None:
    schedules: list[list[float]] = []
    for _ in range(20):
        pauses.clear()
        retry_until_done(lambda: False)
        schedules.append([*pauses])

    assert all(len(schedule) == ATTEMPTS - 1 for schedule in schedules)
    for number, jittered in enumerate(zip(*schedules, strict=True)):
        assert all(0.1 * 2**number <= pause <= 0.2 * 2**number for pause in jittered)
        assert len(set(jittered)) > 1
