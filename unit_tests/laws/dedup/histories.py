"""Histories of a table: syncs of one stream, as the platform and its user may ask for them, with a few keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hypothesis import strategies as st

from unit_tests.laws.dedup.model.versions import Definition, Value, Version
from unit_tests.laws.dedup.values import CURSORS, DELETED_AT, INTEGER, KEYS, STRING, Column, columns

EMITTED_AT = 1_700_000_000_000
STREAM = "orders"
SERIAL = "serial"
"""A column that numbers all records that are sent, so that a row tells which it is."""


@dataclass(frozen=True)
class Draft:
    """One record. Numbers choose among the values of columns: of all parts of the key, of all cursors."""

    key: int = 0
    cursor: int = 0
    extracted: int = 0
    deleted: bool = False


@dataclass(frozen=True)
class Kill:
    """The sync is killed at its `call`-th call of AWS (from 1): before it, or after it has taken effect."""

    call: int
    moment: Literal["before", "after"]


@dataclass(frozen=True)
class Foreign:
    """What somebody else does to the table. `number` chooses among its rows, or among former snapshots.

    Another engine appends rows that are there again, replaces the table by such rows, or rolls it back.
    """

    does: Literal["append", "replace", "roll back"]
    number: int


@dataclass(frozen=True)
class Step:
    """One sync. `asks`: it goes on with the generation that there is, or overwrites all rows by a new one.

    A `resume` goes on with an overwrite that was not published. `cursor` and `layout` choose among those of the
    history; with `more` the stream has a field more. An `eager` sync merges after each batch. The table is
    `maintained` afterwards: compacted, old snapshots are expired and orphans removed. Then come the `foreign` ones.
    """

    batches: tuple[tuple[Draft, ...], ...] = ()
    asks: Literal["append", "refresh", "resume"] = "append"
    dedup: bool = True
    cursor: int = 0
    soft: bool = False
    merge_on_read: bool = False
    layout: int = 0
    more: bool = False
    eager: bool = False
    maintained: bool = False
    killed: Kill | None = None
    foreign: tuple[Foreign, ...] = ()


@dataclass(frozen=True)
class History:
    """Syncs into one table, whose rows have a key of these columns. `decimals`: numbers are exact."""

    key: tuple[str, ...]
    cursors: tuple[str | None, ...] = (None,)
    layouts: tuple[tuple[Mapping[str, str], ...], ...] = ((),)
    decimals: bool = False
    steps: tuple[Step, ...] = ()

    @property
    def columns(self) -> dict[str, Column]:
        """The columns of the records, by name."""
        names = {*self.key, *self.cursors, DELETED_AT}
        return {name: column for name, column in columns(self.decimals).items() if name in names}

    def schema(self, step: Step) -> Mapping[str, Any]:
        """Return the JSON schema of a sync."""
        properties = {name: column.schema for name, column in self.columns.items()}
        more = {"more": STRING} if step.more else {}
        return {"type": "object", "properties": {SERIAL: INTEGER, **properties, **more}}

    def cursor(self, step: Step) -> str | None:
        return self.cursors[step.cursor % len(self.cursors)]

    def definition(self, step: Step) -> Definition | None:
        """Return by what a sync deduplicates."""
        return Definition(self.key, self.cursor(step), None if step.soft else DELETED_AT) if step.dedup else None

    def partition_by(self, step: Step) -> Sequence[Mapping[str, str]]:
        return self.layouts[step.layout % len(self.layouts)]

    def versions(self, step: Step, drafts: Sequence[Draft], first: int) -> Iterator[tuple[Version, bytes]]:
        """Yield the records of a batch, with the lines that they are sent as. Their serials begin with `first`."""
        for serial, draft in enumerate(drafts, start=first):
            values: dict[str, Value] = {SERIAL: serial}
            texts = {SERIAL: str(serial)}
            for name, column in self.columns.items():
                number = draft.deleted if name == DELETED_AT else draft.cursor if name in CURSORS else draft.key
                if name in KEYS and len(self.key) > 1:
                    # The parts of a key vary by themselves: 0 to 8 are three values of the first, three of the second.
                    number = number // 3 ** self.key.index(name) % 3
                values[name], texts[name] = column.value(number), column.text(number)
            if step.more:
                values["more"], texts["more"] = f"more {serial}", f'"more {serial}"'
            extracted = EMITTED_AT + draft.extracted
            data = ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items())
            line = f'{{"type":"RECORD","record":{{"stream":"{STREAM}","data":{{{data}}},"emitted_at":{extracted}}}}}\n'
            yield Version(serial, extracted, values), line.encode()


def _layouts(key: Sequence[str], cursors: Sequence[str | None]) -> list[tuple[Mapping[str, str], ...]]:
    """Return partitions by the key, by what changes from version to version, and by both."""
    by_key = [
        {"source": name, "transform": "bucket[3]"} for name in key if name not in ("k_number", "k_flag")
    ]  # Iceberg has no buckets of floats.
    by_cursor = [{"source": name} for name in cursors if name is not None and name in CURSORS and name != "c_number"]
    return [(), *(tuple(fields[:1]) for fields in (by_key, by_cursor) if fields), (*by_key[:1], *by_cursor[:1])]


_drafts = st.builds(
    Draft,
    key=st.integers(0, 8),
    cursor=st.integers(0, 6),
    extracted=st.integers(0, 2),
    deleted=st.sampled_from([False, False, False, True]),
)
_kills = st.builds(Kill, call=st.integers(1, 60), moment=st.sampled_from(["before", "after"]))
_steps = st.builds(
    Step,
    batches=st.lists(st.lists(_drafts, min_size=1, max_size=7).map(tuple), max_size=3).map(tuple),
    asks=st.sampled_from(["append", "append", "append", "append", "refresh", "resume"]),
    dedup=st.sampled_from([True, True, True, False]),
    cursor=st.sampled_from([0, 0, 0, 1]),
    soft=st.sampled_from([False, False, False, True]),
    merge_on_read=st.booleans(),
    layout=st.sampled_from([0, 0, 1]),
    more=st.booleans(),
    eager=st.sampled_from([False, False, False, True]),
    maintained=st.sampled_from([False, False, False, True]),
    killed=st.none() | _kills,
)


@st.composite
def histories(draw: st.DrawFn, steps: int) -> History:
    """Return histories of at most so many syncs."""
    key = draw(st.lists(st.sampled_from([*KEYS]), min_size=1, max_size=3, unique=True).map(tuple))
    cursors = draw(st.lists(st.none() | st.sampled_from([*CURSORS, *key]), min_size=1, max_size=2).map(tuple))
    chosen = draw(st.lists(st.sampled_from(_layouts(key, cursors)), min_size=1, max_size=2).map(tuple))
    return History(
        key, cursors, chosen, draw(st.booleans()), draw(st.lists(_steps, min_size=1, max_size=steps).map(tuple))
    )


_foreign = st.builds(Foreign, st.sampled_from(["append", "append", "replace", "roll back"]), st.integers(0, 10))
_among_others = st.builds(
    replace,
    _steps,
    asks=st.just("append"),
    soft=st.just(False),
    foreign=st.lists(_foreign, max_size=2).map(tuple),
)


@st.composite
def shared_histories(draw: st.DrawFn, steps: int) -> History:
    """Return histories of tables that others write to as well.

    All their rows are of one generation, and no deletion is kept as a row: a later merge may find it, or not.
    """
    key = draw(st.sampled_from([("k_integer",), ("k_text",), ("k_integer", "k_text")]))
    cursors = draw(st.sampled_from([(None,), ("c_integer",), ("c_integer", None)]))
    return History(key, cursors, steps=draw(st.lists(_among_others, min_size=2, max_size=steps).map(tuple)))


_merges = st.builds(
    Step,
    batches=st.lists(st.lists(_drafts, min_size=4, max_size=9).map(tuple), min_size=1, max_size=2).map(tuple),
    merge_on_read=st.booleans(),
    maintained=st.sampled_from([False, False, True]),
)


@st.composite
def partitioned_histories(draw: st.DrawFn) -> History:
    """Return histories of merges, before each of which the partitions of the table change."""
    key = draw(st.sampled_from([("k_integer",), ("k_text",), ("k_integer", "k_text")]))
    by_value, by_bucket = ({"source": key[0]},), ({"source": key[0], "transform": "bucket[3]"},)
    layouts = draw(st.permutations([(), by_value, by_bucket]).map(tuple))
    steps = [replace(draw(_merges), layout=number) for number in range(len(layouts))]
    return History(key, draw(st.sampled_from([(None,), ("c_integer",)])), layouts, steps=tuple(steps))
