"""A connection, as the platform keeps it: its generation, its last state, and what its next sync is to do."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from integration_tests.chaos.attempts.attempt import Attempt, Order
from integration_tests.chaos.attempts.source import Sending, Sent, Source
from integration_tests.chaos.attempts.versions import VersionedSource
from integration_tests.harness.messages import Json


class Connection:
    """Gives out orders. `sent` has every record of them. `cursor` is of the last state that came back.

    With `overwrites` the user has chosen an overwrite: refreshes that are resumed, started over, or cancelled, and
    appends between them. Of the rounds with it, one in five is of a platform that sends no ids.
    Of a `VersionedSource`, syncs are deduplicated.
    `layouts` are options of the table's partitions, of which the user chooses the next one every three attempts.
    """

    def __init__(
        self, seed: str, overwrites: bool, layouts: Sequence[Json] = ({},), source: type[Source] = Source
    ) -> None:
        self.sent: dict[Sending, Sent] = {}
        self.attempts = 0
        self._source = source.from_seed(seed)
        self._layouts = layouts
        self._overwrites = overwrites
        # Deduplication has no overwrite without ids: the platform sends a plain one then.
        self._has_ids = not overwrites or issubclass(source, VersionedSource) or Random(f"{seed}/ids").random() < 0.8
        self._generation = 1 if overwrites else 0
        self._overwriting = overwrites
        self._cursor = 0
        self._done = True
        self._newest = self._generation
        self._refused = False

    @property
    def has_ids(self) -> bool:
        """Whether the platform sends ids."""
        return self._has_ids

    def order(
        self, random: Random, waits: bool | None = None, completes: bool | None = None, at_least: int = 1
    ) -> Order:
        """Return what the next attempt is to do, in `at_least` so many chunks."""
        self.attempts += 1
        sizes = [random.randint(1, 20) for _ in range(random.randint(at_least, 3))]
        chunks = self._source.chunks(self.attempts, self._cursor, sizes)
        for chunk in chunks:
            self.sent.update({sent.sending: sent for sent in chunk.records})
        return Order(
            self.attempts,
            self._generation if self._has_ids else None,
            self._overwriting,
            self._source.schema(self.attempts),
            chunks,
            random.random() < 0.4 if waits is None else waits,
            random.random() < 0.85 if completes is None else completes,
            self._layout(),
            isinstance(self._source, VersionedSource),
        )

    def rivals_order(self, random: Random) -> Order:
        """Return what the next sync of another connection is to do: its generations are about as high as these."""
        order = self.order(random, waits=False)
        overwrites = random.random() < 0.6
        generation = max(self._generation + random.randint(-1, 1), int(overwrites))
        self._newest = max(self._newest, generation)
        return replace(order, generation=generation, overwrites=overwrites, of_rival=True)

    def foreign_rows(self) -> Sequence[Sent]:
        """Return rows of another engine, which are known as what was sent."""
        self.attempts += 1
        [chunk] = self._source.chunks(self.attempts, self._cursor, [5])
        self.sent.update({sent.sending: sent for sent in chunk.records})
        return chunk.records

    def _layout(self) -> Json:
        """Return the options of partitions of this attempt: the user goes from one to the next."""
        return self._layouts[min((self.attempts - 1) // 3, len(self._layouts) - 1)]

    def remember(self, attempt: Attempt) -> None:
        """Keep the last state that has come back of an attempt, whether it has ended well, and whether it was refused.

        What another connection does is none of its business.
        """
        if attempt.order.of_rival:
            return
        self._refused = attempt.is_refused()
        if (states := attempt.states()) and attempt.order.generation in (None, self._generation):
            self._cursor = max(self._cursor, attempt.order.chunks[len(states) - 1].cursor)
        self._done = attempt.effect().succeeded

    def look_ahead(self, random: Random) -> None:
        """Decide, as the platform and its user do, what comes next."""
        share = random.random()
        self._newest = max(self._newest, self._generation)
        if self._refused:
            self._generation, self._cursor, self._overwriting = self._newest + 1, 0, self._overwrites
        elif not self._has_ids:
            self._cursor = 0
        elif not self._overwrites:
            if self._done and share < 0.1:  # A refresh that retains what is there.
                self._generation, self._cursor = self._generation + 1, 0
        elif self.attempts == 0:
            pass
        elif not self._done and self._overwriting:
            if share < 0.2:  # A refresh that cannot be resumed.
                self._generation, self._cursor = self._generation + 1, 0
            elif share < 0.4:  # The user cancels it.
                self._generation, self._overwriting = self._generation + random.randrange(2), False
        elif share < (0.6 if self._done else 0.3):
            self._generation, self._cursor, self._overwriting = self._generation + 1, 0, True
        else:
            self._overwriting = False
