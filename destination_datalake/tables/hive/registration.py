"""Calls about the partitions of a Glue table, in batches as large as Glue takes them.

Limits: https://docs.aws.amazon.com/glue/latest/webapi/API_BatchCreatePartition.html and its neighbours. A batch is not
atomic: the answer lists the partitions that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from destination_datalake.aws.backoff import retry_until_done

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableName

_READ, _CREATED, _UPDATED, _DELETED = 1000, 100, 100, 25
"""Partitions that Glue takes in one call."""

_COLUMNS = 50_000
"""Columns, in all descriptors together, that one call sends: some megabytes. AWS documents no limit."""

_CONCURRENT_CALLS = 4

_EXISTS, _MISSING = "AlreadyExistsException", "EntityNotFoundException"

_TRANSIENT = frozenset(
    {
        "ConcurrentModificationException",
        "InternalServiceException",
        "InternalFailure",
        "OperationTimeoutException",
        "ThrottlingException",
    }
)
"""Codes of errors of single partitions that a retry may mend; errors of whole calls are retried by botocore."""

Values = tuple[str, ...]
"""The values of a partition as Glue has them, one for each partition key of the table."""

Entry = dict[str, Any]
"""A registered partition (Glue API: PartitionInput)."""

# GetPartitions answers with more keys (Glue API: Partition), which updates refuse.
_ENTRY_KEYS = ("Values", "LastAccessTime", "StorageDescriptor", "Parameters", "LastAnalyzedTime")

_Member = TypeVar("_Member")


def values_of(entry: Mapping[str, Any]) -> Values:
    """Return the values of a partition."""
    return tuple(entry["Values"])


@dataclass(frozen=True, slots=True)
class RegisteredPartitions:
    """The partitions of a Glue table. All methods raise what Glue raises, also for one partition of a batch."""

    name: TableName
    access: AwsAccess

    def get(self, wanted: Collection[Values]) -> dict[Values, Entry]:
        """Return those of the wanted partitions that exist."""
        glue: Any = self.access.client("glue")
        found = dict[Values, Entry]()
        remaining = list(wanted)

        def attempt() -> bool:
            batches, unprocessed = list(in_batches(remaining, _READ)), list[Values]()
            remaining.clear()
            for batch in batches:
                answer = glue.batch_get_partition(
                    **self._table, PartitionsToGet=[{"Values": list(values)} for values in batch]
                )
                found.update((values_of(each), _as_entry(each)) for each in answer.get("Partitions", ()))
                unprocessed += [values_of(each) for each in answer.get("UnprocessedKeys", ())]
            remaining.extend(unprocessed)
            return not remaining

        if not retry_until_done(attempt):
            raise _error("BatchGetPartition", remaining[0], {"ErrorCode": "ThrottlingException"})
        return found

    def all(self, *, with_columns: bool) -> Iterator[Entry]:
        """Yield all partitions; without columns, answers are much smaller."""
        pages: Any = self.access.client("glue").get_paginator("get_partitions")
        for page in pages.paginate(**self._table, ExcludeColumnSchema=not with_columns):
            yield from map(_as_entry, page["Partitions"])

    def create(self, entries: Sequence[Entry]) -> list[Values]:
        """Create partitions; return those that existed already and were left as they are."""
        glue: Any = self.access.client("glue")
        return self._in_batches(
            "BatchCreatePartition",
            entries,
            _limit(entries, _CREATED),
            lambda batch: glue.batch_create_partition(**self._table, PartitionInputList=batch),
            _EXISTS,
        )

    def update(self, entries: Sequence[Entry]) -> list[Values]:
        """Replace partitions; return those that did not exist."""
        glue: Any = self.access.client("glue")
        return self._in_batches(
            "BatchUpdatePartition",
            entries,
            _limit(entries, _UPDATED),
            lambda batch: glue.batch_update_partition(
                **self._table,
                Entries=[{"PartitionValueList": each["Values"], "PartitionInput": each} for each in batch],
            ),
            _MISSING,
        )

    def delete(self, partitions: Sequence[Values]) -> None:
        """Delete partitions; those that do not exist are ignored. Their files stay."""
        glue: Any = self.access.client("glue")
        self._in_batches(
            "BatchDeletePartition",
            [{"Values": list(values)} for values in partitions],
            _DELETED,
            lambda batch: glue.batch_delete_partition(**self._table, PartitionsToDelete=batch),
            _MISSING,
        )

    @property
    def _table(self) -> dict[str, str]:
        return {"DatabaseName": self.name.database, "TableName": self.name.table}

    def _in_batches(
        self,
        operation: str,
        entries: Sequence[Entry],
        limit: int,
        call: Callable[[Sequence[Entry]], Mapping[str, Any]],
        expected: str,
    ) -> list[Values]:
        """Make the calls; return the partitions that failed with the expected code. Raises for any other."""

        def send(batch: Sequence[Entry]) -> list[Values]:
            remaining, failed = list(batch), list[Values]()
            error: ClientError | None = None

            def attempt() -> bool:
                nonlocal error, remaining
                codes = {_failed(each): each.get("ErrorDetail", {}) for each in call(remaining).get("Errors", ())}
                again = []
                for entry in remaining:
                    values = values_of(entry)
                    detail = codes.get(values)
                    if detail is None:
                        continue
                    if detail.get("ErrorCode") == expected:
                        failed.append(values)
                        continue
                    error = _error(operation, values, detail)
                    if detail.get("ErrorCode") not in _TRANSIENT:
                        raise error
                    again.append(entry)
                remaining = again
                return not remaining

            if not retry_until_done(attempt):
                assert error is not None
                raise error
            return failed

        batches = list(in_batches(entries, limit))
        if len(batches) == 1:
            return send(batches[0])
        with ThreadPoolExecutor(_CONCURRENT_CALLS, "partitions") as pool:
            return list(chain.from_iterable(pool.map(send, batches)))


def in_batches(members: Iterable[_Member], limit: int) -> Iterator[list[_Member]]:
    """Yield the members in lists of at most `limit`."""
    rest = iter(members)
    while batch := list(islice(rest, limit)):
        yield batch


def _as_entry(partition: Mapping[str, Any]) -> Entry:
    """Return the part of Glue's answer that an update takes."""
    return {key: partition[key] for key in _ENTRY_KEYS if key in partition}


def _limit(entries: Sequence[Entry], limit: int) -> int:
    columns = max((len(each["StorageDescriptor"].get("Columns", ())) for each in entries), default=0)
    return max(1, min(limit, _COLUMNS // (columns + 1)))


def _failed(error: Mapping[str, Any]) -> Values:
    # BatchUpdatePartition calls it PartitionValueList, the others PartitionValues.
    values: Iterable[str] = error.get("PartitionValues") or error.get("PartitionValueList") or ()
    return tuple(values)


def _error(operation: str, values: Values, detail: Mapping[str, str]) -> ClientError:
    # Without the partition's values, which can be contents of records.
    said = detail.get("ErrorMessage", "")
    for value in values:
        said = said.replace(value, "…") if value else said
    return ClientError({"Error": {"Code": detail.get("ErrorCode", "Unknown"), "Message": said}}, operation)
