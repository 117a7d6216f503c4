"""Tables are equal, wherever Spark runs."""

from integration_tests.cluster import sample
from integration_tests.harness.warehouse import Warehouse


def test_tables_are_equal_to_those_of_a_local_spark(warehouse: Warehouse, local: Warehouse) -> None:
    """Same rows, types and rejects, in several batches; the states come back."""
    sent = sample.lines(2000)

    run = warehouse.sync(sample.STREAMS, sent, batch_size_mb=1, flush_interval_seconds=2)
    local.sync(sample.STREAMS, sent)

    assert len(run.states) == 21
    assert sample.read_all(warehouse) == sample.read_all(local)
    assert warehouse.lake.objects("lake/_staging") == {}
