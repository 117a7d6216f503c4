"""The loop of changes whose files are written by jobs: plan, run the jobs, commit, and plan again after a conflict.

Merges, erasures of rows and compactions are such changes. Concurrency is optimistic: jobs run without a lock, and a
commit is accepted only on the metadata that it was planned on. Results of jobs are kept by what they depend on, so that
no job is repeated for files that are still the same.
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
    """A table cannot be changed. The message is a clause about it, with the remedy, without a full stop."""


class StalePlan(Exception):
    """The table has changed, so more jobs have to run before there can be a commit."""


class Rework(ABC, Generic[_Plan, _Outcome]):
    """One change to one table. A subclass defines the plan, the jobs and the snapshots."""

    def __init__(self, operations: TableOperations, attempts: int, cannot: str, when_busy: str) -> None:
        """Messages of errors begin with `cannot`. That of TableBusy, after the last attempt, ends with `when_busy`."""
        self.operations = operations
        self._attempts = attempts
        self._cannot = cannot
        self._when_busy = when_busy
        self._planned: tuple[str, _Plan | None] | None = None
        """The last plan, and the metadata file that it was made for."""

    @abstractmethod
    def plan(self, table: Table) -> _Plan | None:
        """Return the plan for a table as it is; None if there is nothing to do. Raises Unsuitable."""

    @abstractmethod
    def sources(self, plan: _Plan) -> frozenset[str]:
        """Return the URIs of the files that jobs of a plan may read."""

    @abstractmethod
    def run_jobs(self, plan: _Plan) -> None:
        """Run the jobs that have no result yet. Raises ConnectorError if one fails, and StalePlan."""

    @abstractmethod
    def change(self, plan: _Plan, table: Table, transaction: Transaction) -> _Outcome | None:
        """Add the change to a transaction. Raises StalePlan if a job has no result yet. None: there is nothing to do.

        `plan` is that of `table`, which may have changed since the jobs have run.
        """

    @abstractmethod
    def unused(self, outcome: _Outcome | None) -> Iterable[Uncommitted]:
        """Return the files that jobs have written and the table does not have; None: nothing was committed."""

    def rework(self) -> tuple[Table, _Outcome] | None:
        """Plan, run jobs and commit until a commit is made, then delete unused files.

        Returns the table after the commit, and what `change` has returned; None if there was nothing to do. Raises
        TableBusy if other writers were faster at every attempt, TableConflict, ConnectorError, CommitStateUnknown and
        errors of AWS. After the last two the table may have the new files, so they are kept.
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
        """Return what `act` returns for the plan of the table as it is; None if there is nothing to do.

        After a conflict or StalePlan, the table is loaded and planned again. Raises TableBusy after the last attempt.
        """
        for _ in range(self._attempts):
            with suppress(StalePlan, CommitFailedException):
                plan = self._load()
                return None if plan is None else act(plan)
        raise TableBusy(f"{self._cannot}: other writers have changed its files at every attempt. {self._when_busy}")

    def _load(self) -> _Plan | None:
        """Load and plan the table. Raises CommitFailedException if manifests have expired meanwhile."""
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
            # Another writer may have replaced files of the plan, and deleted them.
            latest = self._load()
            if latest is not None and self.sources(plan) <= self.sources(latest):
                raise
            raise StalePlan from error
        # Loaded again: while the jobs ran, the table may have changed, or may have been dropped and created again.
        table, outcome = self.operations.commit(self._build)
        return None if outcome is None else (table, outcome)

    def _build(self, table: Table, transaction: Transaction) -> _Outcome | None:
        plan = self._plan_of(table)
        return None if plan is None else self.change(plan, table, transaction)


# --- what merges and erasures require of a table ----------------------------------------------------------------------


def rewritable_schema(metadata: TableMetadata) -> pa.Schema:
    """Return the table's schema for new files. Raises Unsuitable if it has types that are not supported."""
    if (schema := arrow_schema(metadata.schema())) is None:
        raise Unsuitable(
            "it has columns of types that this connector does not write, so its files cannot be written again. Drop "
            "those columns"
        )
    return schema


def require_parquet(files: Iterable[LiveFile]) -> None:
    """Raise Unsuitable unless all files are Parquet files."""
    if any(file.entry.file_format != FileFormat.PARQUET for file in files):
        raise Unsuitable(
            "some of its files are not Parquet files. Set its property write.format.default to parquet and rewrite "
            "them (in Spark rewrite_data_files with rewrite-all)"
        )


# --- removals of rows from files, which merges and erasures share -----------------------------------------------------


_TASKS_PER_JOB = 1000
"""Spark's driver holds all tasks of a job in memory, and each has the table's schema."""


@dataclass(slots=True)
class Removals:
    """Removes rows from files on executors.

    `results` are by key: whatever a result depends on. `written` has the new files of all results, needed or not.
    """

    executors: Executors
    results: dict[Hashable, Removed] = field(default_factory=dict)
    written: list[WrittenFile] = field(default_factory=list)

    def run(self, tasks: Mapping[Hashable, RemoveTask]) -> None:
        """Run the tasks. Raises ConnectorError if one fails; the results of other tasks are kept."""
        # Large files first, so that no executor is left alone with one in the end.
        ordered = sorted(tasks.items(), key=lambda item: sum(file.source.size for file in item[1].files), reverse=True)
        for begin in range(0, len(ordered), _TASKS_PER_JOB):
            batch = dict(ordered[begin : begin + _TASKS_PER_JOB])
            results = self.executors.run(remove, [*batch.values()])
            for key, result in zip(batch, results, strict=True):
                if not isinstance(result, Failed):
                    self.results[key] = result
                    self.written += result.written
            results_or_raise(results)

    def of(self, key: Hashable) -> Removed:
        """Return the result for a key. Raises StalePlan if there is none."""
        if (result := self.results.get(key)) is None:
            raise StalePlan
        return result


def folder_of_new_file(old: str, folder: str) -> str:
    """Return the folder of an old file if it is in `folder` (a URI without a slash at its end), else `folder`."""
    own = old.rpartition("/")[0]
    return own if f"{own}/".startswith(f"{folder}/") else folder
