"""What a stack creates, as AWS tells it afterwards, and what further deployments change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from integration_tests.harness.account import Account
from integration_tests.infra.conftest import Deploy
from integration_tests.infra.lake import DeployedLake

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest
    from mypy_boto3_lakeformation import LakeFormationClient

READER = "arn:aws:iam::123456789012:role/reader"


def test_the_bucket_is_private_encrypted_and_forgets_temporary_objects_only(deploy: Deploy) -> None:
    lake = deploy()
    s3, bucket = lake.s3, lake.bucket

    (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    default = rule["ApplyServerSideEncryptionByDefault"]
    assert rule["BucketKeyEnabled"]
    assert (default["SSEAlgorithm"], default["KMSMasterKeyID"]) == ("aws:kms", lake.stack.outputs["KmsKeyArn"])
    blocks = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert [*blocks.values()] == [True] * 4
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert {each["Filter"]["Prefix"]: each.get("Expiration", {}).get("Days") for each in rules} == {
        "": None,
        "lake/_staging/": 14,
        "lake/_errors/": 90,
        "athena-results/lake/": 30,
    }


def test_nobody_reads_the_bucket_without_tls(deploy: Deploy, account: Account) -> None:
    lake = deploy()
    client = account.client("s3")
    client.put_object(Bucket=lake.bucket, Key="lake/x", Body=b"x")

    client.get_object(Bucket=lake.bucket, Key="lake/x")
    client.meta.events.register("before-sign.s3", without_tls)
    with pytest.raises(ClientError, match="AccessDenied"):
        client.get_object(Bucket=lake.bucket, Key="lake/x")
    # Other tests have the same client.
    client.meta.events.unregister("before-sign.s3", without_tls)


def without_tls(request: AWSRequest, **_others: object) -> None:
    """Say what whoever ends TLS in front of a service says of a request without."""
    request.headers["X-Forwarded-Proto"] = "http"


@pytest.mark.parametrize(("mode", "hybrid"), [("hybrid", True), ("managed", False)])
def test_lake_formation_knows_location_grants_and_tag(
    mode: str, hybrid: bool, deploy: Deploy, account: Account
) -> None:
    lake = deploy(
        LakeFormationMode=mode, ReaderPrincipalArn=READER, LFTagKey=f"team-{mode}", LFTagValues="internal, public"
    )
    client, connector = account.client("lakeformation"), lake.stack.outputs["RoleArn"]

    location = f"arn:aws:s3:::{lake.bucket}/lake"
    info = client.describe_resource(ResourceArn=location)["ResourceInfo"]
    assert (info["RoleArn"], info["HybridAccessEnabled"]) == (lake.stack.outputs["LocationRoleArn"], hybrid)
    assert granted(client, connector) == [
        ("DataLocation", ["DATA_LOCATION_ACCESS"]),
        ("Database", ["CREATE_TABLE", "DESCRIBE"]),
        ("Table", ["ALTER", "DELETE", "DESCRIBE", "INSERT"]),
    ]
    database = {"Database": {"Name": lake.database}}
    assert client.get_lf_tag(TagKey=f"team-{mode}")["TagValues"] == ["internal", "public"]
    (tag,) = client.get_resource_lf_tags(Resource=database)["LFTagOnDatabase"]
    assert (tag["TagKey"], tag["TagValues"]) == (f"team-{mode}", ["internal"])


def granted(client: LakeFormationClient, principal: str) -> list[tuple[str, list[str]]]:
    """A principal's grants, each as kind of resource and permissions."""
    answers = [client.list_permissions()]
    while token := answers[-1].get("NextToken"):
        answers.append(client.list_permissions(NextToken=token))
    return sorted(
        (next(iter(each["Resource"])), sorted(each["Permissions"]))
        for answer in answers
        for each in answer["PrincipalResourcePermissions"]
        if each["Principal"]["DataLakePrincipalIdentifier"] == principal
    )


def test_the_opt_in_commands_opt_in_the_connector_and_the_reader(deploy: Deploy, account: Account) -> None:
    lake = deploy(LakeFormationMode="hybrid", ReaderPrincipalArn=READER)

    lake.stack.run_commands("OptInCommands")

    listed = account.client("lakeformation").list_lake_formation_opt_ins()["LakeFormationOptInsInfoList"]
    ours = [each for each in listed if lake.database in json.dumps(each["Resource"])]
    assert sorted(
        (each["Principal"]["DataLakePrincipalIdentifier"], next(iter(each["Resource"]))) for each in ours
    ) == [
        (lake.stack.outputs["RoleArn"], "Database"),
        (lake.stack.outputs["RoleArn"], "Table"),
        (READER, "Database"),
        (READER, "Table"),
    ]


ALL = {"CreateAthenaWorkGroup": "true", "CreateEventStream": "true", "LakeFormationMode": "managed"}


def test_a_second_deployment_touches_nothing(deploy: Deploy) -> None:
    lake = deploy(**ALL)
    outputs = lake.stack.outputs

    assert lake.deploy() == []
    assert lake.stack.outputs == outputs


def test_a_changed_mode_touches_what_depends_on_it(deploy: Deploy, account: Account) -> None:
    lake = deploy()

    governed = lake.deploy(LakeFormationMode="hybrid")
    managed = lake.deploy(LakeFormationMode="managed")

    assert {*governed} == {
        "ConnectorPolicy",
        "LocationRole",
        "LocationPolicy",
        "Location",
        "ConnectorLocationGrant",
        "ConnectorDatabaseGrant",
        "ConnectorTablesGrant",
    }
    assert {*managed} == {"Location", "Database"}
    assert not is_hybrid(lake, account)


def is_hybrid(lake: DeployedLake, account: Account) -> bool:
    location = f"arn:aws:s3:::{lake.bucket}/lake"
    info = account.client("lakeformation").describe_resource(ResourceArn=location)["ResourceInfo"]
    return bool(info["HybridAccessEnabled"])


def test_the_switches_create_a_workgroup_and_a_stream_to_the_event_table(deploy: Deploy, account: Account) -> None:
    lake = deploy(**ALL)
    outputs, key = lake.stack.outputs, lake.stack.outputs["KmsKeyArn"]

    group = account.client("athena").get_work_group(WorkGroup=outputs["AthenaWorkGroup"])["WorkGroup"]
    results = group["Configuration"]["ResultConfiguration"]
    assert results["OutputLocation"] == f"s3://{lake.bucket}/athena-results/lake/"
    assert results["EncryptionConfiguration"] == {"EncryptionOption": "SSE_KMS", "KmsKey": key}

    kinesis = account.client("kinesis").describe_stream_summary(StreamName=outputs["EventStreamName"])
    assert kinesis["StreamDescriptionSummary"]["EncryptionType"] == "KMS"

    name = lake.stack.resources["Delivery"].ref
    delivery = account.client("firehose").describe_delivery_stream(DeliveryStreamName=name)
    (destination,) = delivery["DeliveryStreamDescription"]["Destinations"]
    (table,) = destination["IcebergDestinationDescription"]["DestinationTableConfigurationList"]
    assert f"{table['DestinationDatabaseName']}.{table['DestinationTableName']}" == outputs["EventTable"]
    assert lake.columns(lake.database, "events") == {
        "event_id": "string",
        "event_type": "string",
        "event_time": "timestamp",
        "source": "string",
        "payload": "string",
    }
