"""Search and rewrite objects that belong to no Iceberg snapshot, in Spark jobs with several objects per task.

This module does not store its progress. If a run is killed, the next run searches all objects again, and completes the
erasure.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import delete, listed
from destination_datalake.erasure.model import ErasedObject, ErasureTarget
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.erase import Content, Erased, EraseResult, EraseTask, NotErased, StoredObject, erase
from destination_datalake.files.ids import search
from destination_datalake.files.jobs import distribute
from destination_datalake.schema.arrow import arrow_type, widest

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.model import Request
    from destination_datalake.files.ids import Ids
    from destination_datalake.schema.types import Field
    from destination_datalake.tables.table import TableName

_MAX_BATCH = 5_000
"""Maximum number of groups of objects per Spark job. With this limit, the description of a job needs only a few MB of
memory."""

_TASKS_PER_CORE = 4
"""Number of tasks per core. Objects differ in size, so several small tasks per core balance the load better than one
large task."""

_ATTEMPTS = 10
"""Maximum number of searches. A target repeats the search if other writers have replaced objects since the listing."""

Group = tuple[StoredObject, ...]


@dataclass(slots=True)
class _Search:
    """The result of a search.

    `hits` contains the objects with rows to erase, and `failed` the objects that the search could not read.
    """

    hits: set[StoredObject] = field(default_factory=set)
    failed: list[NotErased] = field(default_factory=list)
    was_replaced: bool = False
    """Whether another writer deleted or replaced an object before the search could read it."""

    def add(self, result: EraseResult) -> None:
        """Add the result for one object to `hits` or `failed`."""
        if isinstance(result, NotErased):
            self.failed.append(result)
            return
        self.was_replaced |= result.is_gone
        if result.matches:
            self.hits.add(result.object)


class Objects(ErasureTarget):
    """A target whose objects have the same kind of content, and contain the column under the same names.

    `find` searches the objects for rows with one of the IDs. `erase` rewrites the objects that contain such rows. It
    then repeats the search until it finds no more such rows.
    """

    content: Content
    table: TableName
    """The table to which the rows in the objects belong."""

    def __init__(self, request: Request, table: TableName, name: str) -> None:
        super().__init__(request.display_name(name))
        self.request = request
        self.table = table
        self.title = name
        self.may_have_rewritten = request.is_resumed
        self._search: _Search | None = None

    @abstractmethod
    def columns(self) -> tuple[Field, ...]:
        """Return the column under all its present and former names, with one type.

        Returns an empty tuple if none of the objects contains the column.
        """

    @property
    @abstractmethod
    def folders(self) -> Sequence[str]:
        """Return the folders that contain or contained objects of the target, as S3 URIs without a trailing slash."""

    @abstractmethod
    def groups(self) -> Iterator[Group]:
        """Yield the current objects of the target, in groups as `EraseTask` requires them."""

    def includes(self, uri: str) -> bool:  # noqa: ARG002
        """Return whether an object in one of the target's folders may contain rows of this target."""
        return True

    def metadata(self) -> Iterable[ErasedObject]:
        """Return the metadata files in the target's folders that `erase` deletes, because they can reveal an ID.

        Also returns unreadable metadata files, with the outcome "left". Raises AWS errors.
        """
        return ()

    def revealing(self, objects: Iterable[StoredObject]) -> Iterator[tuple[StoredObject, bool]]:  # noqa: ARG002
        """Yield each metadata file among `objects` that reveals an ID or is unreadable, and whether it is readable.

        Raises AWS errors.
        """
        yield from ()

    @property
    def access(self) -> AwsAccess:
        """Return the access to AWS for the target's objects."""
        return self.request.access

    def require(self) -> None:
        """Raise ConnectorError if the column's type cannot represent an ID."""
        if self._columns:
            _ = self._ids

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object that contains rows with one of the IDs or is unreadable. Then yield the metadata to delete.

        Raises ConnectorError if other writers replaced objects during every attempt.
        """
        self._search = None
        search = _Search()
        for result in self._searched():
            search.add(result)
            if isinstance(result, NotErased):
                yield ErasedObject(result.object.uri, -1, reason=f"cannot be read: {result.failure.message}")
            elif result.matches:
                yield ErasedObject(result.object.uri, result.matches)
        self._search = search
        yield from self.metadata()

    def erase(self) -> Iterator[ErasedObject]:
        """Rewrite the objects without the rows that contain one of the IDs. Delete the metadata that can reveal an ID.

        Yields each of these objects with its outcome. Raises ConnectorError if other writers replaced objects during
        every attempt.
        """
        yield from self._erase_rows()
        for object_ in self.metadata():
            if object_.outcome == "left":
                yield object_
            else:
                delete(self.access.client("s3"), object_.uri)
                yield ErasedObject(object_.uri, -1, -1, "removed")

    def _erase_rows(self) -> Iterator[ErasedObject]:
        """Rewrite the objects without the rows that contain one of the IDs. Yield the objects that contained such rows.

        The first attempt uses the result of the last call of `find`, if any, instead of another search. This is safe,
        because a conditional write replaces an object only if it has not changed since the search. Raises
        ConnectorError if other writers replaced objects during every attempt.
        """
        previous, self._search = self._search, None
        if not self._columns:
            return
        for _ in range(_ATTEMPTS):
            search = previous or _Search()
            for batch in in_batches(self.groups()):
                if previous is None:
                    for result in self._run(batch, write=False):
                        search.add(result)
                yield from self._rewrite(search, batch)
            yield from map(_as_left, search.failed)
            previous = None
            # Call `finish` even if the attempt is incomplete: a concurrent sync must not copy old contents of rewritten
            # files.
            if self.finish() and not search.hits and not search.was_replaced:
                return
        raise self._retries_exhausted()

    def _rewrite(self, search: _Search, batch: Sequence[Group]) -> Iterator[ErasedObject]:
        """Rewrite those objects of the batch that are hits of the search, and remove them from the hits."""
        hits = [group for group in batch if not search.hits.isdisjoint(group)]
        search.hits -= {stored for group in hits for stored in group}
        # A task that fails, or that finds another object, may have replaced an object in an earlier attempt.
        self.may_have_rewritten |= bool(hits)
        for result in self._run(hits, write=True):
            if isinstance(result, NotErased):
                search.failed.append(result)
            elif result.was_written:
                yield _as_erased(result)
            search.was_replaced |= isinstance(result, Erased) and result.is_gone

    def finish(self) -> bool:
        """Complete an attempt that has rewritten its objects. Return False if another attempt must search all objects.

        By default, does nothing and returns True.
        """
        return True

    # Jobs

    @cached_property
    def _columns(self) -> tuple[Field, ...]:
        columns = self.columns()
        if not columns:
            self.stats.note(f"{self.name}: column {self.request.column} does not exist, so nothing was searched.")
        return columns

    @cached_property
    def _ids(self) -> Ids:
        return self.request.ids(arrow_type(widest(self._columns[0].type)), self.table)

    def _searched(self) -> Iterator[EraseResult]:
        """Yield the search result of each object.

        If another writer replaces an object before a task has read it, searches the new object. Raises ConnectorError
        if other writers replaced objects during every attempt.
        """
        if not self._columns:
            return
        groups = self.groups()
        for _ in range(_ATTEMPTS):
            replaced: set[str] = set()
            self.stats.objects = self.stats.objects_read = 0
            for batch in in_batches(groups):
                for result in self._run(batch, write=False):
                    if isinstance(result, Erased) and result.is_gone:
                        replaced.add(result.object.uri)
                    else:
                        yield result
            if not replaced:
                return
            groups = self._groups_of(replaced)
        raise self._retries_exhausted()

    def _retries_exhausted(self) -> ConnectorError:
        message = (
            f"{self.name}: other writers replaced objects during each of {_ATTEMPTS} searches. Run the command again "
            "later."
        )
        return ConnectorError(Failure(message, message, "transient_error"))

    def _groups_of(self, uris: set[str]) -> Iterator[Group]:
        return (group for group in self.groups() if any(stored.uri in uris for stored in group))

    def _run(self, groups: Sequence[Group], *, write: bool) -> Iterator[EraseResult]:
        if not write:
            self.stats.objects += sum(map(len, groups))
            self.stats.objects_read += sum(map(len, groups))
        if not groups:
            return
        executors = self.request.executors
        tasks = [
            EraseTask(batch, self.content, self._columns, self.access, write)
            for batch in distribute(groups, _TASKS_PER_CORE * executors.parallelism())
        ]
        yield from search(executors.run, erase, self._ids, tasks)


def _as_erased(result: Erased) -> ErasedObject:
    uri = result.object.uri
    if result.was_removed:
        return ErasedObject(uri, result.matches, result.matches, "removed")
    return ErasedObject(uri, result.matches, result.matches, "rewritten", (uri,))


def _as_left(result: NotErased) -> ErasedObject:
    return ErasedObject(result.object.uri, -1, 0, "left", reason=result.failure.message)


def in_batches(groups: Iterable[Group]) -> Iterator[list[Group]]:
    """Yield the groups in batches, each for one Spark job."""
    remaining = iter(groups)
    while batch := [*islice(remaining, _MAX_BATCH)]:
        yield batch


def stored_in(access: AwsAccess, folder: str) -> Iterator[StoredObject]:
    """Yield the non-empty objects in a folder (an S3 URI) and its subfolders. Raises AWS errors."""
    for uri, entry in listed(access.client("s3"), folder):
        if entry["Size"]:
            yield StoredObject(uri, entry["ETag"], entry["Size"])
