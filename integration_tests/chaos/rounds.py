"""A round: one table and a row of attempts to sync into it, most of which something happens to.

What an attempt is to do and what happens to it comes from the seed, the round and the attempt's number alone, so that a
round can be played again. What cannot be repeated is how threads take turns.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Literal

from integration_tests.archive import archived
from integration_tests.chaos.attempts.attempt import Attempt, Order, Stage
from integration_tests.chaos.attempts.connection import Connection
from integration_tests.chaos.attempts.source import STREAM, Sending
from integration_tests.chaos.aws.adversary import Adversary, Blow, kill_spark
from integration_tests.chaos.aws.faults import draw
from integration_tests.chaos.foreign import Foreigner
from integration_tests.chaos.subjects import Subject, swaps_in_steps
from integration_tests.chaos.verdicts.latest import LatestOracle
from integration_tests.chaos.verdicts.oracle import Oracle, orders_after_overtaking
from integration_tests.chaos.verdicts.reader import Broken
from integration_tests.chaos.verdicts.spark import sendings_by_spark
from integration_tests.chaos.verdicts.tally import Tally
from integration_tests.harness.runs.warm import WarmLaunch

if TYPE_CHECKING:
    from pyspark import SparkContext

ATTEMPTS = 10
"""Attempts in a round; nothing happens to the last one."""


class Round:
    """One table, from its first sync to its last. `log` has two lines for each attempt."""

    def __init__(
        self,
        stage: Stage,
        subject: Subject,
        seed: int,
        number: int,
        attempts: int,
    ) -> None:
        self.subject = subject
        self.tally = Tally(rounds=1)
        self.log: list[str] = []
        self._seed = f"{seed}/{number}"
        self._last = attempts
        self._stage = stage
        self._reader = subject.reader(stage.lake)
        self._archives = Random(f"{self._seed}/archive").random() < 0.5
        options = {**self.subject.options, "raw_archive": {"enabled": self._archives}}
        layouts = [{**options, **layout} for layout in self.subject.layouts(Random(f"{self._seed}/layouts"))]
        self._connection = Connection(self._seed, self.subject.overwrites, layouts, self.subject.source)
        self._oracle = (
            LatestOracle(self._connection.sent)
            if self.subject.deletes
            else Oracle(swaps_in_steps=any(map(swaps_in_steps, layouts)))
        )
        self._foreign = Foreigner(
            stage.lake, self.subject, self._connection, self._oracle, self._reader, self.tally, self.log
        )
        self._to_be_rejected: set[Sending] = set()
        self._acknowledged = Counter[bytes]()

    def play(self) -> None:
        """Make all attempts. Raises Broken when a promise was not kept."""
        while (made := self._connection.attempts) < self._last:
            random = Random(f"{self._seed}/attempt/{made + 1}")
            happens = self._happening(random, remaining=self._last - made)
            self._connection.look_ahead(random)
            self._foreign.act(random)
            happens(random)
        self._foreign.judge()
        if missing := self._to_be_rejected - self._reader.rejected():
            raise Broken(f"acknowledged, rejected, and not among the rejects: {sorted(map(tuple, missing))}")
        if self._archives and (lost := self._acknowledged - Counter(archived.lines(self._stage.lake, STREAM))):
            raise Broken(f"acknowledged, and not in the archive: {lost.total()} lines")

    def confirm(self, spark: "SparkContext") -> None:
        """Let Spark read what is left of a table that is deduplicated by rewriting files. Raises Broken."""
        if self.subject.deletes == "copy_on_write":
            actual, expected = sendings_by_spark(spark, self._stage.lake), sorted(self._look())
            if actual != expected:
                raise Broken(f"Spark finds {actual}, others {expected}")

    # What happens.

    def _happening(self, random: Random, remaining: int) -> Callable[[Random], None]:
        share = random.random()
        if self.subject.deletes and share < 0.8:
            share *= 0.6  # Merges are killed more often than anything else.
        if remaining == 1 or share >= 0.94:
            return self._calm
        if share < 0.48:
            return self._killed_at_the_end if self.subject.deletes and random.random() < 0.7 else self._killed
        if share < 0.76:
            return self._faulty
        if share < 0.78:
            return self._full_disk
        if share < 0.80:
            return self._robbed
        if remaining == 2:
            return self._calm
        if share >= 0.88 and self._connection.has_ids:
            return self._rivalled
        return self._overtaken if self.subject.overwrites or random.random() < 0.7 else self._side_by_side

    def _calm(self, random: Random) -> None:
        """Nothing happens to a sync, except that a reader polls the table while it runs."""
        with self._begun(self._connection.order(random, completes=True), Adversary(), "calm") as attempt:
            attempt.feed(1)
            if attempt.order.waits:
                attempt.wait_for_state()
                self._oracle.after([attempt.effect()])
                self._look()
            attempt.feed_all()
            self._end(attempt)
        if attempt.run.exit_code != 0 and not (attempt.is_refused() and self._oracle.refuses(attempt.effect())):
            raise Broken(f"nothing happened to this sync, and it failed\n{attempt.run.report()}")
        self._oracle.after([attempt.effect()])
        self._settle()

    def _killed(self, random: Random) -> None:
        blow = _blow(random, "kill")
        attempt = self._run_attempt(self._connection.order(random), Adversary(blow), str(blow))
        self._count_kill(attempt)

    def _killed_at_the_end(self, random: Random) -> None:
        """Killed once all has been acknowledged: while what was landed is merged and published."""
        blow = _blow(random, "kill")
        adversary = Adversary(blow, armed=False)
        order = self._connection.order(random, waits=False, completes=True)
        with self._begun(order, adversary, f"{blow}, after its last state") as attempt:
            if attempt.land_all():
                adversary.armed.set()
            attempt.feed_all()
            self._end(attempt)
        self._oracle.after([attempt.effect()])
        self._settle()
        self._count_kill(attempt)

    def _faulty(self, random: Random) -> None:
        faults = draw(random)
        attempt = self._run_attempt(
            self._connection.order(random), Adversary(faults=faults), "; ".join(map(str, faults))
        )
        self.tally.faults += attempt.adversary.met

    def _full_disk(self, random: Random) -> None:
        limit = random.randrange(200, 8000)
        launch = self._stage.launch
        assert isinstance(launch, WarmLaunch)
        stage = replace(self._stage, launch=launch.with_files_of(limit))
        attempt = self._run_attempt(self._connection.order(random), Adversary(), f"no file beyond {limit} bytes", stage)
        self.tally.faults["full disk"] += attempt.run.exit_code != 0

    def _robbed(self, random: Random) -> None:
        """A sync with a Spark of its own loses the JVM, or one of that one's workers."""
        victim: Literal["JVM", "Python worker"] = "JVM" if random.random() < 0.5 else "Python worker"
        # There are workers once something is uploaded.
        blow = Blow("kill", random.randint(1, 6), "uploads", "before" if random.random() < 0.5 else "after")
        adversary = Adversary(blow, partial(kill_spark, victim=victim))
        stage = replace(self._stage, launch=self._stage.cold)
        self._run_attempt(self._connection.order(random), adversary, f"{victim} {adversary.blow}", stage)
        self.tally.kills[victim] += adversary.killed

    def _run_attempt(self, order: Order, adversary: Adversary, description: str, stage: Stage | None = None) -> Attempt:
        with self._begun(order, adversary, description, stage) as attempt:
            attempt.feed_all()
            self._end(attempt)
        self._oracle.after([attempt.effect()])
        self._settle()
        return attempt

    def _side_by_side(self, random: Random) -> None:
        """Two syncs append at once."""
        orders = [self._connection.order(random, waits=False) for _ in range(2)]
        first, second = [self._begun(order, Adversary(), "side by side") for order in orders]
        with first, second:
            for attempt in (first, second):
                attempt.feed_all()
            for attempt in (first, second):
                self._end(attempt)
        self.tally.overlaps["side by side"] += 1
        self._oracle.after([first.effect(), second.effect()])
        self._settle()

    def _rivalled(self, random: Random) -> None:
        """Another connection writes to the table, between the syncs of this one."""
        blow = _blow(random, "kill") if random.random() < 0.4 else None
        adversary = Adversary(blow)
        with self._begun(self._connection.rivals_order(random), adversary, str(blow or "calm")) as attempt:
            attempt.feed_all()
            self._end(attempt)
        self.tally.overlaps["another connection"] += 1
        self.tally.overlaps["refused"] += attempt.is_refused()
        self._oracle.after([attempt.effect()])
        self._settle()
        self._count_kill(attempt)

    def _overtaken(self, random: Random) -> None:
        """A sync is cut off from AWS in the middle of something, another one runs, and then the first goes on.

        The first has acknowledged something before: otherwise it could begin with its table after the second, and would
        be the newer one.
        """
        zombie = Adversary(_blow(random, "cut off"), armed=False)
        order = self._connection.order(random, waits=True, at_least=2)
        # It may write several files at a time, of merges or for a wider column: its tasks would take all there is of a
        # shared Spark, and the other sync would wait for them.
        stage = replace(self._stage, launch=self._stage.cold)
        with self._begun(order, zombie, f"{zombie.blow}, to be overtaken", stage) as old:
            old.feed(1)
            old.wait_for_state()
            zombie.armed.set()
            old.feed_all()
            if old.wait_for_blow():
                self._overtake(old, random)
            else:
                self._end(old)
                self._oracle.after([old.effect()])
        self._settle()

    def _overtake(self, old: Attempt, random: Random) -> None:
        self.tally.overlaps["overtaken"] += 1
        before = old.effect()
        self._connection.remember(old)
        self._connection.look_ahead(random)
        adversary = Adversary(_blow(random, "kill")) if random.random() < 0.3 else Adversary()
        with self._begun(self._connection.order(random), adversary, f"overtakes; {adversary.blow or 'calm'}") as new:
            new.feed_all()
            self._end(new)
        self._count_kill(new)
        failed = new.run.exit_code != 0 and not (new.is_refused() and self._oracle.refuses(new.effect(), [before]))
        if new.order.completes and not adversary.killed and failed:
            raise Broken(f"a sync that overtook another one failed\n{new.run.report()}")
        self._oracle.after([before, new.effect()])
        self._look()
        old.adversary.restored.set()
        old.feed_all()
        self._end(old)
        self._connection.remember(new)
        self._oracle.after(*orders_after_overtaking(before, new.effect(), old.effect()))

    # Attempts.

    def _count_kill(self, attempt: Attempt) -> None:
        if attempt.adversary.killed:
            is_landed = self.subject.deletes and len(attempt.run.states) == len(attempt.order.chunks)
            self.tally.kills["connector, merging" if is_landed else "connector"] += 1

    def _begun(self, order: Order, adversary: Adversary, description: str, stage: Stage | None = None) -> Attempt:
        self.log.append(f"{order.attempt:>3} {order}; {description}")
        return Attempt(stage or self._stage, order, adversary)

    def _end(self, attempt: Attempt) -> None:
        run = attempt.end()
        self.log.append(f"{attempt.order.attempt:>3} exit {run.exit_code}, {len(run.states)} states")
        self._connection.remember(attempt)
        attempt.judge()
        self.tally.syncs += 1
        self.tally.succeeded += run.exit_code == 0
        self.tally.acknowledged += len(attempt.acknowledged())
        self.tally.ours.update(error["message"] for error in run.errors if error["failure_type"] == "system_error")
        for chunk in attempt.order.chunks[: len(run.states)]:
            self._to_be_rejected |= {sent.sending for sent in chunk.records if sent.misfit or sent.row is None}
            self._acknowledged.update(sent.line + b"\n" for sent in chunk.records)

    # Judgement.

    def _look(self) -> frozenset[Sending]:
        seen = self._reader.sendings(self._connection.sent)
        if not self._oracle.see(seen):
            raise Broken(self._oracle.explain(seen))
        return seen

    def _settle(self) -> None:
        """Look, while no sync is running."""
        seen = self._look()
        self._oracle.keep(seen)
        self.tally.twice = len(seen) - len({sending.position for sending in seen})


def _blow(random: Random, deed: Literal["kill", "cut off"]) -> Blow:
    pause = random.choice((0.0, 0.0, random.random() / 20))
    moment: Literal["before", "after"] = "before" if random.random() < 0.5 else "after"
    if random.random() < 0.7:
        return Blow(deed, random.randint(1, 9), "changes", moment, pause)
    return Blow(deed, random.randint(1, 22), "requests", moment, pause)
