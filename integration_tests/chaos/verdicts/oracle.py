"""What a table may hold after all that happened to it.

Whether something took place is not always known: a sync that dies while it publishes may have published, or not. So the
oracle keeps every world that is possible; what a reader sees rules worlds out. When none is left, a promise is broken.

The promises, for a sync that sends records between states:

- A record before a state that was echoed is in the table, and stays there until an overwrite takes the table's place.
- So is, and does, every row that a reader has seen while no sync was running.
- Each sending of a record is there at most once; nothing is there that was not sent.
- An overwrite shows nothing until all of it is there, and then nothing else. It holds every record of its last
  attempt, all that earlier attempts of the same generation had acknowledged, and perhaps some of what these had sent
  without having it acknowledged: those records were sent again.
- What an overwrite had acknowledged is there after the next append, if the user cancels it.
- An overwrite that is older than the table's newest is refused, and so is one, or an append in its generation, whose
  acknowledged records another overwrite has taken away.
- Where the catalog has a table's partitions one by one, a reader who comes while an overwrite is published, or after a
  sync has died of that, sees old partitions beside new ones, but never an empty table if both have rows. After the next
  sync that succeeds, only the new rows are there, and all of them.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from integration_tests.chaos.attempts.source import Sending

NOTHING: frozenset[Sending] = frozenset()


@dataclass(frozen=True)
class Content:
    """What must be there and what may be there: `required` is a part of `allowed`. `generation` None: unknown."""

    generation: int | None = None
    required: frozenset[Sending] = NOTHING
    allowed: frozenset[Sending] = NOTHING

    def plus(self, required: Iterable[Sending], allowed: Iterable[Sending]) -> "Content":
        required = frozenset(required)
        return replace(self, required=self.required | required, allowed=self.allowed | required | frozenset(allowed))

    def admits(self, seen: Collection[Sending]) -> bool:
        return self.required <= frozenset(seen) <= self.allowed


@dataclass(frozen=True)
class World:
    """The table as readers see it, and an overwrite that is not published, if there is one.

    `leaving` is what an overwrite is about to take away that is published step by step, and perhaps not to its end.
    `newest` is the highest generation that has begun to overwrite it; `removed` are the lowest and the highest of those
    that others have taken away since the last one was published.
    """

    published: Content = field(default_factory=Content)
    unpublished: Content | None = None
    leaving: tuple[Content, ...] = ()
    newest: int | None = None
    removed: tuple[int, int] | None = None

    def admits(self, seen: Collection[Sending]) -> bool:
        if not self.leaving:
            return self.published.admits(seen)
        contents = (self.published, *self.leaving)
        may_be_empty = not all(content.required for content in contents)
        allowed = NOTHING.union(*(content.allowed for content in contents))
        return frozenset(seen) <= allowed and (bool(seen) or may_be_empty)


@dataclass(frozen=True)
class Effect:
    """What an attempt asked for, and how it ended.

    `sent` and `acknowledged` leave out records that can be no row. `completed`: all was sent and the stream said to be
    COMPLETE. `succeeded`: exit code 0.
    """

    generation: int | None
    overwrites: bool
    sent: frozenset[Sending]
    acknowledged: frozenset[Sending]
    completed: bool
    succeeded: bool

    def is_refused_by(self, world: World) -> bool:
        """Whether it is older than the table, or goes on with what another overwrite has taken away."""
        generation, current, unpublished = self.generation, world.published.generation, world.unpublished
        if generation is None:
            return False
        if world.removed is not None and world.removed[0] <= generation <= world.removed[1]:
            return True
        newest = max(candidate for candidate in (current, world.newest, generation) if candidate is not None)
        goes_on = current == generation or (unpublished is not None and unpublished.generation == generation)
        return self.overwrites and (newest > generation or (world.newest == generation and not goes_on))

    def on(self, world: World) -> set[World]:
        """Return the worlds that it can have made of one."""
        if self.is_refused_by(world):
            return set() if self.succeeded or self.acknowledged else {world}
        held = self.sent if self.succeeded else self.acknowledged
        current = world.published.generation
        outdated = self.generation is None or current is None or current < self.generation
        if self.overwrites and outdated:
            return set(self._replace(world, held))
        return set(self._append(world, held))

    def _append(self, world: World, held: frozenset[Sending]) -> Iterable[World]:
        unpublished = world.unpublished
        current = world.published.generation
        known = current is not None or not world.published.allowed
        added = [
            candidate
            for candidate in (current, self.generation, unpublished.generation if unpublished else None)
            if candidate is not None
        ]
        published = replace(world.published.plus(held, self.sent), generation=min(added) if known and added else None)
        ended = replace(world, leaving=() if self.succeeded else world.leaving)
        if unpublished is None:
            yield replace(ended, published=published)
        else:
            yield replace(ended, published=published.plus(unpublished.required, unpublished.allowed), unpublished=None)
            if not self.succeeded:
                # Begun and not ended: taking rows in is done again, and then they are not there twice.
                yield replace(ended, published=published.plus(NOTHING, unpublished.allowed))
        if not self.succeeded and not held:
            yield world

    def _replace(self, world: World, held: frozenset[Sending]) -> Iterable[World]:
        unpublished = world.unpublished
        resumes = unpublished is not None and unpublished.generation == self.generation and self.generation is not None
        begun = unpublished if resumes and unpublished is not None else Content(self.generation)
        newest, removed = world.newest if self.generation is None else self.generation, world.removed
        if unpublished is not None and not resumes and unpublished.generation is not None:
            removed = (
                min((removed or (unpublished.generation,))[0], unpublished.generation),
                max((removed or (0, 0))[1], unpublished.generation),
            )
        if self.completed:
            leaving = () if self.succeeded else (*world.leaving, world.published)
            yield World(begun.plus(self.sent, NOTHING), leaving=leaving, newest=newest)
        if not self.succeeded:
            yield World(world.published, begun.plus(held, self.sent), world.leaving, newest, removed)
            if not held:
                yield world


class Oracle:
    """The worlds that are possible; with `swaps_in_steps`, of a table whose overwrites are published call by call."""

    def __init__(self, *, swaps_in_steps: bool = False) -> None:
        self.worlds = {World()}
        self._swaps_in_steps = swaps_in_steps

    def after(self, *orders: Iterable[Effect]) -> None:
        """Let these effects have happened; in several orders if theirs is unknown. Fails if one had to be refused."""
        worlds = set().union(*(_in_turn(self.worlds, order) for order in orders))
        assert worlds, "a sync has succeeded, or acknowledged records, that had to be refused"
        self.worlds = worlds if self._swaps_in_steps else {replace(world, leaving=()) for world in worlds}

    def refuses(self, effect: Effect, earlier: Iterable[Effect] = ()) -> bool:
        """Whether an attempt may have been refused, because of `earlier` effects that are not yet told, too."""
        return any(effect.is_refused_by(world) for world in _in_turn(self.worlds, earlier))

    def rewritten(self, seen: Collection[Sending]) -> None:
        """Let another engine have made this of the table, while no sync was running."""
        rows = frozenset(seen)
        self.worlds = {
            replace(world, published=replace(world.published, required=rows, allowed=rows)) for world in self.worlds
        }

    def see(self, seen: Collection[Sending]) -> bool:
        """Rule out the worlds in which a reader could not see this. False, and nothing is ruled out, if that is all."""
        remaining = {world for world in self.worlds if world.admits(seen)}
        self.worlds = remaining or self.worlds
        return bool(remaining)

    def keep(self, seen: Collection[Sending]) -> None:
        """Require that what a reader saw stays, acknowledged or not; for when no sync runs that may take it back."""
        rows = frozenset(seen)
        self.worlds = {
            # Rows of old partitions are about to be taken away.
            replace(world, published=world.published.plus(rows & world.published.allowed, NOTHING))
            for world in self.worlds
        }

    def explain(self, seen: Collection[Sending]) -> str:
        """Say what is wrong with what a reader saw, held against the likeliest world."""
        rows = frozenset(seen)

        def distance(world: World) -> int:
            return len(world.published.required - rows) + len(rows - world.published.allowed)

        content = min(self.worlds, key=distance).published
        return (
            f"{len(rows)} rows are seen; missing, although acknowledged: {_names(content.required - rows)}; there, and "
            f"should not be: {_names(rows - content.allowed)} ({len(self.worlds)} possible worlds)"
        )


def orders_after_overtaking(before: Effect, new: Effect, old: Effect) -> list[list[Effect]]:
    """Return what an overtaken sync can have done to the table since: `before` is what it had done until then.

    The new sync has taken the table over if it acknowledged anything or succeeded. Then an old one that overwrites is
    fenced, and what it acknowledges late must be where the new one has found it; an old one that appends continues. A
    new sync that was killed may have begun after the last change of an old one that succeeded.
    """
    if not (new.succeeded or new.acknowledged):
        return [[old], []] if not old.succeeded else [[old, new]]
    late = old.sent if old.succeeded else old.acknowledged - before.acknowledged
    if not old.overwrites:
        # What was acknowledged late may have been there, and been replaced, before.
        required = late - before.sent if new.overwrites else late
        return [[replace(old, acknowledged=required, completed=False, succeeded=False)]]
    if new.overwrites and (new.generation is None or new.generation != old.generation):
        return [[]]
    return [[replace(new, sent=late, acknowledged=late, completed=False, succeeded=False)]]


def _in_turn(worlds: set[World], effects: Iterable[Effect]) -> set[World]:
    for effect in effects:
        step: Callable[[World], set[World]] = effect.on
        worlds = set().union(*map(step, worlds))
    return worlds


def _names(sendings: Iterable[Sending]) -> str:
    """Name attempts and positions: `attempt 3: 10, 11, 12`."""
    by_attempt: dict[int, list[int]] = {}
    for sending in sorted(sendings):
        by_attempt.setdefault(sending.attempt, []).append(sending.position)
    return "; ".join(f"attempt {attempt}: {positions}" for attempt, positions in by_attempt.items()) or "none"
