"""What rounds are about: kinds of table, whether syncs replace what is in them, and how they are partitioned."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from integration_tests.chaos.attempts.source import STREAM, Source
from integration_tests.chaos.attempts.versions import VersionedSource
from integration_tests.chaos.verdicts.reader import Reader
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind

ICEBERG, HIVE_PARQUET, HIVE_JSONL = TABLE_KINDS


@dataclass(frozen=True)
class Subject:
    """A kind of table, whether syncs replace what is in it, and whether it is partitioned."""

    kind: TableKind
    overwrites: bool
    partitioned: bool = False
    deletes: Literal["copy_on_write", "merge_on_read"] | None = None
    """How rows leave a table that is deduplicated; None if it is not."""
    in_rest: bool = False
    """Whether the table is in a REST catalog, which compares what a commit requires and nothing else."""

    def __str__(self) -> str:
        words = [self.kind.name, *(["rest"] if self.in_rest else []), *(["partitioned"] if self.partitioned else [])]
        words += ["dedup", self.deletes] if self.deletes else []
        return " ".join([*words, "overwrite" if self.overwrites else "append"])

    @property
    def source(self) -> type[Source]:
        """What sends the records."""
        return VersionedSource if self.deletes else Source

    @property
    def options(self) -> Json:
        """The options that all its attempts have, whatever the partitions."""
        return {"dedup": {"deletes": self.deletes}} if self.deletes else {}

    @property
    def has_others(self) -> bool:
        """Whether another engine knows the table, too."""
        return self.kind is ICEBERG

    def reader(self, lake: Lake) -> Reader:
        """Return what reads its table."""
        return Reader(lake)

    def layouts(self, random: Random) -> Sequence[Json]:
        """Return the options of partitions that the user chooses one after the other.

        An Iceberg table takes any; the partition keys of a Hive table stay.
        """
        if not self.partitioned:
            return ({},)
        if self.kind is ICEBERG:
            return random.sample(_ICEBERG + (_BY_KEY if self.deletes else ()), 3)
        return ({**random.choice(_HIVE), "catalog_partitions": random.choice(("register", "projection", "both"))},)


_BY_DAY = {"partition_source": "day"}

_BY_KEY: tuple[Json, ...] = (
    {"streams": [{"stream": STREAM, "partition_by": [{"source": "item", "transform": "bucket[2]"}]}]},
    {"streams": [{"stream": STREAM, "partition_by": [{"source": "shop"}], "sort_by": [{"source": "item"}]}]},
)

_ICEBERG: tuple[Json, ...] = (
    {},
    {"partitioning": "DATE", **_BY_DAY},
    {"partitioning": "YEAR/MONTH", **_BY_DAY},
    {"streams": [{"stream": STREAM, "partition_by": [{"source": "position", "transform": "bucket[3]"}]}]},
    {
        "streams": [
            {
                "stream": STREAM,
                "partition_by": [{"source": "day"}, {"source": "position", "transform": "truncate[10]"}],
                "sort_by": [{"source": "count", "direction": "descending", "nulls": "last"}],
            }
        ]
    },
    {"streams": [{"stream": STREAM, "partition_by": []}]},
)

_HIVE: Sequence[Json] = (
    {"partitioning": "DATE", **_BY_DAY},
    {"partitioning": "YEAR/MONTH", **_BY_DAY},
    {"partitioning": "YEAR/MONTH/DAY", **_BY_DAY},
    {"path_layout": "plain", "partitioning": "YEAR/MONTH/DAY", **_BY_DAY},
    {"streams": [{"stream": STREAM, "partition_by": [{"source": "day", "transform": "month"}, {"source": "attempt"}]}]},
)


def swaps_in_steps(layout: Json) -> bool:
    """Tell whether an overwrite takes a reader's partitions away and brings new ones, call by call."""
    return layout.get("catalog_partitions") == "register"


SUBJECTS = (
    *(
        Subject(kind, overwrites, partitioned)
        for partitioned in (False, True)
        for kind, overwrites in (
            (ICEBERG, False),
            (HIVE_PARQUET, True),
            (HIVE_JSONL, False),
            (ICEBERG, True),
            (HIVE_PARQUET, False),
            (HIVE_JSONL, True),
        )
    ),
    Subject(ICEBERG, overwrites=False, deletes="copy_on_write"),
    Subject(ICEBERG, overwrites=True, deletes="merge_on_read"),
    Subject(ICEBERG, overwrites=True, partitioned=True, deletes="copy_on_write"),
    Subject(ICEBERG, overwrites=False, partitioned=True, deletes="merge_on_read"),
    Subject(ICEBERG, overwrites=False, in_rest=True),
    Subject(ICEBERG, overwrites=True, in_rest=True),
    Subject(ICEBERG, overwrites=False, deletes="merge_on_read", in_rest=True),
    Subject(ICEBERG, overwrites=True, partitioned=True, deletes="copy_on_write", in_rest=True),
)


def subject_of(number: int) -> Subject:
    """Return whose turn it is: round 1 is about the first, round 2 about the second, and so on, over and over."""
    return SUBJECTS[(number - 1) % len(SUBJECTS)]
