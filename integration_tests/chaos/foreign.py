"""Another engine, which knows nothing of the connector: it names snapshots, appends, deletes, and rolls tables back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from struct import pack, unpack

import pyarrow as pa
from pyiceberg.table import Table as IcebergTable

from integration_tests.chaos.attempts.connection import Connection
from integration_tests.chaos.attempts.source import STREAM, Sending
from integration_tests.chaos.subjects import Subject
from integration_tests.chaos.verdicts.oracle import Oracle
from integration_tests.chaos.verdicts.reader import Broken, Reader
from integration_tests.chaos.verdicts.tally import Tally
from integration_tests.harness.lake import Lake

Rows = frozenset[Sending]


@dataclass
class Foreigner:
    """PyIceberg, between the syncs of a round.

    It puts tags and branches on any branch of an Iceberg table; what they name must stay readable. It changes rows only
    of tables that are appended to: others say what their rows are by, and what then is right is for other tests.
    """

    lake: Lake
    subject: Subject
    connection: Connection
    oracle: Oracle
    reader: Reader
    tally: Tally
    log: list[str]
    _named: dict[str, Rows] = field(default_factory=dict)

    def act(self, random: Random) -> None:
        """Do something, or nothing, to the table if there is one."""
        share = random.random()
        if not self.subject.has_others or share >= 0.4 or (self.lake.database, STREAM) not in self.lake.tables():
            return
        table = self.lake.iceberg_table(self.lake.database, STREAM)
        changes_rows = not (self.subject.overwrites or self.subject.deletes or self.subject.partitioned)
        if share < 0.2 and changes_rows:
            deed = random.choice([self._append, self._delete, self._roll_back])(table, random)
            if deed:
                self._say(deed)
                self.oracle.rewritten(self.reader.sendings(self.connection.sent))
        elif table.metadata.refs:
            self._name(table, random)

    def judge(self) -> None:
        """Raise Broken if what has been named is not what it was."""
        if not self._named:
            return
        table = self.lake.iceberg_table(self.lake.database, STREAM)
        for name, rows in self._named.items():
            ref = table.metadata.refs.get(name)
            if ref is None:
                raise Broken(f"{name}, which another engine has made, is gone")
            try:
                current = _rows_of(table, ref.snapshot_id)
            except Exception as error:
                raise Broken(f"{name} cannot be read: {type(error).__name__}: {error}") from error
            if current != rows:
                raise Broken(f"{name} has {sorted(map(tuple, current))}, and had {sorted(map(tuple, rows))}")

    def _name(self, table: IcebergTable, random: Random) -> None:
        branch, name = random.choice(sorted(table.metadata.refs)), f"audit_{len(self._named)}"
        head = table.metadata.refs[branch].snapshot_id
        with table.manage_snapshots() as snapshots:
            if random.random() < 0.5:
                snapshots.create_tag(head, name)
            else:
                snapshots.create_branch(head, name)
        self._named[name] = _rows_of(table, head)
        self._say(f"names the head of {branch} {name}")

    def _append(self, table: IcebergTable, _: Random) -> str:
        """Append rows whose values fit the columns as they are."""
        names = {field.name for field in table.schema().fields}
        rows = [sent.row for sent in self.connection.foreign_rows() if sent.row is not None and _fits(sent.row, names)]
        if rows:
            schema = pa.schema([table.schema().as_arrow().field(name) for name in rows[0]])
            table.append(pa.Table.from_pylist([dict(row) for row in rows], schema))
        return f"appends {len(rows)} rows"

    def _delete(self, table: IcebergTable, random: Random) -> str:
        """Delete the rows of an attempt."""
        attempts = sorted({sending.attempt for sending in self.reader.sendings(self.connection.sent)})
        if not attempts:
            return ""
        attempt = random.choice(attempts)
        table.delete(f"attempt = {attempt}")
        return f"deletes the rows of attempt {attempt}"

    def _roll_back(self, table: IcebergTable, _: Random) -> str:
        """Make the snapshot before the current one current."""
        current = table.current_snapshot()
        if current is None or current.parent_snapshot_id is None:
            return ""
        with table.manage_snapshots() as snapshots:
            snapshots.set_current_snapshot(current.parent_snapshot_id)
        return "rolls the table back"

    def _say(self, deed: str) -> None:
        self.tally.overlaps["another engine"] += 1
        self.log.append(f"    another engine {deed}")


def _rows_of(table: IcebergTable, snapshot: int) -> Rows:
    rows = table.refresh().scan(snapshot_id=snapshot, selected_fields=("position", "attempt")).to_arrow().to_pylist()
    return frozenset(Sending(row["position"], row["attempt"]) for row in rows)


def _fits(row: Mapping[str, object], names: set[str]) -> bool:
    count, amount = row["count"], row["amount"]
    assert isinstance(amount, int | float)
    is_narrow = count is None or (isinstance(count, int) and abs(count) < 2**31)
    return row.keys() <= names and is_narrow and unpack("f", pack("f", amount))[0] == amount
