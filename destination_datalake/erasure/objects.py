"""Places of objects that no snapshot has: found and written again by jobs, several objects a task.

Nothing is noted: what is there is looked at again each time, so an erasure that was killed goes on by being repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from destination_datalake.aws.objects import listed
from destination_datalake.erasure.place import ErasedObject, Figures
from destination_datalake.errors import ConnectorError, Failure
from destination_datalake.files.erase import Content, Erased, EraseResult, EraseTask, NotErased, StoredObject, erase
from destination_datalake.files.ids import search
from destination_datalake.files.jobs import dealt
from destination_datalake.schema.arrow import arrow_type, widest

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.erasure.place import Request
    from destination_datalake.files.ids import Ids
    from destination_datalake.schema.types import Field
    from destination_datalake.tables.table import TableName

_AT_ONCE = 5_000
"""Groups of objects that one job looks at: what is in memory of them is some MB."""

_TASKS_EACH = 4
"""Tasks for each that runs at the same time: objects differ in size."""

_ATTEMPTS = 10
"""How often objects may be replaced by others while they are looked at, before it is given up."""

Group = tuple[StoredObject, ...]


@dataclass(slots=True)
class _Search:
    """What a search has found: objects with rows, and those that cannot be read."""

    hits: set[StoredObject] = field(default_factory=set)
    failed: list[NotErased] = field(default_factory=list)
    is_gone: bool = False

    def add(self, result: EraseResult) -> None:
        """Note a result."""
        if isinstance(result, NotErased):
            self.failed.append(result)
            return
        self.is_gone |= result.is_gone
        if result.found:
            self.hits.add(result.object)


class Objects(ABC):
    """Objects of one kind of content, all of which have the column under the same names."""

    content: Content
    table: TableName
    """The table whose rows they are, or that rows of them came into."""
    has_metadata = False
    """Whether the folders also have metadata, which may tell an id."""

    def __init__(self, request: Request, table: TableName, name: str) -> None:
        self.request = request
        self.table = table
        self.title = name
        self.name = request.of(name)
        self.figures = Figures()
        self.has_written = False
        self._search: _Search | None = None

    @abstractmethod
    def columns(self) -> tuple[Field, ...]:
        """Return the column under the names and paths that it has or had, of one type; none if no object has it."""

    @property
    @abstractmethod
    def folders(self) -> Sequence[str]:
        """The folders, S3 URIs without a slash at their ends, that the objects are in, or were."""

    @abstractmethod
    def groups(self) -> Iterator[Group]:
        """Yield the objects as they are now, in groups as `EraseTask` has them."""

    def takes(self, uri: str) -> bool:  # noqa: ARG002
        """Whether an object in the folders is one of the place's."""
        return True

    def tells(self, stored: StoredObject) -> bool:  # noqa: ARG002
        """Whether an object in the folders is metadata that tells an id. Raises errors of AWS."""
        return False

    @property
    def access(self) -> AwsAccess:
        """The access to the objects."""
        return self.request.access

    def require(self) -> None:
        """Raise ConnectorError if the ids are none of the column's type."""
        if self._columns:
            _ = self._ids

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object that has rows of the ids."""
        self._search = None
        search = _Search()
        for result in self._searched():
            search.add(result)
            if isinstance(result, NotErased):
                yield ErasedObject(result.object.uri, -1, reason=f"it cannot be read: {result.failure.message}")
            elif result.found:
                yield ErasedObject(result.object.uri, result.found)
        self._search = search

    def erase(self) -> Iterator[ErasedObject]:
        """Write objects again without the rows; yield each that had some.

        What `find` has just found need not be looked for again: an object is replaced only if it is still the same.
        """
        known, self._search = self._search, None
        for _ in range(_ATTEMPTS if self._columns else 0):
            search = known or _Search()
            for some in _in_batches(self.groups()):
                if known is None:
                    for each in self._run(some, write=False):
                        search.add(each)
                yield from self._written(search, some)
            yield from map(_left, search.failed)
            is_settled = not search.hits and not search.is_gone
            known = None
            if self.conclude() and is_settled:
                return
        if self._columns:
            raise self._never_settles()

    def _written(self, search: _Search, some: Sequence[Group]) -> Iterator[ErasedObject]:
        """Write those of some objects again that a search has found; it knows then which are still to be written."""
        found = [group for group in some if not search.hits.isdisjoint(group)]
        search.hits -= {each for group in found for each in group}
        for result in self._run(found, write=True):
            if isinstance(result, NotErased):
                search.failed.append(result)
            elif result.was_written:
                self.has_written = True
                yield _erased(result)
            search.is_gone |= isinstance(result, Erased) and result.is_gone

    def conclude(self) -> bool:
        """Do what is left when all objects are written; return False if they have to be looked at again."""
        return True

    # Jobs

    @cached_property
    def _columns(self) -> tuple[Field, ...]:
        columns = self.columns()
        if not columns:
            self.figures.note(f"{self.name} has no column {self.request.column}.")
        return columns

    @cached_property
    def _ids(self) -> Ids:
        return self.request.ids(arrow_type(widest(self._columns[0].type)), self.table)

    def _searched(self) -> Iterator[EraseResult]:
        """Yield what is found of each object; of one that is replaced meanwhile, what is found of the other one."""
        wanted: set[str] | None = None
        for _ in range(_ATTEMPTS if self._columns else 0):
            gone: set[str] = set()
            self.figures.objects = self.figures.objects_read = 0
            groups = self.groups() if wanted is None else self._groups_of(wanted)
            for some in _in_batches(groups):
                for result in self._run(some, write=False):
                    if isinstance(result, Erased) and result.is_gone:
                        gone.add(result.object.uri)
                    else:
                        yield result
            if not gone:
                return
            wanted = gone
        if self._columns:
            raise self._never_settles()

    def _never_settles(self) -> ConnectorError:
        message = f"{self.name}: other writers replace its objects all the time. Run the command again."
        return ConnectorError(Failure(message, message, "transient_error"))

    def _groups_of(self, uris: set[str]) -> Iterator[Group]:
        return (group for group in self.groups() if any(each.uri in uris for each in group))

    def _run(self, groups: Sequence[Group], *, write: bool) -> Iterator[EraseResult]:
        if not write:
            self.figures.objects += sum(map(len, groups))
            self.figures.objects_read += sum(map(len, groups))
        if not groups:
            return
        executors = self.request.executors
        tasks = [
            EraseTask(some, self.content, self._columns, self.access, write)
            for some in dealt(groups, _TASKS_EACH * executors.parallelism())
        ]
        yield from search(executors.run, erase, self._ids, tasks)


def _erased(result: Erased) -> ErasedObject:
    uri = result.object.uri
    if result.was_removed:
        return ErasedObject(uri, result.found, result.found, "removed")
    return ErasedObject(uri, result.found, result.found, "rewritten", (uri,))


def _left(result: NotErased) -> ErasedObject:
    return ErasedObject(result.object.uri, -1, 0, "left", reason=result.failure.message)


def _in_batches(groups: Iterable[Group]) -> Iterator[list[Group]]:
    rest = iter(groups)
    while some := [*islice(rest, _AT_ONCE)]:
        yield some


def stored_in(access: AwsAccess, folder: str) -> Iterator[StoredObject]:
    """Yield the objects in a folder that are not empty, at any depth. Raises errors of AWS."""
    for uri, entry in listed(access.client("s3"), folder):
        if entry["Size"]:
            yield StoredObject(uri, entry["ETag"], entry["Size"])
