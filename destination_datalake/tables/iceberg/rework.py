"""The commit loop of merges, erasures and compactions: plan, run jobs that write files, commit, and retry.

Jobs run without a lock on the table. The catalog accepts a commit only if the table still has the metadata on which the
commit was planned. After a conflict, the loop loads the table and makes a new plan. The loop repeats no job for
unchanged files, because it stores each result under a key that contains everything on which the result depends.
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
    """Raised if the connector cannot rewrite the table.

    The message is a clause about the table, followed by what the user can do, without a final full stop.
    """


class StalePlan(Exception):
    """Raised if the table has changed since the plan was made, so more jobs must run before the commit."""


class Rework(ABC, Generic[_Plan, _Outcome]):
    """One change to one table, with jobs that write new files. Subclasses define the plan, the jobs and the commit."""

    def __init__(self, operations: TableOperations, attempts: int, cannot: str, when_busy: str) -> None:
        """Set the maximum number of attempts and the wording of error messages.

        All messages begin with `cannot`. If all attempts fail, the message of TableBusy ends with `when_busy`.
        """
        self.operations = operations
        self._attempts = attempts
        self._cannot = cannot
        self._when_busy = when_busy
        self._planned: tuple[str, _Plan | None] | None = None
        """The last plan, and the location of the metadata file for which the plan was made."""

    @abstractmethod
    def plan(self, table: Table) -> _Plan | None:
        """Return the plan for the table's present state, or None if there is nothing to do.

        Raises Unsuitable if the connector cannot rewrite the table.
        """

    @abstractmethod
    def sources(self, plan: _Plan) -> frozenset[str]:
        """Return the URIs of all files that the plan's jobs may read."""

    @abstractmethod
    def run_jobs(self, plan: _Plan) -> None:
        """Run the jobs of the plan that have no result yet.

        Raises ConnectorError if a job fails, and StalePlan if the table has changed so that the plan is out of date.
        """

    @abstractmethod
    def change(self, plan: _Plan, table: Table, transaction: Transaction) -> _Outcome | None:
        """Add the change to a transaction. Return the outcome of the change, or None if there is nothing to do.

        `plan` is the plan for the state of `table`, which may differ from the state for which the jobs ran. Raises
        StalePlan if a job of `plan` has no result yet.
        """

    @abstractmethod
    def unused(self, outcome: _Outcome | None) -> Iterable[Uncommitted]:
        """Return the files that jobs have written but that no commit has added to the table.

        `outcome` is the outcome of the commit, or None if there was no commit.
        """

    def rework(self) -> tuple[Table, _Outcome] | None:
        """Plan, run jobs and commit until a commit succeeds. Then delete unused files.

        Return the table after the commit and the outcome of `change`, or None if there was nothing to do.

        Raises TableConflict if the connector cannot rewrite the table, ConnectorError if a job fails, and TableBusy if
        other writers committed first at every attempt. Before it raises one of these errors, this method deletes the
        new files. Also raises CommitStateUnknown if the result of the commit is unknown, and AWS errors. The new files
        then stay, because the table may contain them.
        """
        # Plan again even if the table is unchanged. A plan may depend on more than the table: each round of a
        # compaction skips more files.
        self._planned = None
        try:
            committed = self.with_plan(self._commit)
        except (TableBusy, TableConflict, ConnectorError):
            self.operations.delete_uncommitted(self.unused(None))
            raise
        self.operations.delete_uncommitted(self.unused(None if committed is None else committed[1]))
        return committed

    def with_plan(self, act: Callable[[_Plan], _Result]) -> _Result | None:
        """Call `act` with the plan for the table's present state, and return the result of `act`.

        Return None if there is nothing to do. If a commit conflicts or `act` raises StalePlan, load the table and plan
        again. Raises TableBusy if the last attempt fails too.
        """
        for _ in range(self._attempts):
            with suppress(StalePlan, CommitFailedException):
                plan = self._load()
                return None if plan is None else act(plan)
        raise TableBusy(f"{self._cannot}: other writers changed its files during every attempt. {self._when_busy}")

    def _load(self) -> _Plan | None:
        """Load the table and return the plan for it.

        Raises CommitFailedException if another writer deletes a manifest while this method reads the table.
        """
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
            # The job may have failed because another writer has replaced and deleted files of the plan.
            latest = self._load()
            if latest is not None and self.sources(plan) <= self.sources(latest):
                raise
            raise StalePlan from error
        # Load the table again, because another writer may have changed or recreated it while the jobs ran.
        table, outcome = self.operations.commit(self._build)
        return None if outcome is None else (table, outcome)

    def _build(self, table: Table, transaction: Transaction) -> _Outcome | None:
        # `commit` may have loaded a newer state than the one for which the jobs ran. If that state needs further jobs,
        # `change` raises StalePlan, and the loop starts again.
        plan = self._plan_of(table)
        return None if plan is None else self.change(plan, table, transaction)


# --- what merges and erasures require of a table ----------------------------------------------------------------------


def rewritable_schema(metadata: TableMetadata) -> pa.Schema:
    """Return the Arrow schema for rewritten files of the table. Raises Unsuitable if a column type is unsupported."""
    if (schema := arrow_schema(metadata.schema())) is None:
        raise Unsuitable(
            "it contains columns of types that this connector does not support, so the connector cannot rewrite its "
            "files. Drop those columns"
        )
    return schema


def require_parquet(files: Iterable[LiveFile]) -> None:
    """Raise Unsuitable if a file is not a Parquet file, because this connector can rewrite only Parquet files."""
    if any(file.entry.file_format != FileFormat.PARQUET for file in files):
        raise Unsuitable(
            "some of its files are not Parquet files. Set its property write.format.default to parquet and rewrite "
            "these files (Spark: rewrite_data_files with rewrite-all)"
        )


# --- removal of rows from files, shared by merges and erasures --------------------------------------------------------


_TASKS_PER_JOB = 1000
"""Maximum number of tasks per job. Spark's driver keeps all tasks of a job in memory, each with the table's schema."""


@dataclass(slots=True)
class Removals:
    """Removes rows from files on Spark's executors, and stores the results for later attempts.

    The key of each result contains everything on which the result depends. `written` contains the new files of all
    results, even the files that the commit does not need.
    """

    executors: Executors
    results: dict[Hashable, Removed] = field(default_factory=dict)
    written: list[WrittenFile] = field(default_factory=list)

    def run(self, tasks: Mapping[Hashable, RemoveTask]) -> None:
        """Run the tasks, and store the result of each task under the key of the task.

        If a task fails, store the results of the other tasks in the same job, and raise ConnectorError.
        """
        # Run large files first, so that no executor is still busy with a large file when the others have finished.
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
        """Return the result stored under a key. Raises StalePlan if there is no such result yet."""
        if (result := self.results.get(key)) is None:
            raise StalePlan
        return result


def folder_of_new_file(old: str, folder: str) -> str:
    """Return the folder for the new file that replaces the file `old`.

    If `old` is inside `folder`, at any depth, the new file goes to the folder of `old`. Otherwise, the new file goes to
    `folder`. `old` is a URI, and `folder` is a URI without a trailing slash.
    """
    own = old.rpartition("/")[0]
    return own if f"{own}/".startswith(f"{folder}/") else folder
