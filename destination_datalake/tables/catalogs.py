"""Choose the class of the configured catalog."""

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
    """Return an object for the configured catalog, without sending a request to the catalog.

    An object for a REST catalog does not load tables that exceed `limits`. By default, these are the limits in the
    catalog's options.
    """
    governance = Governance(Policy.of(config), access)
    match config.catalog:
        case GlueCatalogOptions():
            return GlueTableCatalog(access, governance)
        case options:
            return RestTableCatalog(options, access, governance, limits or options.limits)
