"""What the tests' AWS does as AWS documents it and moto does not, installed in this process.

It holds for whoever asks moto here: a test within `mock_aws`, and every client of `emulated_aws.server`.
"""

from functools import cache

from emulated_aws.glue.catalog import correct_catalog
from emulated_aws.glue.enforcement import enforce_permissions
from emulated_aws.glue.lake_formation import tell_lake_formation
from emulated_aws.glue.optimizers import keep_optimizers
from emulated_aws.lake_formation.service import serve_lake_formation


@cache
def install() -> None:
    """Change moto's classes; once is enough, however often it is called. Accounts that are open keep their state."""
    correct_catalog()
    keep_optimizers()
    serve_lake_formation()
    enforce_permissions()
    tell_lake_formation()
