"""One short sync, struck at each of its requests in turn: what it acknowledges stays in the journal and in replays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from integration_tests.archive import archived
from integration_tests.archive.histories import FILL
from integration_tests.archive.replays import ARCHIVE, Replays, difference
from integration_tests.archive.strikes import RefusedPut, Strike, started
from integration_tests.chaos.aws.adversary import Blow
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema

SCHEMA = object_schema(id=INTEGER, fill=STRING, _ab_cdc_deleted_at=STRING)
BATCHES = (
    [{"id": 2, "fill": FILL}, {"id": 3, "fill": FILL}],
    [{"id": 1, "_ab_cdc_deleted_at": "2024-01-02T00:00:00Z"}, {"id": 4, "fill": FILL}, {"id": 5, "fill": FILL}],
)
"""Records after which a state is sent; with so much text, each list is a batch of its own."""

PUTS = 7
"""Under `_raw/`: a configuration, the entries around two batches, and for each batch its lines and its entry."""

REQUESTS = 25
"""A sync makes more than these of AWS, whatever the table."""

STRIKES: Sequence[Blow | RefusedPut] = (
    *(RefusedPut(number) for number in range(1, PUTS + 1)),
    *(Blow("kill", number, "requests", "before") for number in range(1, 61)),
    *(Blow("kill", number, "requests", "after") for number in range(1, 61)),
)


@pytest.mark.slow
@pytest.mark.parametrize("strike", STRIKES, ids=str)
def test_sync_that_is_struck_acknowledges_what_replay_restores(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, table_kind: TableKind, strike: Blow | RefusedPut
) -> None:
    config = {**lake.config(**table_kind.options), **ARCHIVE, "batch_size_mb": 1}
    keyed = table_kind.options["table_type"] == "ICEBERG"
    sent = [[*(record("orders", row) for row in rows), state("orders", number)] for number, rows in enumerate(BATCHES)]

    def sync(number: int, lines: Sequence[bytes], strike: Strike | None = None) -> Run:
        mode: Literal["append_dedup", "append"] = "append_dedup" if keyed else "append"
        key = ["id"] if keyed else []
        stream = configured_stream("orders", SCHEMA, mode=mode, generation=1, sync_id=number, primary_key=key)
        with started(lake, launch, tmp_path, config, stream, strike) as running:
            running.send([*lines, status("orders", "COMPLETE")])
            return running.close() if strike is None else running.perish()

    assert sync(1, [record("orders", {"id": 1}), record("orders", {"id": 2})]).exit_code == 0
    struck = sync(2, [line for batch in sent for line in batch], strike)

    if isinstance(strike, RefusedPut):
        assert struck.exit_code == 1, struck.report()
    else:
        assert struck.exit_code == -9 or strike.number > REQUESTS, struck.report()
    acknowledged = [line for batch in sent[: len(struck.states)] for line in batch]
    assert {*archived.as_archived(acknowledged)} <= in_the_journal(lake), struck.report()
    assert sync(3, [line for batch in sent[len(struck.states) :] for line in batch]).exit_code == 0
    replayed = Replays(launch, tmp_path).run(config, "--stream", "orders")

    assert replayed.exit_code == 0, (struck.report(), replayed)
    assert [line for line in replayed.lines if line.startswith(("Gap: ", "Difference: "))] == [], struck.report()
    whole = [lake.read(lake.database, table) for table in ("orders", "orders__replay")]
    assert difference(*whole) == [], (struck.report(), replayed)


def in_the_journal(lake: Lake) -> set[bytes]:
    """Return the lines of the objects that entries of batches have."""
    entries = archived.index(lake, "orders").values()
    names = {
        f"{archived.folder(lake, 'orders')}{info['name']}" for entry in entries for info in entry.get("objects", ())
    }
    return {line for key, lines in archived.objects(lake, "orders").items() if key in names for line in lines}
