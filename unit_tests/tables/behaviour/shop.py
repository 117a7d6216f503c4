"""The table `orders` of one table type, and syncs into it: what executors and tables do of a sync, without Spark."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import DataFile, Encoded, EncodeTask, EncodeUnit, RewriteTask, Rewritten
from destination_datalake.files.rewrite import publish_rewritten, rewrite
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.factory import open_table
from destination_datalake.tables.fencing import TOKEN_PROPERTY
from destination_datalake.tables.glue.catalog import GlueTableCatalog
from destination_datalake.tables.table import Committed, Table, TableName
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from unit_tests.cloud import at_the_next_update, during, on_disk
from unit_tests.tables.behaviour.promises import PROMISES, Promises
from unit_tests.tables.jobs import in_process

Record = Mapping[str, Any]

SCHEMA: Mapping[str, Any] = {"id": {"type": "integer"}}
WIDE = 2**40
"""An id that only a bigint column holds."""


class Executors:
    """Rewrites files as the executors do, and counts them."""

    def __init__(self) -> None:
        self.rewritten = 0

    def rewrite(self, tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        answers = publish_rewritten([*rewrite(tasks)], tasks[0].access)
        assert len(answers) == len(tasks)
        self.rewritten += sum(answer.uri != answer.source for answer in answers)
        return answers


@dataclass
class Sync:
    """A sync of the stream whose table is prepared."""

    stream: StreamId
    table: Table
    access: AwsAccess
    folder: Path
    executors: Executors = field(default_factory=Executors)

    def encode(self, *records: Record) -> list[DataFile]:
        """Return a data file with the records, as the executors leave it."""
        batch = self.folder / uuid4().hex
        batch.write_bytes(b"".join(self._line(record) for record in records))
        rejects = RejectLocation("s3://no-such-bucket", "run", "2026-01-01", *self.table.name)
        unit = EncodeUnit(self.stream, batch.name, (on_disk(batch),), self.table.plan(), rejects)
        [result] = encode([EncodeTask((unit,), self.access)])
        assert isinstance(result, Encoded), result
        assert not result.rejects
        return [*result.files]

    def commit(self, *records: Record) -> int:
        """Encode and commit the records as often as the table asks for it; return how often that was."""
        for encodings in range(1, 4):
            if self.table.commit(self.encode(*records), self.executors.rewrite) == Committed():
                return encodings
        raise AssertionError("the batch was encoded three times and is not committed")

    def publish(self) -> None:
        self.table.publish(self.executors.rewrite)

    def _line(self, record: Record) -> bytes:
        stream = {"stream": self.stream.name, "namespace": self.stream.namespace}
        message = {"type": "RECORD", "record": {**stream, "data": record, "emitted_at": 1_700_000_000_000}}
        return json.dumps(message).encode() + b"\n"


class Shop:
    """A table of one type in a database of its own."""

    def __init__(self, lake: Lake, kind: TableKind, folder: Path) -> None:
        self.lake = lake
        self.kind = kind
        self.name = TableName(lake.name(f"shop_{uuid4().hex[:8]}"), "orders")
        self._stream = StreamId(self.name.database, "orders")
        self._prefix = f"{PREFIX}/{self.name.database}/"
        self._access = AwsAccess(REGION, AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY), lake.endpoint_url)
        self._folder = folder

    @property
    def access(self) -> AwsAccess:
        """The access whose clients the syncs use."""
        return self._access

    @property
    def promises(self) -> Promises:
        return PROMISES[self.kind.name]

    def sync(
        self,
        generation: int | None = 1,
        *,
        overwrite: bool = False,
        schema: Mapping[str, Any] = SCHEMA,
        kind: TableKind | None = None,
        sync_id: int | None = None,
        **options: object,
    ) -> Sync:
        """Begin a sync. Without a generation an overwrite is that of a platform without refreshes."""
        minimum = None if generation is None else generation if overwrite else 0
        json_schema = {"type": "object", "properties": schema}
        stream = Stream(self._stream, json_schema, overwrite and generation is None, generation, minimum, sync_id)
        config = Config.parse(self.lake.config(**{**(kind or self.kind).options, **options}))
        context = TableContext(uuid4().hex, self._access, self._databases(config), in_process())
        table = open_table(stream, self.name, config, context)
        table.prepare()
        return Sync(self._stream, table, self._access, self._folder)

    def _databases(self, config: Config) -> GlueTableCatalog:
        governance = Governance(Policy.from_config(config), self._access)
        governance.govern_location()
        return GlueTableCatalog(self._access, governance)

    # What readers find

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that a reader finds, without the connector's own columns, in the order of their ids."""
        rows = self.lake.rows(*self.name)
        shown = [{name: row[name] for name in row if not name.startswith("_airbyte_")} for row in rows]
        return sorted(shown, key=lambda row: str(row["id"]))

    def rows_if_any(self) -> list[dict[str, Any]]:
        """Return the rows; none if there is no table."""
        try:
            return self.rows()
        except self.lake.glue.exceptions.EntityNotFoundException:
            return []

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.lake.rows(*self.name))

    def types(self) -> dict[str, str]:
        """Return the Glue types of the table's columns, without the connector's own."""
        columns = self.lake.columns(*self.name).items()
        return {name: type_ for name, type_ in columns if not name.startswith("_airbyte_")}

    def stored_types(self, column: str) -> set[pa.DataType]:
        """Return the types of a column in the files that readers see, which are Parquet."""
        keys = self.lake.data_files(*self.name)
        bodies = [self.lake.s3.get_object(Bucket=self.lake.bucket, Key=key)["Body"].read() for key in keys]
        return {pq.read_schema(pa.BufferReader(body)).field(column).type for body in bodies}

    def objects(self) -> set[str]:
        """Return the keys of the database's objects, and of its unfinished uploads."""
        return {*self.lake.objects(self._prefix), *self.unfinished_uploads()}

    def unfinished_uploads(self) -> set[str]:
        """Return the keys of the database's uploads that were neither completed nor aborted."""
        return {key for key in self.lake.unfinished_uploads() if key.startswith(self._prefix)}

    def fencing_token(self) -> str | None:
        """Return the token in the Glue table's parameters, where every table type has it."""
        return self.lake.glue_table(*self.name)["Parameters"].get(TOKEN_PROPERTY)

    # What happens meanwhile

    def at_the_next_update(self, act: Callable[[], object], *, response_lost: bool = False) -> None:
        """Call `act` just before the next update of the Glue table; or after it, and lose the update's response."""
        at_the_next_update(self._access, act, response_lost=response_lost)

    def before_each_update(self, act: Callable[[], object]) -> AbstractContextManager[None]:
        """Call `act` just before every update of the Glue table."""

        def notice(**_: Any) -> None:
            act()

        return during(self._access, "before-call.glue.UpdateTable", notice)

    @contextmanager
    def before_catalog_call(self, number: int, act: Callable[[], object]) -> Iterator[None]:
        """Call `act` just before the request to Glue of this number, from 1, or the update if that comes earlier."""
        events: Any = self._access.client("glue").meta.events
        numbers = count(1)
        done: list[bool] = []

        def notice(model: Any, **_: Any) -> None:
            if not done and (next(numbers) == number or model.name == "UpdateTable"):
                done.append(True)
                act()

        events.register("before-call.glue", notice)
        try:
            yield
        finally:
            events.unregister("before-call.glue", notice)
        assert done, f"there were fewer than {number} requests"

    def remove_properties(self, *names: str) -> None:
        """Remove properties of the table, as its owner does in another engine."""
        if self.kind.name == "iceberg":
            with self.lake.iceberg_table(*self.name).transaction() as transaction:
                transaction.remove_properties(*names)
            return
        table = self.lake.glue_table(*self.name)
        kept = {name: value for name, value in table["Parameters"].items() if name not in names}
        changed: Any = {key: table[key] for key in ("Name", "TableType", "StorageDescriptor")} | {"Parameters": kept}
        self.lake.glue.update_table(DatabaseName=self.name.database, TableInput=changed)

    def drop(self) -> None:
        self.lake.glue.delete_table(DatabaseName=self.name.database, Name=self.name.table)


_SIDE_BY_SIDE = [kind for kind in TABLE_KINDS if PROMISES[kind.name].appends_side_by_side]
_ONE_AT_A_TIME = [kind for kind in TABLE_KINDS if kind not in _SIDE_BY_SIDE]
side_by_side = pytest.mark.parametrize("kind", _SIDE_BY_SIDE, indirect=True, ids=lambda kind: kind.name)
"""Of the table types to which any number of syncs may append at the same time."""
one_at_a_time = pytest.mark.parametrize("kind", _ONE_AT_A_TIME, indirect=True, ids=lambda kind: kind.name)
"""Of the table types that one sync at a time writes to: the newest."""


def ids(*numbers: int) -> list[Record]:
    return [{"id": number} for number in numbers]
