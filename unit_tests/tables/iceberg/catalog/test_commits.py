"""The Glue catalog of one commit: requests, and what became of a commit without a response."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ConnectionClosedError
from pyiceberg.table.locations import SimpleLocationProvider

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


class Planted(SimpleLocationProvider):
    """What a table's property names as the class that chooses paths."""

    def __init__(self, *_: object) -> None:
        raise AssertionError("a table's property was imported and called")


def test_a_property_that_names_code_is_kept_and_not_followed(lake: Lake) -> None:
    ours = lake.open()
    lake.commit(ours, 1)
    planted = f"{__name__}.Planted"
    properties = {"write.py-location-provider.impl": planted, "py-io-impl": planted, "io-impl": planted}
    location = lake.load().metadata_location
    metadata = json.loads(lake.read_object(location))
    lake.edit_metadata({"properties": {**metadata["properties"], **properties}})

    lake.commit(lake.open(2, overwrite=True), 2)
    lake.commit(lake.open(2), 3)

    # PyIceberg's own reader would call what is planted.
    table = lake.access.client("glue").get_table(DatabaseName=lake.name.database, Name=lake.name.table)["Table"]
    metadata = json.loads(lake.read_object(table["Parameters"]["metadata_location"]))
    assert properties.items() <= metadata["properties"].items()
    assert len(metadata["snapshots"]) > 2
