"""A source with positions: which records lie behind each, and what a reader must find of those that were sent.

Every sending of a record has the number of the attempt that sent it, so that a row in the table says where it is from.
Values press on the schema: from some attempt on integers outgrow 32 bits, numbers are no 32-bit floats any more, and
there is a column more. Some values do not fit their column, and some records can be no row at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from random import Random
from typing import NamedTuple, Self

from integration_tests.harness.messages import EMITTED_AT, record, state
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, object_schema

STREAM = "orders"

CONFIDENTIAL = "kleinod"
"""A word in every record, and nowhere else: no log line may have it."""

MISFIT = "many"
"""What stands in an integer column now and then."""

DATE = {"type": "string", "format": "date"}

DAYS = ("2024-02-29", "2024-02-29", "2024-03-01", "2019-12-31", "1969-12-31", None)
"""What partitioned tables are partitioned by."""

TOO_LATE = 253_402_300_800_000 + EMITTED_AT
"""An extraction time after the year 9999: such a record can be no row."""


class Sending(NamedTuple):
    """One record, as one attempt sent it."""

    position: int
    attempt: int


@dataclass(frozen=True)
class Sent:
    """A record that was sent: its line, and what becomes of it. `row` is None if it can only be rejected."""

    sending: Sending
    line: bytes
    row: Mapping[str, object] | None
    misfit: bool
    """Whether a value of it is among the rejects."""


@dataclass(frozen=True)
class Chunk:
    """Records, and the state that follows them; its cursor is the position after the last."""

    records: Sequence[Sent]
    cursor: int

    @property
    def lines(self) -> list[bytes]:
        return [*(sent.line for sent in self.records), state(STREAM, self.cursor)]

    @property
    def sendings(self) -> frozenset[Sending]:
        return frozenset(sent.sending for sent in self.records)


@dataclass(frozen=True)
class Source:
    """The source of one round; from these attempts on it presses on the schema."""

    seed: str
    wide_integers: int
    exact_numbers: int
    more_columns: int

    @classmethod
    def from_seed(cls, seed: str) -> Self:
        random = Random(f"{seed}/source")
        return cls(seed, random.randint(2, 9), random.randint(2, 9), random.randint(2, 9))

    def schema(self, attempt: int) -> dict[str, object]:
        """Return the JSON schema that the catalog of an attempt has."""
        more = {"extra": STRING} if attempt >= self.more_columns else {}
        return object_schema(
            position=INTEGER, attempt=INTEGER, count=INTEGER, amount=NUMBER, note=STRING, day=DATE, **more
        )

    def chunks(self, attempt: int, position: int, sizes: Sequence[int]) -> list[Chunk]:
        """Return the records from a position on, in chunks of these sizes."""
        chunks = []
        for size in sizes:
            records = [
                self._record(Sending(at, attempt), first=at == position) for at in range(position, position + size)
            ]
            position += size
            chunks.append(Chunk(records, position))
        return chunks

    def _record(self, sending: Sending, first: bool) -> Sent:
        random = Random(f"{self.seed}/record/{sending.position}/{sending.attempt}")
        wide = sending.attempt >= self.wide_integers and random.random() < 0.2
        exact = sending.attempt >= self.exact_numbers and random.random() < 0.2
        misfit = random.random() < 0.05
        refused = not first and random.random() < 0.03
        count = random.randrange(2**33, 2**62) if wide else random.randrange(1000)
        row: dict[str, object] = {
            "position": sending.position,
            "attempt": sending.attempt,
            "count": None if misfit else count,
            "amount": random.random() if exact else random.randrange(1 << 20) / 64,
            "note": f"{CONFIDENTIAL} {random.getrandbits(64):x}" + " and so on" * random.randrange(20),
        }
        row.update(self._more_values(sending.position))
        if sending.attempt >= self.more_columns:
            row["extra"] = f"{CONFIDENTIAL} {random.getrandbits(32):x}"
        day = random.choice(DAYS)
        row["day"] = None if day is None else date.fromisoformat(day)
        data = {**row, "day": day, **({"count": MISFIT} if misfit else {})}
        line = record(STREAM, data, emitted_at=TOO_LATE if refused else EMITTED_AT)
        return Sent(sending, line, None if refused else row, misfit)

    def _more_values(self, _position: int) -> Mapping[str, object]:
        """Return what records of another source have besides."""
        return {}
