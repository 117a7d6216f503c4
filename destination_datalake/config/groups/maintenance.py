"""Options of maintenance: who compacts Iceberg tables, expires their snapshots and removes their orphans.

Of several rules for a table the most specific holds: that of a branch or tag, then the table's properties
`history.expire.*`, then these options. The defaults are those of Iceberg and of Glue's optimizers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from destination_datalake.config.base import ROLE_ARN, Form, Options
from destination_datalake.config.messages import Expects


class NoMaintenance(Options, title="None"):
    """By others, or nobody."""

    mode: Literal["none"]


class Retention(Options):
    """How long expired snapshots and orphans are kept, in days.

    An orphan is a file in a table's folder that no snapshot refers to. A day is the least: writers upload files before
    they commit them (Iceberg refuses a shorter interval in `remove_orphan_files`).
    """

    snapshot_retention_days: Annotated[
        int,
        Field(ge=1, le=3650),
        Expects("a whole number of days from 1 to 3650"),
        Form(
            "Snapshots older than this expire; time travel ends there. A table's own property "
            "history.expire.max-snapshot-age-ms is preferred.",
            title="Days of Snapshots",
        ),
    ] = 5
    min_snapshots_to_keep: Annotated[
        int,
        Field(ge=1, le=100000),
        Expects("a whole number from 1 to 100000"),
        Form(
            "How many snapshots of a branch are kept, however old. A table's own property "
            "history.expire.min-snapshots-to-keep is preferred.",
            title="Snapshots to Keep",
        ),
    ] = 1
    orphan_retention_days: Annotated[
        int,
        Field(ge=1, le=365),
        Expects("a whole number of days from 1 to 365"),
        Form("Files that no snapshot refers to are removed when they are older than this.", title="Days of Orphans"),
    ] = 3


class GlueOptimizers(Retention, title="Glue: Table Optimizers of the Data Catalog"):
    """By the table optimizers of the Glue Data Catalog, which AWS runs with a role and bills."""

    mode: Literal["glue"]
    role_arn: Annotated[
        str,
        Field(pattern=ROLE_ARN),
        Expects("the ARN of the role that Glue's table optimizers use, such as arn:aws:iam::123456789012:role/glue"),
        Form(
            "The role that Glue's table optimizers use to read and write the tables. AWS bills what they use.",
            title="Role ARN",
            examples=("arn:aws:iam::123456789012:role/table-optimizers",),
        ),
    ]


class ConnectorMaintenance(Retention, title="Connector: at the End of Syncs"):
    """By the connector: at the end of syncs what is due, and all of it by the command `maintain`."""

    mode: Literal["connector"]


Maintenance = NoMaintenance | GlueOptimizers | ConnectorMaintenance

MODES: Mapping[str, type[Options]] = {"none": NoMaintenance, "glue": GlueOptimizers, "connector": ConnectorMaintenance}
