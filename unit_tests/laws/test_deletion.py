"""Nothing is deleted that a branch, a tag or a snapshot of an Iceberg table leads to, whoever wrote the table.

Tables are random: their types, transforms, format, metrics, writers, branches and tags. What is live is known from what
was done, not from reading the tables.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from destination_datalake.tables.glue.compare_and_set import METADATA
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.file_io import MANIFESTS
from destination_datalake.tables.iceberg.maintenance.cleanup import Expirer, OrphanRemover
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, cloud, ungoverned
from unit_tests.examples import IS_EXHAUSTIVE, long_examples
from unit_tests.tables.iceberg.maintenance.blocks import in_blocks_of

PORTIONS, TABLES = 20 if IS_EXHAUSTIVE else 1, long_examples(20, more=3)
ROUNDS = 5
"""How often something is removed from each table."""

TYPES: list[Callable[[random.Random], IcebergType]] = [
    *(lambda _, type_=type_: type_() for type_ in (BooleanType, IntegerType, LongType, FloatType, DoubleType)),
    *(lambda _, type_=type_: type_() for type_ in (DateType, TimeType, TimestampType, TimestamptzType)),
    *(lambda _, type_=type_: type_() for type_ in (StringType, BinaryType, UUIDType)),
    lambda chosen: FixedType(chosen.choice([1, 7, 16, 200])),
    *[lambda chosen: _decimal(chosen.randint(1, 38), chosen)] * 6,
]


def _decimal(precision: int, chosen: random.Random) -> DecimalType:
    return DecimalType(precision, chosen.randint(0, precision))


def value(type_: IcebergType, chosen: random.Random) -> Any:
    """Return a random value as manifests have it; of times only those that PyIceberg can make a folder's name of."""
    if chosen.random() < 0.15:
        return None
    match type_:
        case BooleanType():
            return chosen.random() < 0.5
        case DateType():
            return chosen.randint(-700_000, 2_900_000)
        case TimeType():
            return chosen.randint(0, 86_399_999_999)
        case TimestampType() | TimestamptzType():
            return chosen.randint(-62_000_000_000_000_000, 250_000_000_000_000_000)
        case IntegerType():
            return chosen.choice([chosen.randint(-1000, 8000), chosen.randint(-(2**31), 2**31 - 1)])
        case LongType():
            return chosen.randint(-(2**63), 2**63 - 1)
        case FloatType() | DoubleType():
            return chosen.choice([0.0, -0.0, 1.5, float("inf"), float("nan"), -1e30])
        case DecimalType(precision=precision, scale=scale):
            digits = tuple(chosen.randint(0, 9) for _ in range(chosen.randint(1, precision)))
            return Decimal((chosen.randint(0, 1), digits, -scale))
        case FixedType():
            return chosen.randbytes(len(type_))
        case UUIDType():
            return UUID(bytes=chosen.randbytes(16))
        case StringType():
            return "".join(chosen.choices("aZ é\ud7ff/%=\U0001f600", k=chosen.choice([0, 1, 50, 5000])))
    return chosen.randbytes(chosen.choice([0, 1, 63, 64, 8191]))


def transforms(type_: IcebergType, chosen: random.Random) -> list[Transform[Any, Any]]:
    every: list[Transform[Any, Any]] = [
        IdentityTransform(),
        BucketTransform(chosen.randint(1, 1000)),
        TruncateTransform(chosen.randint(1, 100)),
        YearTransform(),
        MonthTransform(),
        DayTransform(),
        HourTransform(),
        VoidTransform(),
    ]
    return [transform for transform in every if transform.can_transform(type_)]


class History:
    """One table, what was done to it, and what is live in each of its snapshots because of that."""

    def __init__(self, account: Cloud, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.s3 = account.access.client("s3")
        self.name = TableName("laws", f"t{seed}")
        self.operations = TableOperations(self.name, ungoverned(account.access))
        self.folder = f"laws/t{seed}"
        self.live: dict[int, frozenset[str]] = {}
        self.files: dict[str, DataFile] = {}
        self.deleted = 0
        self._create()

    def _create(self) -> None:
        chosen = self.chosen
        types = [chosen.choice(TYPES)(chosen) for _ in range(chosen.randint(1, 6))]
        fields = [NestedField(number, f"c {number}", type_) for number, type_ in enumerate(types, 2)]
        schema = Schema(NestedField(1, "id", LongType()), *fields)
        partitioned = chosen.sample(fields, chosen.randint(0, len(fields)))
        spec = PartitionSpec(*self._partition_fields(partitioned))
        properties = {
            "format-version": chosen.choice(["1", "2", "2"]),
            "write.metadata.metrics.default": chosen.choice(["none", "truncate(16)"]),
            "write.metadata.compression-codec": chosen.choice(["none", "gzip"]),
            "commit.manifest.min-count-to-merge": chosen.choice(["2", "3", "100"]),
        }
        self.has_metrics = properties["write.metadata.metrics.default"] != "none"
        self.operations.create(schema, f"s3://{BUCKET}/{self.folder}", spec, UNSORTED_SORT_ORDER, properties)
        self.commit(MAIN_BRANCH, [self.file()], [])

    def _partition_fields(self, sources: list[NestedField]) -> Iterator[PartitionField]:
        for number, source in enumerate(sources, 1000):
            transform = self.chosen.choice(transforms(source.field_type, self.chosen))
            yield PartitionField(source.field_id, number, transform, f"{source.name} {number}")

    # What is done to it

    def file(self) -> DataFile:
        """Upload a file and return its entry."""
        table, chosen = self.operations.load(), self.chosen
        key = f"{self.folder}/data/{uuid4().hex}.parquet"
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=b"x")
        counts = {field.field_id: chosen.randint(0, 9) for field in table.schema().fields} if self.has_metrics else None
        bounds = {id_: chosen.randbytes(chosen.randint(0, 16)) for id_ in counts or ()} if self.has_metrics else None
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"s3://{BUCKET}/{key}",
            file_format=FileFormat.PARQUET,
            partition=Record(*self._partition(table)),
            record_count=1,
            file_size_in_bytes=1,
            column_sizes=counts,
            value_counts=counts,
            null_value_counts=counts,
            nan_value_counts=counts,
            lower_bounds=bounds,
            upper_bounds=bounds,
        )
        file.spec_id = table.spec().spec_id
        self.files[file.file_path] = file
        return file

    def _partition(self, table: Table) -> Iterator[Any]:
        types = table.spec().partition_type(table.schema()).fields
        for field, type_ in zip(table.spec().fields, types, strict=True):
            is_of_time = isinstance(field.transform, YearTransform | MonthTransform | HourTransform)
            yield self.chosen.randint(-1000, 8000) if is_of_time else value(type_.field_type, self.chosen)

    def commit(self, branch: str, added: list[DataFile], removed: list[str]) -> None:
        before = self.operations.load().metadata.refs.get(branch)
        present = self.live[before.snapshot_id] if before is not None else frozenset()

        def build(table: Table, transaction: Transaction) -> None:
            if removed:
                change_branch(Change(added, [self.files[path] for path in removed]), branch, table, transaction)
            elif self.chosen.random() < 0.3:
                with transaction.update_snapshot(branch=branch).fast_append() as append:
                    for file in added:
                        append.append_data_file(file)
            else:
                change_branch(Change(added), branch, table, transaction)

        table, _ = self.operations.commit(build)
        head = table.metadata.refs[branch].snapshot_id
        self.live[head] = (present - {*removed}) | {file.file_path for file in added}
        if self.chosen.random() < 0.7:
            self._write_as_others_do(table, head)

    def _write_as_others_do(self, table: Table, snapshot_id: int) -> None:
        """Write the snapshot's own manifests again with many entries a block, as Iceberg's library does."""
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        assert snapshot is not None
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id == snapshot_id:
                path = manifest.manifest_path
                content = table.io.new_input(path).open().read()
                MANIFESTS.forget(path)
                key = path.removeprefix(f"s3://{BUCKET}/")
                body = in_blocks_of(self.chosen.choice([2, 3, 1000]), content)
                self.s3.put_object(Bucket=BUCKET, Key=key, Body=body)

    def branches(self) -> list[str]:
        refs = self.operations.load().metadata.refs
        return [name for name, ref in refs.items() if ref.snapshot_ref_type == "branch"]

    def append(self) -> None:
        self.commit(self.chosen.choice(self.branches()), [self.file() for _ in range(self.chosen.randint(1, 5))], [])

    def replace(self) -> None:
        branch = self.chosen.choice(self.branches())
        present = sorted(self.live[self.operations.load().metadata.refs[branch].snapshot_id])
        removed = self.chosen.sample(present, self.chosen.randint(0, len(present)))
        self.commit(branch, [self.file() for _ in range(self.chosen.randint(0, 2) or not removed)], removed)

    def adopt(self) -> None:
        """Add the files of a snapshot to a branch that has none of them, as a cherry-pick or an adoption does."""
        taken = self.live[
            self.chosen.choice([snapshot.snapshot_id for snapshot in self.operations.load().metadata.snapshots])
        ]
        if taken:
            branch = f"b{self.chosen.randint(0, 10**9)}"
            self.commit(branch, [self.files[path] for path in sorted(taken)], [])

    def refer(self) -> None:
        table = self.operations.load()
        snapshot = self.chosen.choice(table.metadata.snapshots).snapshot_id
        name = f"r{self.chosen.randint(0, 10**9)}"
        with table.manage_snapshots() as change:
            (change.create_tag if self.chosen.random() < 0.6 else change.create_branch)(snapshot, name)

    def unrefer(self) -> None:
        table = self.operations.load()
        refs = {name: ref for name, ref in table.metadata.refs.items() if name != MAIN_BRANCH}
        if refs:
            name = self.chosen.choice(sorted(refs))
            with table.manage_snapshots() as change:
                (change.remove_tag if refs[name].snapshot_ref_type == "tag" else change.remove_branch)(name)

    def roll_back(self) -> None:
        table = self.operations.load()
        with table.manage_snapshots() as change:
            change.set_current_snapshot(self.chosen.choice(table.metadata.snapshots).snapshot_id)

    # Removal, and what must hold after it

    def remove(self) -> None:
        if self.chosen.random() < 0.5:
            self._forget_all()
        for _ in range(2):
            self.s3.put_object(Bucket=BUCKET, Key=f"{self.folder}/data/{uuid4().hex}.parquet", Body=b"x")
        before, now = self.objects(), datetime.now(UTC)
        acts = [self._expire, self._remove_orphans]
        for act in self.chosen.sample(acts, self.chosen.randint(1, 2)):
            act(now + timedelta(days=self.chosen.choice([4, 6, 6])))
            self.check()
        self.deleted += len(before - self.objects())

    def _forget_all(self) -> None:
        """Let nothing be known that another process would not know."""
        METADATA.forget(self.operations.load().metadata_location)
        for path in self.objects():
            MANIFESTS.forget(path)

    def _expire(self, now: datetime) -> None:
        Expirer(self.operations, timedelta(days=5), self.chosen.randint(1, 3)).expire(
            now, lambda: True, dry_run=self.chosen.random() < 0.1
        )

    def _remove_orphans(self, now: datetime) -> None:
        OrphanRemover(self.operations, timedelta(days=3)).remove(now, lambda: True, dry_run=False)
        live = frozenset().union(
            *(self.live[snapshot.snapshot_id] for snapshot in self.operations.load().metadata.snapshots)
        )
        assert {path for path in self.objects() if path.endswith(".parquet")} == live

    def check(self) -> None:
        table, objects = self.operations.load(), self.objects()
        for snapshot in table.metadata.snapshots:
            assert self.live[snapshot.snapshot_id] <= objects
            assert snapshot.manifest_list in objects
            assert {manifest.manifest_path for manifest in snapshot.manifests(table.io)} <= objects
        assert {ref.snapshot_id for ref in table.metadata.refs.values()} <= {
            snapshot.snapshot_id for snapshot in table.metadata.snapshots
        }

    def objects(self) -> set[str]:
        # Listing takes moto half of the law's time.
        return {f"s3://{BUCKET}/{key}" for key in s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys}


@pytest.mark.law
@pytest.mark.parametrize("portion", range(PORTIONS))
def test_no_live_object_is_deleted(portion: int) -> None:
    deleted = 0
    for seed in range(portion * TABLES, (portion + 1) * TABLES):
        with cloud() as account:
            account.access.client("glue").create_database(DatabaseInput={"Name": "laws"})
            try:
                deleted += _deleted_in(History(account, seed))
            except BaseException as error:
                error.add_note(f"seed {seed}")
                raise
    assert deleted > TABLES * ROUNDS


def _deleted_in(history: History) -> int:
    changes = [history.append, history.append, history.replace, history.adopt, history.refer, history.roll_back]
    for _ in range(ROUNDS):
        for act in history.chosen.choices([*changes, history.unrefer], k=4):
            act()
        history.remove()
    return history.deleted
