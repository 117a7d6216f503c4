"""A round: one table and a row of attempts to sync into it, most of which something happens to.

What an attempt is to do and what happens to it comes from the seed, the round and the attempt's number alone, so that a
round can be played again. What cannot be repeated is how threads take turns.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from integration_tests.chaos.adversary import Adversary, Blow, HostileAws
from integration_tests.chaos.attempt import Attempt, Order, Stage
from integration_tests.chaos.faults import draw
from integration_tests.chaos.oracle import Effect, Oracle
from integration_tests.chaos.reader import Broken, Reader
from integration_tests.chaos.source import Sending, Sent, Source
from integration_tests.chaos.tally import Tally
from integration_tests.conftest import TABLE_KINDS, TableKind
from integration_tests.lake import Lake
from integration_tests.platform import Launch

ICEBERG, HIVE_PARQUET, HIVE_JSONL = TABLE_KINDS


@dataclass(frozen=True)
class Subject:
    """A kind of table, and whether syncs replace what is in it."""

    kind: TableKind
    replaces: bool

    def __str__(self) -> str:
        return f"{self.kind.name} {'overwrite' if self.replaces else 'append'}"


SUBJECTS = (
    Subject(ICEBERG, replaces=False),
    Subject(HIVE_PARQUET, replaces=True),
    Subject(HIVE_JSONL, replaces=False),
    Subject(ICEBERG, replaces=True),
    Subject(HIVE_PARQUET, replaces=False),
    Subject(HIVE_JSONL, replaces=True),
)
"""Whose turn it is: round 1 is about the first, round 2 about the second, and so on, over and over."""

ATTEMPTS = 10
"""Attempts in a round, the last of which nothing happens to."""


class Round:
    """One table, from its first sync to its last. `log` has a line for each attempt."""

    def __init__(self, aws: HostileAws, real: str, launch: Launch, folder: Path, seed: int, number: int) -> None:
        """`real` is the account's own address, for readers."""
        self.subject = SUBJECTS[(number - 1) % len(SUBJECTS)]
        self.tally = Tally(rounds=1)
        self.log: list[str] = []
        self._seed = f"{seed}/{number}"
        self._source = Source.of(self._seed)
        lake = Lake(real)
        self._stage = Stage(lake, self.subject.kind, aws, launch, folder)
        self._reader = Reader(lake)
        self._oracle = Oracle()
        self._sent: dict[Sending, Sent] = {}
        self._to_be_rejected: set[Sending] = set()
        self._without_ids = self.subject.replaces and Random(f"{self._seed}/ids").random() < 0.2
        # What the platform remembers between attempts.
        self._attempts = 0
        self._generation = 1 if self.subject.replaces else 0
        self._replacing = self.subject.replaces
        self._cursor = 0
        self._done = True

    def play(self) -> None:
        """Make all attempts. Raises Broken when a promise was not kept."""
        while self._attempts < ATTEMPTS:
            random = Random(f"{self._seed}/attempt/{self._attempts + 1}")
            happens = self._happening(random)
            self._look_ahead(random)
            happens(random)
        self._judge_rejects()

    # What happens.

    def _happening(self, random: Random) -> Callable[[Random], None]:
        if self._attempts >= ATTEMPTS - 1:
            return self._calm
        share = random.random()
        if share < 0.48:
            return self._killed
        if share < 0.78:
            return self._faulty
        if share < 0.93 and self._attempts < ATTEMPTS - 2:
            return self._overtaken if self.subject.replaces or random.random() < 0.7 else self._side_by_side
        return self._calm

    def _calm(self, random: Random) -> None:
        attempt = self._one(self._order(random, completes=True), Adversary(), "calm")
        if attempt.run.exit_code != 0:
            raise Broken(f"nothing happened to this sync, and it failed\n{attempt.run.report()}")

    def _killed(self, random: Random) -> None:
        blow = _blow(random, signal.SIGKILL)
        attempt = self._one(self._order(random), Adversary(blow), str(blow))
        self.tally.kills["connector"] += attempt.adversary.killed

    def _faulty(self, random: Random) -> None:
        faults = draw(random)
        attempt = self._one(self._order(random), Adversary(faults=faults), "; ".join(map(str, faults)))
        self.tally.faults += attempt.adversary.met

    def _one(self, order: Order, adversary: Adversary, what: str) -> Attempt:
        with self._start(order, adversary) as attempt:
            attempt.feed_all()
            attempt.end()
            self._ended(attempt, what)
        self._oracle.after([attempt.effect()])
        self._look()
        return attempt

    def _side_by_side(self, random: Random) -> None:
        """Two syncs append at once."""
        first = self._order(random, waits=False)
        second = self._order(random, waits=False)
        with self._start(first, Adversary()) as one, self._start(second, Adversary()) as other:
            for attempt in (one, other):
                attempt.feed_all()
            for attempt in (one, other):
                attempt.end()
                self._ended(attempt, "side by side")
        self.tally.overlaps["side by side"] += 1
        self._oracle.after([one.effect(), other.effect()])
        self._look()

    def _overtaken(self, random: Random) -> None:
        """A sync freezes in the middle of something, another one runs, and then the first goes on."""
        blow = _blow(random, signal.SIGSTOP)
        zombie = Adversary(blow)
        zombie.armed.clear()
        with self._start(self._order(random, waits=True, at_least=2), zombie) as old:
            old.feed(1)
            old.wait_for_state()
            zombie.armed.set()
            old.feed_all()
            if not old.wait_for_blow():
                old.end()
                self._ended(old, f"{blow}: not reached")
                self._oracle.after([old.effect()])
                self._look()
                return
            before = old.effect()
            self._remember(old)
            self._look_ahead(random)
            with self._start(self._order(random), Adversary()) as new:
                new.feed_all()
                new.end()
                self._ended(new, "overtakes")
            if new.order.completes and new.run.exit_code != 0:
                raise Broken(f"a sync that overtook a frozen one failed\n{new.run.report()}")
            self._oracle.after([before, new.effect()])
            self._look()
            old.thaw()
            old.feed_all()
            old.end()
            self._ended(old, f"{blow}, thawed")
        self._done = new.run.exit_code == 0
        self.tally.overlaps["overtaken"] += 1
        self._oracle.after(*_afterwards(before, new.effect(), old.effect()))
        self._look()

    # Attempts.

    def _look_ahead(self, random: Random) -> None:
        """Decide, as the platform and its user do, what the next attempt is to do."""
        if self._without_ids:
            self._cursor = 0
            return
        if not self.subject.replaces:
            if self._done and random.random() < 0.1:  # A refresh that retains what is there.
                self._generation, self._cursor = self._generation + 1, 0
            return
        share = random.random()
        if self._attempts == 0:
            return
        if self._done or not self._replacing:
            if share < (0.6 if self._done else 0.3):
                self._generation, self._cursor, self._replacing = self._generation + 1, 0, True
            else:
                self._replacing = False
        elif share < 0.2:  # A refresh that cannot be resumed.
            self._generation, self._cursor = self._generation + 1, 0
        elif share < 0.4:  # The user cancels it.
            self._generation, self._replacing = self._generation + random.randrange(2), False

    def _order(
        self, random: Random, waits: bool | None = None, completes: bool | None = None, at_least: int = 1
    ) -> Order:
        self._attempts += 1
        sizes = [random.randint(1, 20) for _ in range(random.randint(at_least, 3))]
        return Order(
            self._attempts,
            None if self._without_ids else self._generation,
            self._replacing,
            self._source.schema(self._attempts),
            self._source.chunks(self._attempts, self._cursor, sizes),
            random.random() < 0.4 if waits is None else waits,
            random.random() < 0.85 if completes is None else completes,
        )

    def _start(self, order: Order, adversary: Adversary) -> Attempt:
        for chunk in order.chunks:
            self._sent.update({sent.sending: sent for sent in chunk.records})
        return Attempt(self._stage, order, adversary)

    def _ended(self, attempt: Attempt, what: str) -> None:
        run, order = attempt.run, attempt.order
        self.log.append(f"{order.attempt:>3} {order}; {what}: exit {run.exit_code}, {len(run.states)} states")
        self._remember(attempt)
        attempt.judge()
        self.tally.syncs += 1
        self.tally.succeeded += run.exit_code == 0
        self.tally.acknowledged += len(attempt.acknowledged())
        for error in run.errors:
            if error["failure_type"] == "system_error":
                self.tally.ours[f"{error['message']} ({what})"] += 1
        for chunk in order.chunks[: len(run.states)]:
            self._to_be_rejected |= {sent.sending for sent in chunk.records if sent.misfit or sent.row is None}

    def _remember(self, attempt: Attempt) -> None:
        """Keep what the platform keeps: the last state that came back, and whether the sync went well."""
        if (states := attempt.states()) and attempt.order.generation in (None, self._generation):
            self._cursor = max(self._cursor, attempt.order.chunks[len(states) - 1].cursor)
        self._done = attempt.effect().succeeded

    # Judgement.

    def _look(self) -> None:
        seen = self._reader.sendings(self._sent)
        if not self._oracle.see(seen):
            raise Broken(self._oracle.explain(seen))
        self.tally.rows = len(seen)
        self.tally.twice = len(seen) - len({sending.position for sending in seen})

    def _judge_rejects(self) -> None:
        if missing := self._to_be_rejected - self._reader.rejected():
            raise Broken(f"acknowledged, rejected, and not among the rejects: {sorted(map(tuple, missing))}")


def _blow(random: Random, stop: signal.Signals) -> Blow:
    pause = random.choice((0.0, 0.0, random.random() / 20))
    moment = random.choice(("before", "after"))
    if random.random() < 0.7:
        return Blow(stop, random.randint(1, 12), "changes", moment, pause)
    return Blow(stop, random.randint(1, 30), "requests", moment, pause)


def _afterwards(before: Effect, new: Effect, old: Effect) -> list[list[Effect]]:
    """Return what a sync that was overtaken can have done to the table since: `before` is what it had done until then.

    The new sync has taken the table over if it acknowledged anything or succeeded. Then an old one that replaces can do
    nothing more, and what it acknowledges late must be where the new one has found it; an old one that appends goes on.
    """
    if not (new.succeeded or new.acknowledged):
        return [[old], []] if not old.succeeded else [[old]]
    late = old.sent if old.succeeded else old.acknowledged - before.acknowledged
    if not old.replaces:
        # What was acknowledged late may have been there, and been replaced, before.
        required = late - before.sent if new.replaces else late
        return [[replace(old, acknowledged=required, completed=False, succeeded=False)]]
    if new.replaces and (new.generation is None or new.generation != old.generation):
        return [[]]
    return [[replace(new, sent=late, acknowledged=late, completed=False, succeeded=False)]]
