"""The model of syncs itself: what may be in a table after each, and what may not."""

from __future__ import annotations

import pytest

from unit_tests.laws.dedup.model.versions import Definition, Rows, Value, Version
from unit_tests.laws.dedup.model.worlds import Sync, Worlds

BY = Definition(("id",), "at", "gone")
DEDUP, APPEND = Sync(1, False, BY), Sync(1, False, None)
REPLACE_DEDUP, REPLACE = Sync(2, True, BY), Sync(2, True, None)


class Story:
    """Syncs told one after the other; rows are (id, cursor)."""

    def __init__(self) -> None:
        self.worlds = Worlds()
        self.versions: list[Version] = []

    def rows(self, *rows: tuple[Value, Value], **more: Value) -> Rows:
        new = [
            Version(len(self.versions) + number, 1, {"id": id_, "at": at, **more})
            for number, (id_, at) in enumerate(rows)
        ]
        self.versions += new
        return frozenset(new)

    def sync(self, sync: Sync, *rows: tuple[Value, Value], killed: bool = False, **more: Value) -> None:
        """Land a batch, and publish it unless the sync is killed before."""
        assert self.worlds.begin(sync)
        self.worlds.land(sync, self.rows(*rows, **more))
        if not killed:
            self.worlds.end(sync)

    def admits(self, *rows: tuple[Value, Value]) -> bool:
        """Whether readers may find just the first versions with these ids and cursors."""
        by_values = {(version.values["id"], version.values["at"]): version for version in reversed(self.versions)}
        return any(world.main == frozenset(by_values[row] for row in rows) for world in self.worlds.possible)


@pytest.fixture
def story() -> Story:
    return Story()


def test_what_a_killed_sync_has_landed_is_merged_by_the_next(story: Story) -> None:
    story.sync(DEDUP, (1, 1), (2, 1))
    story.sync(DEDUP, (1, 2), (3, 1), killed=True)
    assert story.admits((1, 1), (2, 1))
    story.sync(DEDUP, (2, 2))
    assert story.admits((1, 2), (2, 2), (3, 1))


def test_a_sync_that_is_killed_while_it_lands_or_merges_has_done_it_or_not(story: Story) -> None:
    story.worlds.begin(DEDUP)
    story.worlds.land(DEDUP, story.rows((1, 1)), killed=True)
    assert len(story.worlds.possible) == 2
    story.worlds.end(DEDUP, killed=True)
    assert story.admits()
    assert story.admits((1, 1))


def test_an_append_merges_what_is_pending_and_repeats_keys(story: Story) -> None:
    story.sync(DEDUP, (1, 1))
    story.sync(DEDUP, (1, 2), killed=True)
    story.sync(APPEND, (1, 3))
    assert story.admits((1, 2), (1, 3))


def test_a_table_that_was_appended_to_is_deduplicated_with_what_is_landed(story: Story) -> None:
    story.sync(APPEND, (1, 3), (1, 1), (2, 1))
    story.sync(DEDUP, (1, 2), (2, 2))
    assert story.admits((1, 3), (2, 2))


def test_it_is_deduplicated_by_a_sync_without_records_too(story: Story) -> None:
    story.sync(APPEND, (1, 3), (1, 1))
    story.sync(DEDUP)
    assert story.admits((1, 3))


def test_an_overwrite_is_deduplicated_and_takes_the_place_of_what_is_pending_too(story: Story) -> None:
    story.sync(DEDUP, (1, 9))
    story.sync(DEDUP, (2, 9), killed=True)
    story.sync(REPLACE_DEDUP, (1, 1), (1, 2))
    assert story.admits((1, 2))


def test_an_overwrite_that_was_cancelled_is_merged(story: Story) -> None:
    story.sync(DEDUP, (1, 1))
    story.sync(REPLACE_DEDUP, (1, 2), (2, 1), killed=True)
    assert story.admits((1, 1))
    story.sync(DEDUP, (3, 1))
    assert story.admits((1, 2), (2, 1), (3, 1))


def test_an_overwrite_that_was_cancelled_is_appended(story: Story) -> None:
    story.sync(APPEND, (1, 1))
    story.sync(REPLACE, (1, 2), killed=True)
    story.sync(APPEND, (1, 3))
    assert story.admits((1, 1), (1, 2), (1, 3))


def test_an_overwrite_that_is_published_upserts_from_then_on(story: Story) -> None:
    """As PyAirbyte asks, whose ids are always the same."""
    story.sync(REPLACE_DEDUP, (1, 1), (2, 1))
    story.sync(REPLACE_DEDUP, (1, 2))
    assert story.admits((1, 2), (2, 1))


def test_rows_that_came_by_another_cursor_are_merged_by_that_of_today(story: Story) -> None:
    story.sync(DEDUP, (1, 1), other=5)
    story.sync(DEDUP, (1, 2), killed=True, other=4)
    story.sync(Sync(1, False, BY._replace(cursor="other")), (1, 0), other=4)
    assert story.admits((1, 1))


def test_another_key_is_a_conflict_until_the_rows_are_replaced(story: Story) -> None:
    story.sync(DEDUP, (1, 1))
    assert not story.worlds.begin(DEDUP_BY_OTHER)
    story.sync(Sync(2, True, DEDUP_BY_OTHER.by), (1, 2))
    assert story.worlds.begin(DEDUP_BY_OTHER)


DEDUP_BY_OTHER = Sync(1, False, Definition(("other",)))
