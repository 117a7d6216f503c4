"""Which catalog the options' tables are in. A kind of catalog is a class of its own, chosen here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from destination_datalake.config.services import GlueCatalogOptions
from destination_datalake.lake_formation.governance import Governance
from destination_datalake.lake_formation.policy import Policy
from destination_datalake.tables.glue.catalog import GlueTableCatalog
from destination_datalake.tables.rest.catalog import RestTableCatalog

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.config.services import CatalogLimits
    from destination_datalake.tables.catalog import TableCatalog


def catalog_of(config: Config, access: AwsAccess, limits: CatalogLimits | None = None) -> TableCatalog:
    """Return the catalog. Asks nothing of it. A table that is about to break its limits, or these, is not loaded."""
    governance = Governance(Policy.of(config), access)
    match config.catalog:
        case GlueCatalogOptions():
            return GlueTableCatalog(access, governance)
        case options:
            return RestTableCatalog(options, access, governance, limits or options.limits)
