"""Random histories of a table: syncs of all modes, changes of its schema, values that do not fit, kills."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from integration_tests.archive.strikes import RefusedPut, Strike
from integration_tests.chaos.aws.adversary import Blow
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.warehouse import BOOLEAN, INTEGER, NUMBER, STRING, object_schema

LANDING = "destination_datalake.sync.landing:Landing"
LEDGER = "destination_datalake.archive.ledger:ArchiveLedger"
ICEBERG = "destination_datalake.tables.iceberg.table:IcebergTable"
HIVE = "destination_datalake.tables.hive.table:HiveTable"
HELD = "destination_datalake.aws.objects:DeferredUpload.publish"

KILLS = (
    f"{LEDGER}.begin",
    f"{LEDGER}.publish",
    f"{LEDGER}.add",
    f"{LEDGER}.end",
    f"{LANDING}._commit",
    f"{LANDING}.publish",
    HELD,
)
"""What a sync is killed before or after. One more of each kind of table is below."""

_OF_KIND: Mapping[bool, tuple[str, ...]] = {
    True: (f"{ICEBERG}.prepare", f"{ICEBERG}.commit", f"{ICEBERG}.publish", f"{ICEBERG}.merge"),
    False: (f"{HIVE}.prepare", f"{HIVE}.commit", f"{HIVE}.publish"),
}

FILL = "x" * 700_000
"""Two records with it are a batch of their own where batch_size_mb is 1."""

_FIELDS: Mapping[str, tuple[Json, tuple[object, ...]]] = {
    "n": (INTEGER, (1, -7, 2**31, 2**40, "seven", 1.5, None)),
    "x": (NUMBER, (0.5, 16777217, 1e300, "much", True, None)),
    "s": (STRING, ("a", "é\n", 5, {"deep": 1}, None)),
    "b": (BOOLEAN, (True, False, "no", 0)),
    "t": (
        {"type": "string", "format": "date-time"},
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00.123456789Z", "never", None),
    ),
    "o": (object_schema(a=INTEGER, b=STRING), ({"a": 1, "b": "x"}, {"a": "one"}, [], None)),
    "l": ({"type": "array", "items": INTEGER}, ([1, 2], ["x"], None)),
}

_RETYPED: Mapping[str, Json] = {"n": STRING, "s": INTEGER, "x": BOOLEAN}
"""Types that a source may find out to be right later: the column of the former type stays."""


@dataclass(frozen=True)
class Sync:
    """One sync: its stream in the configured catalog, the lines, what strikes it, and whether it archives."""

    stream: Json
    lines: tuple[bytes, ...]
    strike: Strike | None = None
    archives: bool = True

    @property
    def killed_at(self) -> KillPoint | None:
        """Where it is killed, if that is a function."""
        return self.strike if isinstance(self.strike, KillPoint) else None


@dataclass
class Histories:
    """Draws the syncs of one table. Deduplicated ones are drawn for Iceberg tables alone.

    `with_gaps`: some syncs do not archive, are killed at any request, or are refused a PUT in the archive. Platforms
    differ: some send no ids, and PyAirbyte always the same.
    """

    random: random.Random
    is_iceberg: bool
    with_gaps: bool = False
    _fields: list[str] = field(default_factory=lambda: ["n", "s"])
    _retyped: set[str] = field(default_factory=set)
    _generation: int = 0
    _sync: int = 0
    _clock: int = 1_700_000_000_000
    _platform: str = "Airbyte"

    def syncs(self) -> Iterator[Sync]:
        """Yield a few syncs. One that is killed is run again, as the platform does, or the next one begins."""
        draw = self.random
        dedup = self.is_iceberg and draw.random() < 0.5
        if self.with_gaps:
            self._platform = draw.choice(("Airbyte", "without ids", "PyAirbyte"))
        for _ in range(draw.randint(2, 5)):
            self._evolve()
            dedup = dedup if draw.random() < 0.8 else self.is_iceberg and not dedup
            stream = self._stream(dedup=dedup)
            lines = self._lines(dedup=dedup)
            strike = self._strike() if draw.random() < 0.4 else None
            archives = not (self.with_gaps and draw.random() < 0.25)
            yield Sync(stream, lines, strike, archives)
            if strike is not None and draw.random() < 0.7:
                # Nothing was acknowledged, or it sends more than it has to.
                yield Sync(stream, lines)

    def _evolve(self) -> None:
        draw = self.random
        if draw.random() < 0.5 and (new := [name for name in _FIELDS if name not in self._fields]):
            self._fields.append(draw.choice(new))
        if draw.random() < 0.2:
            self._retyped ^= {draw.choice([*_RETYPED])}
        if draw.random() < 0.1 and len(self._fields) > 1:
            self._fields.remove(draw.choice(self._fields))

    def _stream(self, *, dedup: bool) -> Json:
        draw = self.random
        schema = {
            "id": INTEGER,
            "v": INTEGER,
            "fill": STRING,
            "_ab_cdc_deleted_at": {"type": "string", "format": "date-time"},
            **{name: _RETYPED[name] if name in self._retyped else _FIELDS[name][0] for name in self._fields},
        }
        refreshes = draw.random() < 0.3
        self._sync += 1
        self._generation += refreshes
        constant = {"without ids": None, "PyAirbyte": 1}.get(self._platform, 0)
        if constant != 0 and not dedup:
            mode: Literal["append", "overwrite"] = "overwrite" if refreshes else "append"
            ids: Any = {"generation": constant, "minimum": constant, "sync_id": constant}
            return configured_stream("orders", object_schema(**schema), mode=mode, **ids)
        return configured_stream(
            "orders",
            object_schema(**schema),
            mode="append_dedup" if dedup else "append",
            generation=self._generation,
            minimum=self._generation if refreshes else 0,
            sync_id=self._sync,
            primary_key=["id"] if dedup else [],
            cursor="v" if dedup else None,
        )

    def _lines(self, *, dedup: bool) -> tuple[bytes, ...]:
        draw = self.random
        lines = []
        for number in range(draw.randint(0, 12)):
            self._clock += draw.randint(0, 2)
            data: dict[str, Any] = {"id": draw.randint(1, 6), "v": draw.randint(1, 9)}
            for name in self._fields:
                if draw.random() < 0.8:
                    data[name] = draw.choice(_FIELDS[name][1])
            if draw.random() < 0.15:
                data["fill"] = FILL
            if dedup and draw.random() < 0.2:
                data["_ab_cdc_deleted_at"] = "2024-01-02T00:00:00Z"
            lines.append(record("orders", data, emitted_at=self._clock))
            if draw.random() < 0.2:
                lines.append(state("orders", number))
        return (*lines, state("orders", "end"), status("orders", "COMPLETE"))

    def _strike(self) -> Strike:
        draw = self.random
        kind = draw.choice(("function", "function", "request", "PUT")) if self.with_gaps else "function"
        if kind == "PUT":
            return RefusedPut(draw.randint(1, 9), draw.choice(("403", "403", "500")))
        if kind == "request":
            return Blow("kill", draw.randint(1, 45), "requests", draw.choice(("before", "after")))
        function = draw.choice((*KILLS, *_OF_KIND[self.is_iceberg]))
        return KillPoint(draw.choice(("before", "after")), function, draw.choice((1, 1, 2)))
