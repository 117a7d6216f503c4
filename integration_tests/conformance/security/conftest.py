"""One set of runs for each kind of table, with all options of encryption and of the Data Catalog."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from integration_tests.aws.server import ACCOUNT_ID, AwsServer
from integration_tests.conformance.security.everything import AwsRequest, RecordingAws, write_in_every_way
from integration_tests.harness.aws_proxy import Answer
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import Warehouse

GLUE_REGION = "eu-central-1"
KMS_KEY = f"arn:aws:kms:us-east-1:{ACCOUNT_ID}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
OPTIONS: Mapping[str, object] = {
    "glue_region": GLUE_REGION,
    "glue_catalog_id": ACCOUNT_ID,
    "encryption": {"encryption_type": "SSE-KMS", "kms_key_arn": KMS_KEY},
}


class DemandingAws(RecordingAws):
    """Creates no object without encryption in the request, as a bucket policy can demand.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html#require-sse-kms
    """

    def refusal(self, request: AwsRequest) -> Answer | None:
        if not request.creates_object or request.request.header("x-amz-server-side-encryption"):
            return None
        return Answer(403, {}, b"<Error><Code>AccessDenied</Code><Message>with an explicit deny</Message></Error>")


@dataclass(frozen=True)
class Recorded:
    """What is left of the runs: the lake, and all their requests."""

    lake: Lake
    kind: TableKind
    requests: list[AwsRequest]


@pytest.fixture(scope="module", params=TABLE_KINDS, ids=lambda kind: kind.name)
def recorded(
    request: pytest.FixtureRequest, aws: AwsServer, launch: WarmLaunch, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    lake = Lake(aws.endpoint_url)
    platform = Platform(tmp_path_factory.mktemp("platform"), launch.without_shared_disk())
    with DemandingAws(aws.endpoint_url) as demanding:
        warehouse = Warehouse(lake, platform, request.param)
        write_in_every_way(warehouse, **OPTIONS, endpoint_url=demanding.endpoint_url)
    return Recorded(lake, request.param, demanding.requests)
