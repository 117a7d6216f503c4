"""What a table may have after syncs, some of which were killed: every possibility, until a reader rules it out.

A sync that deduplicates lands its rows where no reader sees them, and merges them when its stream ends. Rows that were
landed and not merged are merged by the next sync that is not killed, whatever its mode.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from unit_tests.laws.dedup.model.versions import Definition, Rows, Version, deduplicated, merged

NOTHING: Rows = frozenset()


class Conflict(Exception):
    """The table's rows are unique by another key."""


@dataclass(frozen=True)
class Sync:
    """How a sync writes. `by` None: it does not deduplicate. An overwrite replaces rows of lower generations."""

    generation: int
    overwrites: bool
    by: Definition | None


class Outcome(NamedTuple):
    """The tables that an operation may lead to, and those that it may leave when it is killed midway."""

    after: set[World]
    between: frozenset[World] = frozenset()


@dataclass(frozen=True)
class World:
    """A table. `main` is what readers find; it is unique by the key of `by`, or was appended to if that is None.

    `pending` are rows that were landed, by the definition that they are to be merged by, the older first.
    `unpublished` are rows of an overwrite of `generation`. `lowest` is the lowest generation in main.
    """

    main: Rows = NOTHING
    by: Definition | None = None
    lowest: int | None = None
    pending: tuple[tuple[Definition, Rows], ...] = ()
    generation: int | None = None
    unpublished: Rows = NOTHING

    def replaced_by(self, sync: Sync) -> bool:
        """Whether the sync's rows are not published before its end, and then take the place of all others."""
        return sync.overwrites and (self.lowest is None or self.lowest < sync.generation)

    def begun(self, sync: Sync) -> World:
        """Return the table once a sync has begun. Raises Conflict."""
        if self.replaced_by(sync):
            return replace(
                self,
                generation=sync.generation,
                unpublished=self.unpublished if self.generation == sync.generation else NOTHING,
            )
        lowest = self.lowest
        if lowest is not None or not self.main:
            known = (lowest, sync.generation, self.generation)
            lowest = min(each for each in known if each is not None)
        world, adopted = replace(self, lowest=lowest, generation=None, unpublished=NOTHING), self.unpublished
        if sync.by is None:
            # As rows that were appended, after all that were landed before.
            settled = world.settled() if adopted or not world.pending else world
            return replace(settled, main=settled.main | adopted, by=settled.by if settled.pending else None)
        keys = {by.key for by in (self.by, *(by for by, _ in self.pending)) if by is not None}
        if keys - {sync.by.key}:
            raise Conflict
        return world._with_pending(sync.by, adopted)

    def landed(self, sync: Sync, rows: Rows) -> Outcome:
        """Return the table after a batch was committed."""
        if self.replaced_by(sync):
            return Outcome({replace(self, unpublished=self.unpublished | rows)})
        merges = [*self._settling()]
        if sync.by is None:
            settled = merges[-1] if merges else self
            return Outcome({replace(settled, main=settled.main | rows, by=None)}, frozenset(merges))
        # Rows of another cursor are merged before the sync's own; whether now or at its end shows in nothing else.
        is_other = any(by != sync.by for by, _ in self.pending)
        begun = [self, *merges] if is_other else [self]
        return Outcome({world._with_pending(sync.by, rows) for world in begun}, frozenset(begun))

    def ended(self, sync: Sync) -> Outcome:
        """Return the table after the sync has published what it has landed."""
        if self.replaced_by(sync):
            rows = self.unpublished if sync.by is None else deduplicated(self.unpublished, sync.by)
            return Outcome({World(rows, sync.by, sync.generation)})
        merges = [*self._settling()]
        return Outcome({merges[-1] if merges else self}, frozenset(merges))

    def settled(self) -> World:
        """Return the table with all that is pending merged."""
        *_, last = (self, *self._settling())
        return last

    def _settling(self) -> Iterator[World]:
        world = self
        while world.pending:
            (by, rows), *others = world.pending
            stored = deduplicated(world.main | rows, by) if world.by is None else merged(world.main, rows, by)
            world = replace(world, main=stored, by=by, pending=tuple(others))
            yield world

    def _with_pending(self, by: Definition, rows: Rows) -> World:
        if not rows:
            return self
        *others, (last, landed) = self.pending or ((by, NOTHING),)
        if last == by:
            return replace(self, pending=(*others, (by, landed | rows)))
        return replace(self, pending=(*self.pending, (by, rows)))


class Worlds:
    """All tables that are possible."""

    def __init__(self) -> None:
        self.possible: set[World] = {World()}

    def begin(self, sync: Sync, *, killed: bool = False) -> bool:
        """Let a sync begin. False, and nothing is changed, if its key is not the table's."""
        try:
            begun = {world.begun(sync) for world in self.possible}
        except Conflict:
            return False
        self.possible = begun | self.possible if killed else begun
        return True

    def land(self, sync: Sync, rows: Rows, *, killed: bool = False) -> None:
        """Let a batch be committed."""
        self._step([world.landed(sync, rows) for world in self.possible], killed)

    def end(self, sync: Sync, *, killed: bool = False) -> None:
        """Let a sync publish what it has landed."""
        self._step([world.ended(sync) for world in self.possible], killed)

    def see(self, rows: Collection[Version]) -> bool:
        """Rule out the tables in which a reader could not find these rows; False, and nothing is, if that is all."""
        found = frozenset(rows)
        left = {world for world in self.possible if world.main == found}
        self.possible = left or self.possible
        return bool(left)

    def _step(self, outcomes: Sequence[Outcome], killed: bool) -> None:
        after = set[World]().union(*(outcome.after for outcome in outcomes))
        if killed:
            after = after.union(self.possible, *(outcome.between for outcome in outcomes))
        self.possible = after
