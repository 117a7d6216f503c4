"""A replay beside `delete-rows`: rows that are erased do not come back."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from destination_datalake.archive.plan import ReplayProgress
from destination_datalake.erasure.ledger import Ledger
from destination_datalake.errors import ConfigError
from destination_datalake.replay.replayer import Replayer, ReplaySource
from destination_datalake.tables.table import TableName
from unit_tests.archive.archive import FOLDER
from unit_tests.cloud import Cloud
from unit_tests.erasure.places import request

ORDERS = TableName("shop", "orders")


def _no_engine() -> NoReturn:
    raise AssertionError


@pytest.mark.parametrize("table", ["shop.orders", "shop.others"])
def test_replay_beside_which_an_erasure_of_its_table_began_fails_and_does_not_resume(
    cloud: Cloud, tmp_path: Path, table: str
) -> None:
    asked = request(tmp_path, cloud.access, "id", 1)
    source = ReplaySource(asked.config, cloud.access, asked.catalog, ORDERS, FOLDER)
    replayer = Replayer(source, TableName("shop", "orders__replay"), _no_engine, print, lambda: False)
    progress = ReplayProgress(f"{FOLDER}/replay/orders__replay.json", cloud.access)
    completed = progress.claim("run-1", 10.0)
    completed.state = "replaying"
    suppressed = replayer._suppressed()
    ledger = Ledger.open("id", ("all",), asked.file, asked.config, cloud.access)

    ledger.begin({table: pa.int64()}, asked.file, suppress=False)

    if table == "shop.orders":
        with pytest.raises(ConfigError, match=r"may contain erased rows\. Drop table"):
            replayer._require_no_erasure_since(suppressed, progress, completed)
        assert progress.claim("run-2", 20.0).state == "claimed"
    else:
        replayer._require_no_erasure_since(suppressed, progress, completed)
