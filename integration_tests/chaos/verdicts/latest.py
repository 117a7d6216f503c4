"""What a table may hold whose syncs are deduplicated: of each key one row, and none that is older than it must be.

The promises of `oracle`, with other words for what is required of a table's content:

- Of each key there is one row at most, and it is a version that was sent.
- Of each key that a version was acknowledged of there is that version, or one that is later. It may be missing if a
  deletion that is later was sent.
- A deletion is forgotten once it is merged: versions that are sent again after it may be there, whatever their cursor.
- What a sync has landed is seen when it, or a later one, has merged it: until then readers see what they saw before.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from integration_tests.chaos.attempts.source import Sending, Sent
from integration_tests.chaos.attempts.versions import CURSOR, DELETED_AT, KEY
from integration_tests.chaos.verdicts.oracle import NOTHING, Content, Effect, Oracle

Key = tuple[object, ...]


class LatestOracle(Oracle):
    """The worlds that are possible. `sent` has every record that was sent until now."""

    def __init__(self, sent: Mapping[Sending, Sent]) -> None:
        super().__init__()
        self._sent = sent
        self._seen: frozenset[Sending] = NOTHING
        self._is_merged = True
        self._in_turn = True

    def after(self, *orders: Iterable[Effect]) -> None:
        """Let these effects have happened; in several orders if theirs is unknown."""
        told = [[*order] for order in orders]
        super().after(*told)
        # Whoever ends well has merged all that was landed before it ended.
        self._is_merged = all(order and order[-1].succeeded for order in told)
        self._in_turn = self._in_turn and all(len(order) == 1 for order in told)

    def see(self, seen: Collection[Sending]) -> bool:
        """Rule out the worlds in which a reader could not see this. False, and nothing is ruled out, if that is all."""
        if not self._is_merged and frozenset(seen) == self._seen:
            return True
        remaining = {world for world in self.worlds if not self.violations(world.published, seen)}
        self.worlds = remaining or self.worlds
        if remaining:
            self._seen = frozenset(seen)
        return bool(remaining)

    def keep(self, seen: Collection[Sending]) -> None:
        """Require that what a reader saw stays, or gives way to what is later."""
        self.worlds = {
            world
            if self.violations(world.published, seen)
            else replace(world, published=world.published.plus(seen, NOTHING))
            for world in self.worlds
        }

    def violations(self, content: Content, seen: Collection[Sending]) -> list[str]:
        """Return what is wrong with rows that a reader saw, if this content is what has been merged."""
        rows, required, allowed = map(self._by_key, (seen, content.required, content.allowed))
        problems = []
        for key in rows.keys() | required.keys():
            versions = rows.get(key, [])
            if len(versions) > 1:
                problems.append(f"{key} is there {len(versions)} times: {_names(versions)}")
            elif versions and versions[0] not in content.allowed:
                problems.append(f"{key} is {_names(versions)}, which is not of this content")
            elif versions and self._deletes(versions[0]):
                problems.append(f"{key} is a deletion: {_names(versions)}")
            elif versions and (later := self._missing(versions[0], required.get(key, []), allowed.get(key, []))):
                problems.append(f"{key} is {_names(versions)}, and was acknowledged later as {_names(later)}")
            elif not versions and (lost := self._lost(required.get(key, []), allowed.get(key, []))):
                problems.append(f"{key} is missing, and was acknowledged as {_names(lost)}")
        return problems

    def explain(self, seen: Collection[Sending]) -> str:
        """Say what is wrong with what a reader saw, held against the likeliest world."""
        wrong = min((self.violations(world.published, seen) for world in self.worlds), key=len)
        worlds = f"{len(self.worlds)} possible worlds"
        return f"{len(seen)} rows are seen; by (position, attempt): {'; '.join(wrong)} ({worlds})"

    def _missing(self, row: Sending, required: Iterable[Sending], allowed: Collection[Sending]) -> list[Sending]:
        """Return what should be there in place of a row: what is later, unless a later deletion came before the row."""
        return [
            version
            for version in required
            if self._age(version) > self._age(row)
            and not any(
                self._deletes(candidate)
                and self._age(candidate) >= self._age(version)
                and self._came_before(candidate, row)
                for candidate in allowed
            )
        ]

    def _lost(self, required: Iterable[Sending], allowed: Collection[Sending]) -> list[Sending]:
        """Return what should be there and is not: what no later deletion has removed."""
        deletions = [sending for sending in allowed if self._deletes(sending)]
        return [
            version
            for version in required
            if not self._deletes(version)
            and not any(self._age(deletion) >= self._age(version) for deletion in deletions)
        ]

    def _came_before(self, deletion: Sending, row: Sending) -> bool:
        return deletion.attempt < row.attempt if self._in_turn else deletion.attempt != row.attempt

    def _age(self, sending: Sending) -> tuple[object, ...]:
        """Return what the later one of two versions has more of. Of syncs at the same time, either may come later."""
        arrival = (sending.attempt, sending.position) if self._in_turn else ()
        return self._value(sending, CURSOR), *arrival

    def _deletes(self, sending: Sending) -> bool:
        return self._value(sending, DELETED_AT) is not None

    def _by_key(self, sendings: Iterable[Sending]) -> Mapping[Key, list[Sending]]:
        by_key = defaultdict[Key, list[Sending]](list)
        for sending in sendings:
            by_key[tuple(self._value(sending, part) for part in KEY)].append(sending)
        return by_key

    def _value(self, sending: Sending, name: str) -> object:
        row = self._sent[sending].row
        assert row is not None
        return row[name]


def _names(sendings: Iterable[Sending]) -> str:
    return ", ".join(str(tuple(sending)) for sending in sorted(sendings))
