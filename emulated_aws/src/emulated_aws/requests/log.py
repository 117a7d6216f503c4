"""What was asked of the account: a record for each request, which tests in other processes read."""

import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from typing import Self

import msgspec

from emulated_aws.requests.needs import Need

REQUESTS = "/_account/requests"
"""The path under which the server tells its records."""

_KEPT = 20_000


class Record(msgspec.Struct, frozen=True):
    """One request and its answer, without what objects hold."""

    number: int
    caller: str
    """The ARN of the user, the role's session, or the account's administrator."""
    service: str
    operation: str
    region: str
    """That the request was signed for."""
    needs: list[Need]
    """What the caller must be allowed."""
    headers: dict[str, str]
    """Those that tests ask for, lower-case: of encryption, conditional writes, the client's software."""
    catalog_id: str | None
    """Glue's and Lake Formation's CatalogId; null where the request has none."""
    bucket: str
    key: str
    sent_bytes: int
    status: int
    refusal: str
    """The error code that the account's rules gave; empty where the request was passed on."""


class Ledger:
    """The server's records, the oldest forgotten."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque(maxlen=_KEPT)
        self._lock = threading.Lock()
        self._next = 1

    def add(self, record: Record) -> None:
        """Keep a record under the next number."""
        with self._lock:
            self._records.append(msgspec.structs.replace(record, number=self._next))
            self._next += 1

    def since(self, number: int) -> bytes:
        """Return the records after `number` as JSON; an error if some of them are forgotten."""
        with self._lock:
            missing = self._records and self._records[0].number > number + 1
            records = [] if missing else [record for record in self._records if record.number > number]
        if missing:
            raise LookupError(f"only the last {_KEPT} requests are kept")
        return msgspec.json.encode(records)

    @property
    def last(self) -> int:
        """The number of the newest record; 0 without any."""
        return self._next - 1


class RequestLog:
    """What has been asked of an account since this was made.

    >>> log = RequestLog(aws.endpoint_url)
    >>> ...
    >>> [record.operation for record in log.read(service="glue")]
    """

    def __init__(self, endpoint_url: str) -> None:
        self._url = f"{endpoint_url}{REQUESTS}"
        self.restart()

    def restart(self) -> Self:
        """Forget what has been asked until now."""
        with urllib.request.urlopen(f"{self._url}?since=last") as response:
            self._since = int(response.read())
        return self

    def read(self, *, service: str = "", operation: str = "", caller: str = "") -> list[Record]:
        """Return the records in the order of their answers; those of a service, operation or caller if named.

        A caller is named by any part of its ARN.
        """
        with urllib.request.urlopen(f"{self._url}?since={self._since}") as response:
            records = msgspec.json.decode(response.read(), type=list[Record])
        return [
            record
            for record in records
            if service in ("", record.service) and operation in ("", record.operation) and caller in record.caller
        ]

    def needs(self, *, caller: str = "") -> Iterator[Need]:
        """Yield every need of every request of a caller, answered or refused."""
        for record in self.read(caller=caller):
            yield from record.needs
