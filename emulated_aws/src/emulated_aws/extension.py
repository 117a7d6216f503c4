"""Install the corrections to moto in this process, so that it behaves as AWS documents.

The corrections apply to every user of moto in this process: a test within `mock_aws`, and the clients of
`emulated_aws.server`.
"""

from functools import cache

from emulated_aws.glue.catalog import correct_catalog
from emulated_aws.glue.enforcement import enforce_permissions
from emulated_aws.glue.lake_formation import tell_lake_formation
from emulated_aws.glue.optimizers import keep_optimizers
from emulated_aws.lake_formation.service import serve_lake_formation


@cache
def install() -> None:
    """Change moto's classes. Further calls have no effect. Existing accounts keep their state."""
    correct_catalog()
    keep_optimizers()
    serve_lake_formation()
    enforce_permissions()
    tell_lake_formation()
