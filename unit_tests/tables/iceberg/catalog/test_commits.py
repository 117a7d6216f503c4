"""The Glue catalog of one commit: requests, and what became of a commit without a response."""

from __future__ import annotations

import pytest
from botocore.exceptions import ConnectionClosedError

from destination_datalake.tables.table import CommitStateUnknown
from unit_tests.cloud import during
from unit_tests.tables.iceberg.lake import Lake, no_rewrite


def test_a_commit_reads_the_glue_table_once(lake: Lake) -> None:
    syncing, calls = lake.open(), list[object]()
    file = lake.write(syncing, 1)

    with during(lake.access, "before-call.glue.GetTable", lambda **call: calls.append(call)):
        syncing.commit([file], no_rewrite)

    assert len(calls) == 1


def test_a_commit_whose_responses_are_all_lost_is_found(lake: Lake) -> None:
    ours = lake.open()

    def lose(**_: object) -> None:
        raise ConnectionClosedError(endpoint_url="glue")

    with during(lake.access, "after-call.glue.UpdateTable", lose):
        lake.commit(ours, 1)

    assert lake.ids() == [1]


def test_nothing_is_deleted_when_the_commit_state_is_unknown(lake: Lake) -> None:
    """The metadata log does not reach back to the commit, and its snapshot is expired."""
    ours = lake.open()
    lake.commit(ours, 1)
    files = [lake.write(ours, 2)]
    before = set[str]()

    def expire() -> None:
        lake.set_properties({"write.metadata.previous-versions-max": "1"})
        lake.compact_and_expire()
        before.update(lake.objects())

    lake.at_the_next_update(expire, response_lost=True)
    with pytest.raises(CommitStateUnknown, match="cannot be determined whether the commit was made"):
        ours.commit(files, no_rewrite)

    assert before <= lake.objects()
    assert lake.ids() == [1, 2]
