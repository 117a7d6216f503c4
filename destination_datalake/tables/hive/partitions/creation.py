"""Creation of a stream's Hive table: where its first content lies, and what it is partitioned by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from destination_datalake.schema.types import Field
from destination_datalake.tables.glue.creation import create_hive_table
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partitions.scheme import wanted_scheme

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.files.plan import FilePlan
    from destination_datalake.tables.layout.partitions import TableLayout
    from destination_datalake.tables.table import TableName


def create_table(
    name: TableName,
    columns: Sequence[Field],
    metadata: Sequence[Field],
    layout: TableLayout,
    parameters: Mapping[str, str],
    plan: FilePlan,
    access: AwsAccess,
) -> None:
    """Create the table of a stream with these columns and those of metadata, unless it exists already.

    Raises ConfigError if the options mean partitions that the stream cannot have.
    """
    scheme = wanted_scheme(layout, columns)
    location = _first_folder(layout, access)
    entry: dict[str, Any] = {"Parameters": dict(parameters), "StorageDescriptor": {"Location": f"{location}/"}}
    if scheme is not None:
        scheme.save(entry)
        scheme.project(entry, (), anew=True)
    keys = scheme.glue_keys() if scheme is not None else []
    create_hive_table(name, (*metadata, *columns), keys, f"{location}/", entry["Parameters"], plan, access)


def _first_folder(layout: TableLayout, access: AwsAccess) -> str:
    """Return an unused folder, so that files of an earlier table of that name do not show in the new one.

    In layouts of other lakes it is the table's own folder if that is unused: keys are then exactly theirs. The first
    content of an overwrite lies beside it as all later ones do, because a folder of the table's own is never deleted.
    """
    folders, stream = Folders(layout.location.folder, access), layout.stream
    appends = not stream.overwrites_table
    if layout.config.path_layout != "hive" and appends and folders.is_empty(folders.root):
        return folders.root
    return folders.for_new_table(stream.generation)
