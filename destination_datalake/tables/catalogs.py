"""Return the configured catalog."""

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
    """Return the configured catalog, without sending a request.

    The client of a REST catalog refuses to load tables that exceed `limits`. The default is the limits in the catalog's
    options.
    """
    governance = Governance(Policy.from_config(config), access)
    match config.catalog:
        case GlueCatalogOptions():
            return GlueTableCatalog(access, governance)
        case options:
            return RestTableCatalog(options, access, governance, limits or options.limits)
