"""An Iceberg table in a lake of its own."""

from __future__ import annotations

import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer

from destination_datalake.aws.access import AccessKeys, AwsAccess
from unit_tests.tables.iceberg.lake import Lake


@pytest.fixture
def lake(server: AwsServer) -> Lake:
    return Lake(AwsAccess(REGION, AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY), server.endpoint_url))
