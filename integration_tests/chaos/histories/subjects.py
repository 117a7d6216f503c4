"""What histories are about: tables of all kinds and layouts, and the options that types and names depend on."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from integration_tests.chaos.attempts.source import STREAM, Source
from integration_tests.chaos.histories.reader import TypedReader
from integration_tests.chaos.histories.typed import TypedSource, TypedVersions
from integration_tests.chaos.subjects import HIVE_JSONL, HIVE_PARQUET, ICEBERG, Subject
from integration_tests.chaos.verdicts.reader import Reader
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json


@dataclass(frozen=True)
class TypedSubject(Subject):
    """A subject of a history."""

    numeric_types: str = "int/float"
    naming: str = "snake_case"
    nested: Sequence[str] = ("struct",)

    @property
    def source(self) -> type[Source]:
        """What sends the records."""
        return TypedVersions if self.deletes else TypedSource

    @property
    def options(self) -> Json:
        """The options that all its attempts have, whatever the partitions."""
        own = {"numeric_types": self.numeric_types, "naming": {"style": self.naming}, "sync_reports": False}
        return {**super().options, **own}

    @property
    def has_others(self) -> bool:
        """Whether another engine knows the table, too: it would have to find it in this process."""
        return False

    def reader(self, lake: Lake) -> Reader:
        """Return what reads its table."""
        return TypedReader(lake)

    def layouts(self, random: Random) -> Sequence[Json]:
        """Return the options of partitions, and of nested values, that the user chooses one after the other."""
        if not self.partitioned:
            layouts: Sequence[Json] = ({},)
        elif self.kind is ICEBERG:
            layouts = random.choices((*_ICEBERG, *_EITHER), k=3)
        else:
            shown = random.choice(("register", "register", "projection", "both"))
            layouts = ({**random.choice((*_HIVE, *_EITHER)), "catalog_partitions": shown},)
        return [{**layouts[number % len(layouts)], "nested": nested} for number, nested in enumerate(self.nested)]


def subject_of(seed: str) -> TypedSubject:
    """Return the subject of a history."""
    random = Random(f"{seed}/subject")
    kind = random.choice((ICEBERG, ICEBERG, HIVE_PARQUET, HIVE_PARQUET, HIVE_JSONL))
    dedup = kind is ICEBERG and random.random() < 0.35
    first = random.choice(("struct", "struct", "struct", "flatten", "json"))
    return TypedSubject(
        kind,
        overwrites=random.random() < 0.6,
        partitioned=random.random() < 0.6,
        deletes=random.choice(("copy_on_write", "merge_on_read")) if dedup else None,
        numeric_types=random.choice(("int/float", "int/float", "bigint/double", "int/decimal", "decimal")),
        naming=random.choice(("snake_case", "snake_case", "preserve", "aws_datalake")),
        nested=(first, first, random.choice((first, first, "struct", "flatten", "json"))),
    )


def _by(*fields: tuple[str, str]) -> Json:
    by = [{"source": source, **({"transform": transform} if transform else {})} for source, transform in fields]
    return {"streams": [{"stream": STREAM, "partition_by": by}]}


_EITHER: Sequence[Json] = (
    {"partitioning": "DATE", "partition_source": "day"},
    {"partitioning": "DATE", "partition_source": "when"},
    {"partitioning": "YEAR/MONTH", "partition_source": "when"},
    {"partitioning": "YEAR", "partition_source": "day"},
    {"partitioning": "DAY/HOUR", "partition_source": "extracted_at"},
    _by(("day", "month")),
    _by(("when", "hour")),
    _by(("label", "")),
    _by(("code", "")),
    _by(("day", "")),
    _by(("day", "year"), ("label", "")),
)

_ICEBERG: Sequence[Json] = (
    {},
    _by(("code", "bucket[3]")),
    _by(("code", "truncate[10]")),
    _by(("label", "truncate[2]"), ("when", "day")),
    _by(("when", "")),
    _by(),
)

_HIVE: Sequence[Json] = (
    {"partitioning": "YEAR/MONTH/DAY", "partition_source": "day"},
    {"partitioning": "MONTH", "partition_source": "when"},
    *(
        {"path_layout": layout, "partitioning": units, "partition_source": source}
        for layout, units, source in (
            ("plain", "YEAR/MONTH/DAY", "day"),
            ("plain", "YEAR", "when"),
            ("segment", "DATE", "when"),
            ("segment", "DAY/HOUR", "extracted_at"),
            ("rudderstack", "YEAR/MONTH/DAY/HOUR", "when"),
            ("firehose", "YEAR/MONTH", "day"),
        )
    ),
    {"path_layout": "own/{database}/{table}/dt={date}", "partition_source": "when"},
    {
        "path_layout": "own/{database}/{table}/place={place}",
        "streams": [{"stream": STREAM, "partition_by": [{"source": "label", "name": "place"}]}],
    },
)
