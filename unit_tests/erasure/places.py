"""Places in an account, as the command asks them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.erasure.ids import IdsFile, Mask
from destination_datalake.erasure.model import ErasedObject, ErasureTarget, Request
from destination_datalake.erasure.targets import erasure_targets
from destination_datalake.tables.catalog import TableCatalog
from destination_datalake.tables.table import TableName
from integration_tests.erasure import oracle
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.jobs import in_process


def request(folder: Path, access: AwsAccess, column: str, *ids: object, **changes: Any) -> Request:
    """What is asked for: rows whose column has one of these ids."""
    given = {"bucket_name": BUCKET, "table_type": "HIVE", "lakeformation_database_name": "shop", **changes}
    return request_of(folder, Config.parse(options(**given)), access, ungoverned(access), column, *ids)


def request_of(
    folder: Path, config: Config, access: AwsAccess, catalog: TableCatalog, column: str, *ids: object
) -> Request:
    file = folder / "ids.txt"
    file.write_text("".join(f"{id_}\n" for id_ in ids))
    mask = Mask(column, IdsFile(file).typed(pa.string(), column))
    return Request("r", column, IdsFile(file), config, access, catalog, in_process(folder).executors, mask)


def erased(asked: Request, *tables: TableName) -> list[ErasedObject]:
    """Erase in all places, as the command does: what became of objects. The second search must find nothing."""
    targets = erasure_targets(asked, tables)
    for place in targets:
        place.require()
    assert all(object_.rows_found for place in targets for object_ in place.find())
    done = [object_ for place in targets for object_ in place.erase()]
    remaining = {object_.uri for object_ in done if object_.outcome == "left"}
    assert [object_ for object_ in second_search(asked, *tables) if object_.uri not in remaining] == []
    return done


def second_search(asked: Request, *tables: TableName) -> list[ErasedObject]:
    return [object_ for place in erasure_targets(asked, tables) for object_ in place.find()]


def named(asked: Request, name: str, *tables: TableName) -> ErasureTarget:
    """The place of this name."""
    (place,) = [target for target in erasure_targets(asked, tables) if target.name == name]
    return place


def traces(cloud: Cloud, id_: int | str) -> list[str]:
    """The keys of all objects, former versions and delete markers that have an id anywhere."""
    return oracle.traces(cloud.access.client("s3"), BUCKET, str(id_))


def outcomes(done: Sequence[ErasedObject]) -> dict[str, str]:
    """What became of each object, by the last part of its key."""
    return {object_.uri.rpartition("/")[2]: object_.outcome for object_ in done}
