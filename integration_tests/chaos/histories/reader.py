"""The table as a reader of its catalog finds it, held against what was sent. Iceberg's fields are found by id."""

import gzip
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from botocore.exceptions import ClientError
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import StaticTable
from pyiceberg.types import (
    DoubleType,
    IcebergType,
    ListType,
    StructType,
)

from integration_tests.chaos.attempts.source import STREAM, Sending, Sent
from integration_tests.chaos.histories.judge import Columns
from integration_tests.chaos.histories.typed import FIXED, TypedSent
from integration_tests.chaos.verdicts.reader import Broken, Reader
from integration_tests.harness.engines.catalog import NULL
from integration_tests.harness.engines.projection import Projection, is_projected
from integration_tests.harness.glue_types import split
from integration_tests.harness.lake import Lake

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import StorageDescriptorOutputTypeDef, TableTypeDef

Row = dict[str, Any]


class TypedReader(Reader):
    """Reads one lake's only table, of a history."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self._columns = Columns()
        self._changed = set[Sending]()
        self._objects = _Objects(lake)
        self._judged: dict[object, Mapping[int, Sending]] = {}

    def sendings(self, sent: Mapping[Sending, Sent]) -> frozenset[Sending]:
        """Return which sendings are in the table; none if there is no table yet.

        Raises Broken if it cannot be read, holds one twice, holds what was not sent, or a value is another one.
        """
        try:
            entry = self.lake.glue_table(self.lake.database, STREAM)
        except ClientError as error:
            if error.response["Error"]["Code"] == "EntityNotFoundException":
                return frozenset()
            raise
        is_iceberg = entry.get("Parameters", {}).get("table_type", "").upper() == "ICEBERG"
        try:
            counts = Counter(self._iceberg(entry, sent) if is_iceberg else self._hive(entry, sent))
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"the table cannot be read: {type(error).__name__}: {error}") from error
        if twice := [tuple(sending) for sending, times in counts.items() if times > 1]:
            raise Broken(f"there more than once, although sent once (position, attempt): {sorted(twice)}")
        return frozenset(counts)

    def _known(
        self, content: object, read: Callable[[], Iterable[Row]], sent: Mapping[Sending, Sent]
    ) -> Mapping[int, Sending]:
        """Return the rows of a file by their positions: it is read and judged once for each schema of the table."""
        if content not in self._judged:
            self._judged[content] = {number: self._judge(row, sent) for number, row in enumerate(read())}
        return self._judged[content]

    def _judge(self, row: Row, sent: Mapping[Sending, Sent]) -> Sending:
        sending = Sending(row.get("position"), row.get("attempt"))  # type: ignore[arg-type]
        record = sent.get(sending)
        if not isinstance(record, TypedSent) or record.row is None:
            raise Broken(f"a row that was not sent: {tuple(sending)}")
        try:
            if self._columns.judge(row, record.row, record.doubtful):
                self._changed.add(sending)
        except Broken as error:
            raise Broken(f"{tuple(sending)}: {error}") from error
        return sending

    def rejected(self) -> frozenset[Sending]:
        """Return the sendings that an object under `_errors/` keeps. Raises Broken if one is not there that must be."""
        rejected = super().rejected()
        if missing := self._changed - rejected:
            raise Broken(
                f"values of these are changed, and they are not among the rejects: {sorted(map(tuple, missing))}"
            )
        return rejected

    def _iceberg(self, entry: "TableTypeDef", sent: Mapping[Sending, Sent]) -> Iterator[Sending]:
        files = self._objects
        location = entry["Parameters"]["metadata_location"]
        metadata = FromInputFile.table_metadata(files.new_input(location))
        table = StaticTable(("", STREAM), metadata, location, files, cast("Any", None))
        scan = table.scan()
        struct = scan.projection().as_struct()
        names, asked = str(struct), 0
        for task in scan.plan_files():
            path = task.file.file_path
            dead = {
                row["pos"]
                for delete_file in task.delete_files
                for row in files.parquet(delete_file.file_path).to_pylist()
                if row["file_path"] == path
            }
            is_new = (path, names) not in self._judged
            known = self._known((path, names), partial(_rows_by_id, files, path, struct), sent)
            live = [sending for number, sending in known.items() if number not in dead]
            if is_new and live and asked < _ASKED:
                asked += 1
                _require_found(table, path, sent[live[0]].row or {})
            yield from live

    def _hive(self, entry: "TableTypeDef", sent: Mapping[Sending, Sent]) -> Iterator[Sending]:
        types = _types(entry["StorageDescriptor"])
        keys = [key["Name"] for key in entry.get("PartitionKeys", ())]
        projection = Projection.from_entry(entry) if is_projected(entry) else None
        partitions = {
            partition["StorageDescriptor"]["Location"].rstrip("/"): partition
            for page in self.lake.glue.get_paginator("get_partitions").paginate(
                DatabaseName=self.lake.database, TableName=STREAM
            )
            for partition in page["Partitions"]
        }
        is_stale = _STALE in entry.get("Parameters", {})
        for key in self.lake.data_files(self.lake.database, STREAM):
            read = _rows_by_name if "parquet" in key else _rows_of_lines
            uri = f"s3://{self.lake.bucket}/{key}"
            declared, values = types, None if projection is None else projection.values(uri)
            if projection is None and (partition := partitions.get(uri.rpartition("/")[0])) is not None:
                declared = _types(partition["StorageDescriptor"])
                values = dict(zip(keys, partition["Values"], strict=True))
                require_partition_types(declared, types, is_stale=is_stale)
            known = self._known((key, str(declared)), partial(read, self._objects, uri, declared), sent)
            for sending in known.values():
                _require_partition(values or {}, sent[sending].row or {}, uri)
            yield from known.values()


_STALE = "airbyte.partition-index"
"""The parameter of a table whose partitions are not all as the table is, which the next sync brings up to date."""

_WIDER = {("int", "bigint"), ("float", "double")}
"""Types of a partition and of its table for which Athena and Trino read the partition's files by its own type."""


def require_partition_types(own: Mapping[str, str], table: Mapping[str, str], *, is_stale: bool) -> None:
    """Fail if engines refuse to read a partition's columns as the table's, or if they stay different for ever."""
    for name in own.keys() & table.keys():
        if own[name] == table[name]:
            continue
        if not _is_part(own[name], table[name], _WIDER):
            raise Broken(f"{name} is {table[name]} in the table, and {own[name]} in a partition")
        if not is_stale:
            raise Broken(f"{name} is {table[name]} in the table, and {own[name]} in a partition that is not stale")


def _require_found(table: StaticTable, path: str, sent: Mapping[str, object]) -> None:
    """Fail if a query for a row does not look into the file that it is in, by partitions and statistics."""
    for name in ("code", "label", "day"):
        value = sent.get(name)
        kind: Any = IsNull if value is None else EqualTo
        asked = kind(name) if value is None else kind(name, value)
        if path not in {task.file.file_path for task in table.scan(row_filter=asked).plan_files()}:
            raise Broken(f"a query for {name} = {value!r} does not read {path}, where it is")


_ASKED = 2
"""Of so many new files of a table, queries are asked for a row: each plans a scan of all files."""

_KEY = re.compile(f"({'|'.join(FIXED)})_(date|year|month|day|hour|key)")
"""The names of partition keys that say what they are of."""


def _require_partition(values: Mapping[str, str], sent: Mapping[str, object], uri: str) -> None:
    """Fail if a row is in a partition that is not its own."""
    for key, text in values.items():
        named = _KEY.fullmatch(key)
        if named and unquote(text) not in _texts(sent.get(named[1]), named[2]):
            raise Broken(f"a row with {named[1]} {sent.get(named[1])!r} is in the partition {key}={text}: {uri}")


def _texts(value: object, part: str) -> Collection[str]:
    """Return how a partition may spell a value, or a part of it."""
    if value is None:
        return {NULL}
    if part == "key":
        return {str(value), unquote(str(value))}
    moment = datetime.fromisoformat(str(value))
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    number = {"date": 0, "year": moment.year, "month": moment.month, "day": moment.day, "hour": moment.hour}[part]
    whole = {"date": 10, "year": 4, "month": 7, "day": 10, "hour": 13}[part]
    spelled = moment.strftime("%Y-%m-%d-%H").rjust(13, "0")[:whole]
    return {spelled, spelled[:10] + " " + spelled[11:], str(number), f"{number:02d}", f"{number:04d}"}


def _types(descriptor: "StorageDescriptorOutputTypeDef") -> dict[str, str]:
    return {column["Name"]: column["Type"] for column in descriptor["Columns"]}


def _rows_by_id(files: "_Objects", uri: str, struct: StructType) -> Iterator[Row]:
    content = files.parquet(uri)
    for row in content.to_pylist():
        yield _by_id(row, pa.struct([*content.schema]), struct)


def _rows_by_name(files: "_Objects", uri: str, types: Mapping[str, str]) -> Iterator[Row]:
    content = files.parquet(uri)
    names = {name.lower(): name for name in content.column_names}
    for name, declared in types.items():
        if name in names:
            held = _glue_type(content.schema.field(names[name]).type)
            if not _is_part(held, declared):
                raise Broken(f"{name} is {declared} in the catalog, and {held} in {uri}")
    for row in content.to_pylist():
        yield {name: row.get(names.get(name, "")) for name in types}


def _rows_of_lines(files: "_Objects", uri: str, types: Mapping[str, str]) -> Iterator[Row]:
    body = files.get(uri)
    for line in (gzip.decompress(body) if uri.endswith(".gz") else body).splitlines():
        row = json.loads(line, parse_float=Decimal)
        yield {name: row.get(name) for name in types}


def _by_id(value: Any, held: Any, wanted: IcebergType) -> Any:
    """A value of a file, with the names that the table's schema has for the fields' ids."""
    if value is None:
        return None
    match wanted:
        case StructType(fields=fields):
            members = {int(member.metadata[b"PARQUET:field_id"]): member for member in held}
            return {
                field.name: _by_id(value[members[field.field_id].name], members[field.field_id].type, field.field_type)
                if field.field_id in members
                else None
                for field in fields
            }
        case ListType(element_type=element):
            return [_by_id(entry, held.value_type, element) for entry in value]
    if pa.types.is_float32(held) and isinstance(wanted, DoubleType):
        raise Broken("a file holds a float in a column that is a double")
    return value


_GLUE = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.date32(): "date",
}


def _glue_type(held: pa.DataType) -> str:
    if pa.types.is_struct(held):
        return f"struct<{','.join(f'{member.name}:{_glue_type(member.type)}' for member in held)}>"
    if pa.types.is_list(held):
        return f"array<{_glue_type(held.value_type)}>"
    if pa.types.is_decimal(held):
        return f"decimal({held.precision},{held.scale})"
    return "timestamp" if pa.types.is_timestamp(held) else _GLUE[held]


def _is_part(held: str, declared: str, wider: Collection[tuple[str, str]] = ()) -> bool:
    """Whether a type is the declared one, or lacks members of structs, as those of older files do.

    `wider` are pairs of a type and of one by which it may be declared, too.
    """
    if held == declared or (held, declared) in wider:
        return True
    (outer, _, inner), (declared_outer, _, wanted) = held.partition("<"), declared.partition("<")
    if outer != declared_outer or not inner:
        return False
    if outer == "array":
        return _is_part(inner[:-1], wanted[:-1], wider)
    members = dict(part.split(":", 1) for part in split(wanted[:-1]))
    return all(
        name in members and _is_part(kind, members[name], wider)
        for name, kind in (part.split(":", 1) for part in split(inner[:-1]))
    )


class _Objects(FileIO):
    """What PyIceberg reads metadata with: objects that nobody writes twice."""

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self._lake = lake
        self._kept: dict[str, bytes] = {}

    def get(self, uri: str) -> bytes:
        """Return what no one ever changes."""
        if uri not in self._kept:
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            self._kept[uri] = self._lake.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        return self._kept[uri]

    def parquet(self, uri: str) -> pa.Table:
        return pq.read_table(io.BytesIO(self.get(uri)))

    def new_input(self, location: str) -> InputFile:
        return _Object(location, self)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError


class _Object(InputFile):
    def __init__(self, location: str, objects: _Objects) -> None:
        super().__init__(location)
        self._objects = objects

    def __len__(self) -> int:
        return len(self._objects.get(self.location))

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        return cast("InputStream", io.BytesIO(self._objects.get(self.location)))
