"""The commit loop of merges, erasures and compactions: plan, run jobs that write files, commit, retry.

Jobs run without a lock. The catalog accepts a commit only if the table still has the metadata on which the commit was
planned. After a conflict, the table is planned again. No job is repeated for unchanged files, because the key of a
job's result contains everything on which the result depends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import FileFormat
from pyiceberg.table import Table, Transaction

from destination_datalake.aws.objects import Uncommitted
from destination_datalake.errors import ConnectorError
from destination_datalake.files.dedup.remove import remove
from destination_datalake.files.jobs import Failed, results_or_raise
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.schema import arrow_schema
from destination_datalake.tables.table import TableBusy, TableConflict

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.files.dedup.tasks import Removed, RemoveTask
    from destination_datalake.files.plan import WrittenFile
    from destination_datalake.tables.context import Executors
    from destination_datalake.tables.iceberg.snapshots.files import LiveFile

_Plan = TypeVar("_Plan")
_Outcome = TypeVar("_Outcome")
_Result = TypeVar("_Result")


class Unsuitable(Exception):
    """The table cannot be changed. The message is a clause about the table with a remedy, without a full stop."""


class StalePlan(Exception):
    """The table has changed since it was planned. More jobs must run before the commit."""


class Rework(ABC, Generic[_Plan, _Outcome]):
    """One change of one table, with jobs that write the new files. Subclasses define the plan, jobs and commit."""

    def __init__(self, operations: TableOperations, attempts: int, cannot: str, when_busy: str) -> None:
        """Store what error messages say.

        All messages begin with `cannot`. The message of TableBusy, after the last attempt, ends with `when_busy`.
        """
        self.operations = operations
        self._attempts = attempts
        self._cannot = cannot
        self._when_busy = when_busy
        self._planned: tuple[str, _Plan | None] | None = None
        """The location of the metadata file that was last planned, and the plan for it."""

    @abstractmethod
    def plan(self, table: Table) -> _Plan | None:
        """Return the plan for the table's present state, or None if there is nothing to do. Raises Unsuitable."""

    @abstractmethod
    def sources(self, plan: _Plan) -> frozenset[str]:
        """Return the URIs of all files that the plan's jobs may read."""

    @abstractmethod
    def run_jobs(self, plan: _Plan) -> None:
        """Run the plan's jobs that have no result yet. Raises ConnectorError if a job fails, and StalePlan."""

    @abstractmethod
    def change(self, plan: _Plan, table: Table, transaction: Transaction) -> _Outcome | None:
        """Add the change to a transaction. Return its outcome, or None if there is nothing to do.

        `plan` is the plan for the state in `table`, which may have changed since the jobs ran. Raises StalePlan if a
        job of the plan has no result yet.
        """

    @abstractmethod
    def unused(self, outcome: _Outcome | None) -> Iterable[Uncommitted]:
        """Return the files that jobs have written but the table does not contain.

        `outcome` is the outcome of the commit, or None if nothing was committed.
        """

    def rework(self) -> tuple[Table, _Outcome] | None:
        """Plan, run jobs and commit until a commit succeeds. Then delete unused files.

        Returns the table after the commit with the outcome of `change`, or None if there was nothing to do.

        Raises TableConflict, ConnectorError, and TableBusy if other writers committed first at every attempt. Also
        raises CommitStateUnknown and errors of AWS. After these two, the new files are kept, because the table may
        contain them.
        """
        self._planned = None
        try:
            committed = self.with_plan(self._commit)
        except (TableBusy, TableConflict, ConnectorError):
            self.operations.delete_uncommitted(self.unused(None))
            raise
        self.operations.delete_uncommitted(self.unused(None if committed is None else committed[1]))
        return committed

    def with_plan(self, act: Callable[[_Plan], _Result]) -> _Result | None:
        """Call `act` with the plan of the table's present state, and return its result.

        Return None if there is nothing to do. After a conflict or StalePlan, load and plan the table again. Raises
        TableBusy after the last attempt.
        """
        for _ in range(self._attempts):
            with suppress(StalePlan, CommitFailedException):
                plan = self._load()
                return None if plan is None else act(plan)
        raise TableBusy(f"{self._cannot}: other writers changed its files during every attempt. {self._when_busy}")

    def _load(self) -> _Plan | None:
        """Load and plan the table. Raises CommitFailedException if another writer deletes its manifests meanwhile."""
        table = self.operations.load()
        with self.operations.planning_on(table):
            return self._plan_of(table)

    def _plan_of(self, table: Table) -> _Plan | None:
        if self._planned is None or self._planned[0] != table.metadata_location:
            try:
                self._planned = table.metadata_location, self.plan(table)
            except Unsuitable as error:
                raise TableConflict(f"{self._cannot}: {error}.") from error
        return self._planned[1]

    def _commit(self, plan: _Plan) -> tuple[Table, _Outcome] | None:
        try:
            self.run_jobs(plan)
        except ConnectorError as error:
            # Another writer may have replaced and deleted files of the plan, so that the job failed.
            latest = self._load()
            if latest is not None and self.sources(plan) <= self.sources(latest):
                raise
            raise StalePlan from error
        # Load the table again, because it may have been changed or recreated while the jobs ran.
        table, outcome = self.operations.commit(self._build)
        return None if outcome is None else (table, outcome)

    def _build(self, table: Table, transaction: Transaction) -> _Outcome | None:
        plan = self._plan_of(table)
        return None if plan is None else self.change(plan, table, transaction)


# --- what merges and erasures require of a table ----------------------------------------------------------------------


def rewritable_schema(metadata: TableMetadata) -> pa.Schema:
    """Return the Arrow schema for rewritten files of the table. Raises Unsuitable if a type is unsupported."""
    if (schema := arrow_schema(metadata.schema())) is None:
        raise Unsuitable(
            "it contains columns of types that this connector does not support, so the connector cannot rewrite its "
            "files. Drop those columns"
        )
    return schema


def require_parquet(files: Iterable[LiveFile]) -> None:
    """Raise Unsuitable with a remedy if a file is not a Parquet file, because only Parquet files can be rewritten."""
    if any(file.entry.file_format != FileFormat.PARQUET for file in files):
        raise Unsuitable(
            "some of its files are not Parquet files. Set its property write.format.default to parquet and rewrite "
            "these files (Spark: rewrite_data_files with rewrite-all)"
        )


# --- removal of rows from files, shared by merges and erasures --------------------------------------------------------


_TASKS_PER_JOB = 1000
"""Maximum number of tasks per job. Spark's driver holds all of them in memory, each with the table's schema."""


@dataclass(slots=True)
class Removals:
    """Removes rows from files on the executors, and keeps the results for later attempts.

    The keys of `results` contain everything on which a result depends. `written` contains the new files of all results,
    even those that the commit does not need.
    """

    executors: Executors
    results: dict[Hashable, Removed] = field(default_factory=dict)
    written: list[WrittenFile] = field(default_factory=list)

    def run(self, tasks: Mapping[Hashable, RemoveTask]) -> None:
        """Run the tasks, and store their results by the same keys.

        Raises ConnectorError if a task fails, but keeps the results of the others.
        """
        # Run large files first, so that no executor is still busy with one when the others have finished.
        ordered = sorted(tasks.items(), key=lambda item: sum(file.source.size for file in item[1].files), reverse=True)
        for begin in range(0, len(ordered), _TASKS_PER_JOB):
            batch = dict(ordered[begin : begin + _TASKS_PER_JOB])
            results = self.executors.run(remove, [*batch.values()])
            for key, result in zip(batch, results, strict=True):
                if not isinstance(result, Failed):
                    self.results[key] = result
                    self.written += result.written
            results_or_raise(results)

    def result(self, key: Hashable) -> Removed:
        """Return the result for a key. Raises StalePlan if no task has produced it yet."""
        if (result := self.results.get(key)) is None:
            raise StalePlan
        return result


def folder_of_new_file(old: str, folder: str) -> str:
    """Return the folder for the file that replaces the file `old`.

    This is the folder of `old` if it is `folder` or inside it, otherwise `folder`. `folder` is a URI without a trailing
    slash.
    """
    own = old.rpartition("/")[0]
    return own if f"{own}/".startswith(f"{folder}/") else folder
