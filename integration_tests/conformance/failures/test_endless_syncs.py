"""A sync that goes on and on, with a commit every moment: what it holds does not depend on how many there were."""

import psutil
import pytest

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.running import Running
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

STREAMS = ("a", "b", "c", "d")
SCHEMA = object_schema(id=INTEGER, text=STRING)
WHOLE_BATCH = "x" * (1 << 20)
FEW, MANY = 3, 8
POOLED = 8
"""Connections that clients may have open, or threads of pools, at one time and not at another."""


@pytest.mark.slow
@pytest.mark.parametrize("table_kind", TABLE_KINDS[:2], ids=lambda kind: kind.name)
def test_commits_leave_no_thread_and_no_descriptor_behind(warehouse: Warehouse) -> None:
    streams = [configured_stream(name, SCHEMA) for name in STREAMS]
    with warehouse.start(streams, batch_size_mb=1) as sync:
        commit(sync, range(FEW))
        threads, descriptors = held(sync)
        commit(sync, range(FEW, MANY))
        threads_after, descriptors_after = held(sync)
        sync.send([status(name, "COMPLETE") for name in STREAMS])
        run = sync.close()

    assert run.exit_code == 0, run.report()
    assert threads_after <= threads + POOLED < threads + (MANY - FEW) * len(STREAMS)
    assert descriptors_after <= descriptors + POOLED
    assert warehouse.ids("a") == list(range(MANY))


def commit(sync: Running, numbers: range) -> None:
    """Send a batch of every stream, and the next ones when these have been committed."""
    for number in numbers:
        for name in STREAMS:
            sync.send([record(name, {"id": number, "text": WHOLE_BATCH}), state(name, number)])
        sync.wait_for_states((number + 1) * len(STREAMS))


def held(sync: Running) -> tuple[int, int]:
    process = psutil.Process(sync.process.pid)
    return process.num_threads(), process.num_fds()
