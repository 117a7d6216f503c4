"""The merges of one sync of a stream: what each is run with, and what becomes of its failure."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from destination_datalake.errors import ConnectorError
from destination_datalake.tables.iceberg.dedup.merge import Merge, MergeSettings, Writer
from destination_datalake.tables.table import TableBusy

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.files.dedup.tasks import Deletes
    from destination_datalake.files.plan import FilePlan
    from destination_datalake.tables.iceberg.dedup.definition import MergeScope
    from destination_datalake.tables.iceberg.metadata.operations import TableOperations
    from destination_datalake.tables.table import Jobs, TableName

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Merges:
    """What all merges of a sync have in common."""

    table: TableName
    operations: TableOperations
    jobs: Jobs
    access: AwsAccess
    deletes: Deletes

    def run(self, scope: MergeScope, plan: FilePlan, writer: Writer) -> bool:
        """Merge what is pending; files are written as the plan of the next batch says. Return whether there was any.

        Raises as `Merge.run`.
        """
        settings = MergeSettings(plan.folder, plan.codec, self.deletes)
        merge = Merge(self.table, scope, self.operations, self.jobs, self.access, settings, writer)
        try:
            return merge.run() is not None
        except ConnectorError as error:
            where = scope.pending or scope.target
            message = (
                f"{error.failure.message} Nothing that was acknowledged is lost: it is on the branch {where} of table "
                f"{self.table}, and the next sync of the stream merges it into the table, unless it overwrites that."
            )
            raise ConnectorError(replace(error.failure, message=message)) from error

    def try_run(self, scope: MergeScope, plan: FilePlan, writer: Writer) -> bool:
        """Do the same, but leave it for later, and return False, if other writers are faster every time."""
        try:
            self.run(scope, plan, writer)
        except TableBusy as error:
            _logger.warning("%s", error)
            return False
        return True
