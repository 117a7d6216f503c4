"""The log of requests to the account: one record per request, which tests in other processes can read."""

import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from typing import Self

import msgspec

from emulated_aws.requests.needs import Need

REQUESTS = "/_account/requests"
"""The path of the endpoint that returns the server's records."""

_KEPT = 20_000


class Record(msgspec.Struct, frozen=True):
    """One request and its response, without the content of objects."""

    number: int
    caller: str
    """The ARN of the user, the role session, or the account's administrator."""
    service: str
    operation: str
    region: str
    """The region for which the client signed the request."""
    needs: list[Need]
    """The permissions that the request needs."""
    headers: dict[str, str]
    """The headers that tests check, by name in lower case, such as those about encryption and conditional writes."""
    catalog_id: str | None
    """The CatalogId in a request to Glue or Lake Formation, or None if the request contains none."""
    bucket: str
    key: str
    sent_bytes: int
    status: int
    refusal: str
    """The error code with which the account's rules refused the request, or "" if they allowed it."""


class Ledger:
    """The server's newest records. It drops the oldest ones."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._next = 1

    def add(self, record: Record) -> None:
        """Add a record with the next number."""
        with self._lock:
            self._records.append(msgspec.structs.replace(record, number=self._next))
            self._next += 1

    def since(self, number: int) -> bytes:
        """Return the records after `number` as JSON. Raises LookupError if some of them have been dropped."""
        with self._lock:
            missing = self._records and self._records[0].number > number + 1
            records = [] if missing else [record for record in self._records if record.number > number]
        if missing:
            raise LookupError(f"only the last {_KEPT} requests are kept")
        return msgspec.json.encode(records)

    @property
    def last(self) -> int:
        """The number of the newest record, or 0 if there are no records."""
        return self._next - 1


class RequestLog:
    """The requests to an account since the creation of this instance.

    >>> log = RequestLog(aws.endpoint_url)
    >>> ...
    >>> [record.operation for record in log.read(service="glue")]
    """

    def __init__(self, endpoint_url: str) -> None:
        self._url = f"{endpoint_url}{REQUESTS}"
        self.restart()

    def restart(self) -> Self:
        """Exclude all requests until now from this log."""
        with urllib.request.urlopen(f"{self._url}?since=last") as response:
            self._since = int(response.read())
        return self

    def read(self, *, service: str = "", operation: str = "", caller: str = "") -> list[Record]:
        """Return the records in the order of the responses, filtered by service, operation and caller.

        `caller` is any part of the caller's ARN. An empty argument selects all records.
        """
        with urllib.request.urlopen(f"{self._url}?since={self._since}") as response:
            records = msgspec.json.decode(response.read(), type=list[Record])
        return [
            record
            for record in records
            if service in ("", record.service) and operation in ("", record.operation) and caller in record.caller
        ]

    def needs(self, *, caller: str = "") -> Iterator[Need]:
        """Yield the needs of all requests of a caller, including refused requests."""
        for record in self.read(caller=caller):
            yield from record.needs
