"""The archive, written by executors that share no disk with the connector."""

from integration_tests.archive import archived
from integration_tests.cluster import sample
from integration_tests.harness.warehouse import Warehouse


def test_every_line_is_archived_wherever_spark_runs(warehouse: Warehouse) -> None:
    """Segments reach executors through S3, and their results come back through each door."""
    sent = sample.lines(2000)

    warehouse.sync(sample.STREAMS, sent, batch_size_mb=1, flush_interval_seconds=2, raw_archive={"enabled": True})

    for name in ("orders", "users"):
        of_stream = [line for line in sent if b'"stream":"%s"' % name.encode() in line]
        assert archived.lines(warehouse.lake, name) == archived.as_archived(of_stream)
        entries = archived.index(warehouse.lake, name).values()
        indexed = {info["name"] for entry in entries for info in entry.get("objects", ())}
        names = {
            key.removeprefix(archived.folder(warehouse.lake, name)) for key in archived.objects(warehouse.lake, name)
        }
        assert indexed == names
    assert warehouse.lake.unfinished_uploads() == []
