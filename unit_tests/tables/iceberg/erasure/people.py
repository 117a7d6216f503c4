"""People in an Iceberg table, and their erasure as the command does it, in the test's own process."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from destination_datalake.config.options import Config
from destination_datalake.erasure import targets
from destination_datalake.erasure.command import Erasure
from destination_datalake.erasure.ids import IdsFile, Mask
from destination_datalake.erasure.ledger import Ledger
from destination_datalake.erasure.model import Report, Request, TargetReport
from destination_datalake.erasure.tables import IcebergTarget
from destination_datalake.schema.types import Field, Int64, String, Struct
from destination_datalake.tables.table import Committed
from integration_tests.erasure.oracle import Id, objects_with
from unit_tests.cloud import close_body, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

USER = Field("user", "user", Struct((Field("id", "id", String()), Field("age", "age", Int64()))))
COLUMNS = (Field("id", "id", Int64()), Field("name", "name", String()), USER)
FIRST = 7_000_000_000_000
"""Ids that are nothing else."""


def person(number: int) -> dict[str, Any]:
    """The row of a person. The last digits are the same in the id, the name and the id within."""
    id_ = FIRST + number
    return {"id": id_, "name": f"name {number}", "user": {"id": f"u{id_}", "age": number}}


def ids_of(*numbers: int) -> list[int]:
    return [FIRST + number for number in numbers]


@dataclass
class People:
    """The lake's table, and what erases from it."""

    lake: Lake
    config: dict[str, Any] = field(default_factory=dict)
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="people-")))

    def commit(self, *batches: Sequence[int], **more: Any) -> None:
        """Append a file of people for each batch, each in a commit of its own."""
        opened = self.lake.open(**{"columns": COLUMNS, **more})
        for numbers in batches:
            rows = [*map(person, numbers)]
            if opened.plan().partitioning is not None:
                self.lake.commit_rows(opened, *rows)
            else:
                assert opened.commit([self.lake.write_rows(opened, *rows)], no_rewrite) == Committed()

    def erasure(self, *ids: Id, column: str = "id", **changes: Any) -> Erasure:
        """The command's steps, as one attempt takes them."""
        file = self.folder / "ids.txt"
        file.write_text("".join(f"{id_}\n" for id_ in ids))
        given = {"bucket_name": self.lake.bucket, "lakeformation_database_name": self.lake.name.database}
        config = Config.parse(options(**{**given, "table_type": "ICEBERG", **self.config}))
        access = self.lake.access
        ledger = Ledger.open(column, ("table", str(self.lake.name)), IdsFile(file), config, access)
        asked = Request(
            ledger.record.id,
            column,
            IdsFile(file),
            config,
            access,
            ungoverned(access),
            self.lake.jobs.executors,
            mask=Mask(column, IdsFile(file).typed(pa.string(), column)),
        )
        asked = replace(asked, **changes)
        own = [
            IcebergTarget(self.lake.name, request, ledger)
            for request in targets.requests_by_column(asked, self.lake.name)
        ]
        places = [*own, *targets.erasure_targets(asked, [self.lake.name])]
        return Erasure(places, [self.lake.name], asked, ledger, lambda: False)

    def erase(self, *ids: Id, column: str = "id", **changes: Any) -> Report:
        report = self.erasure(*ids, column=column, **changes).run()
        assert report is not None
        return report

    def traces(self, *ids: Id) -> dict[str, list[Id]]:
        """The objects of the bucket that have an id, by the judge that reads them all."""
        return objects_with(self.lake.access.client("s3"), self.lake.bucket, ids)

    def parquet(self, key: str) -> pa.Table:
        """A Parquet file of the bucket, with all rows that are in it."""
        return pq.read_table(io.BytesIO(self.lake.read_object(f"s3://{self.lake.bucket}/{key}")))

    def rows(self, branch: str = "main") -> list[dict[str, Any]]:
        """All rows of a branch, in the order of their ids."""
        table = self.lake.load()
        table_rows = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).to_arrow().to_pylist()
        return sorted(table_rows, key=repr)


def of_table(report: Report) -> TargetReport:
    """What a report says of the Iceberg table."""
    [target] = [candidate for candidate in report.places if candidate.place.startswith("Iceberg table ")]
    return target


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def at_calls(lake: Lake, act: Callable[[int, str], object]) -> Iterator[None]:
    """As long as this lasts, call `act` with 1, 2, 3, … and "before" or "after" around each call of S3 and Glue."""
    number = iter(range(1, 1_000_000))

    def before(**_: object) -> None:
        act(next(number), "before")

    def after(parsed: Any, **_: object) -> None:
        try:
            act(next(number), "after")
        except Killed:
            close_body(parsed)
            raise

    with ExitStack() as registered:
        for service in ("s3", "glue"):
            events: Any = lake.access.client(service).meta.events
            for event, notice in ((f"before-call.{service}", before), (f"after-call.{service}", after)):
                events.register(event, notice)
                registered.callback(events.unregister, event, notice)
        yield


@contextmanager
def killed_at(lake: Lake, wanted: int) -> Iterator[list[int]]:
    """Die at the place of this number, and make no call after it; lend a list of all places that were reached."""
    reached: list[int] = []

    def act(number: int, _: str) -> None:
        reached.append(number)
        if number >= wanted:
            raise Killed

    with at_calls(lake, act):
        yield reached
