"""What a table may have after syncs, some of which were killed: every possibility, until a reader rules it out.

A sync that deduplicates lands its rows where no reader sees them, and merges them when its stream ends. Rows that were
landed and not merged are merged by the next sync that is not killed, whatever its mode.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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

    With `pooled`, others have changed it since, so that it is not known to be unique. `pending` are rows that were
    landed, to be merged by `pending_by`. `unpublished` are rows of an overwrite of `generation`. `lowest` is the lowest
    generation in main.
    """

    main: Rows = NOTHING
    by: Definition | None = None
    lowest: int | None = None
    pending: Rows = NOTHING
    pending_by: Definition | None = None
    generation: int | None = None
    unpublished: Rows = NOTHING
    pooled: bool = False

    def replaced_by(self, sync: Sync) -> bool:
        """Whether the sync's rows are not published before its end, and then take the place of all others."""
        return sync.overwrites and (self.lowest is None or self.lowest < sync.generation)

    def begun(self, sync: Sync) -> World:
        """Return the table once a sync has begun. Raises Conflict."""
        if self.replaced_by(sync):
            resumed = self.unpublished if self.generation == sync.generation else NOTHING
            return replace(self, generation=sync.generation, unpublished=resumed)
        if sync.by is not None and self.by is not None and sync.by.key != self.by.key:
            raise Conflict
        if self._is_first_to_merge(sync):
            return self
        lowest = self.lowest
        if lowest is not None or not self.main:
            known = (lowest, sync.generation, self.generation)
            lowest = min(generation for generation in known if generation is not None)
        adopted, world = self.unpublished, replace(self, lowest=lowest, generation=None, unpublished=NOTHING)
        if sync.by is not None:
            pending = world.pending | adopted
            return replace(world, pending=pending, pending_by=sync.by if pending else None)
        return replace(world, main=world.main | adopted, by=None) if adopted else world

    def landed(self, sync: Sync, rows: Rows) -> Outcome:
        """Return the table after a batch was committed."""
        if self.replaced_by(sync):
            return Outcome({replace(self, unpublished=self.unpublished | rows)})
        steps = self._until_ready(sync)
        world = steps[-1]
        if sync.by is None:
            return Outcome({replace(world, main=world.main | rows, by=None)}, frozenset(steps))
        return Outcome({replace(world, pending=world.pending | rows, pending_by=sync.by)}, frozenset(steps))

    def merged(self, sync: Sync) -> Outcome:
        """Return the table after a merge in the middle of the sync."""
        if self.replaced_by(sync):
            return Outcome({self})  # What replaces the table is merged when it is published.
        return self.ended(sync)

    def ended(self, sync: Sync) -> Outcome:
        """Return the table after the sync has published what it has landed."""
        if self.replaced_by(sync):
            rows = self.unpublished if sync.by is None else deduplicated(self.unpublished, sync.by)
            return Outcome({World(rows, sync.by, sync.generation)}, frozenset([replace(self, unpublished=rows)]))
        steps = self._until_ready(sync)
        world = steps[-1]
        if sync.by is not None and (world.by is None or world.pooled) and world.main:
            world = replace(world, pending_by=sync.by)  # Rows that were appended are deduplicated with those.
        return Outcome({world.settled()}, frozenset(steps))

    def settled(self) -> World:
        """Return the table with all that is pending merged."""
        if self.pending_by is None:
            return self
        rows, by = self.pending, self.pending_by
        is_unique = self.by is not None and not self.pooled
        main = merged(self.main, rows, by) if is_unique else deduplicated(self.main | rows, by)
        return replace(self, main=main, by=by, pooled=False, pending=NOTHING, pending_by=None)

    def _is_first_to_merge(self, sync: Sync) -> bool:
        """Whether what is pending is merged before the sync lands anything, by the definition that it came with."""
        return self.pending_by is not None and sync.by is None

    def _until_ready(self, sync: Sync) -> list[World]:
        """Return the table, and what it is after each step until the sync can land rows."""
        if not self._is_first_to_merge(sync):
            return [self]
        return [self, self.settled(), self.settled().begun(sync)]


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

    def merge(self, sync: Sync, *, killed: bool = False) -> None:
        """Let a sync merge what it has landed, before its end."""
        self._step([world.merged(sync) for world in self.possible], killed)

    def end(self, sync: Sync, *, killed: bool = False) -> None:
        """Let a sync publish what it has landed."""
        self._step([world.ended(sync) for world in self.possible], killed)

    def share(self, rows: Collection[Version]) -> None:
        """Let others change what readers find, to these rows."""
        self.possible = {replace(world, main=frozenset(rows), pooled=True) for world in self.possible}

    def see(self, rows: Collection[Version]) -> bool:
        """Rule out the tables in which a reader could not find these rows; False, and nothing is, if that is all."""
        versions = frozenset(rows)
        remaining = {world for world in self.possible if world.main == versions}
        self.possible = remaining or self.possible
        return bool(remaining)

    def _step(self, outcomes: Sequence[Outcome], killed: bool) -> None:
        after = set[World]().union(*(outcome.after for outcome in outcomes))
        if killed:
            after = after.union(self.possible, *(outcome.between for outcome in outcomes))
        self.possible = after
