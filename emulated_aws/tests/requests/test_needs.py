"""The actions and resources that requests of boto3 need."""

from contextlib import suppress

import pytest
from emulated_aws.account import Account
from emulated_aws.server import ACCOUNT_ID, REGION

pytestmark = pytest.mark.share(3)

OBJECT = "arn:aws:s3:::landing/raw/Zoë & co/a+b.parquet"
KEY = "raw/Zoë & co/a+b.parquet"
GLUE = f"arn:aws:glue:{REGION}:{ACCOUNT_ID}"
CATALOG, SHOP, ORDERS = f"{GLUE}:catalog", f"{GLUE}:database/shop", f"{GLUE}:table/shop/orders"
AT = {"Bucket": "landing", "Key": KEY}
PART = {**AT, "UploadId": "u", "PartNumber": 1}
TABLE = {"DatabaseName": "shop", "TableName": "orders"}


def needed(account: Account, service: str, operation: str, **parameters: object) -> list[tuple[str, str]]:
    """Return the actions and resources that a request needs, even if AWS answers with an error."""
    log = account.log()
    client = account.client(service)
    with suppress(client.exceptions.ClientError):
        getattr(client, operation)(**parameters)
    # moto fails for an upload that does not exist, and boto3 then repeats the request.
    record, *_ = log.read()
    assert record.operation.lower() == operation.replace("_", "")
    return [(need.action, need.resource) for need in record.needs]


@pytest.mark.parametrize(
    ("operation", "parameters", "needs"),
    [
        ("put_object", AT, [("s3:PutObject", OBJECT)]),
        ("put_object", {**AT, "Tagging": "a=b"}, [("s3:PutObject", OBJECT), ("s3:PutObjectTagging", OBJECT)]),
        ("create_multipart_upload", AT, [("s3:PutObject", OBJECT)]),
        ("upload_part", PART, [("s3:PutObject", OBJECT)]),
        ("complete_multipart_upload", {**AT, "UploadId": "u"}, [("s3:PutObject", OBJECT)]),
        ("abort_multipart_upload", {**AT, "UploadId": "u"}, [("s3:AbortMultipartUpload", OBJECT)]),
        ("list_parts", {**AT, "UploadId": "u"}, [("s3:ListMultipartUploadParts", OBJECT)]),
        ("delete_object", AT, [("s3:DeleteObject", OBJECT)]),
        ("delete_object", {**AT, "VersionId": "v"}, [("s3:DeleteObjectVersion", OBJECT)]),
        (
            "delete_objects",
            {"Bucket": "landing", "Delete": {"Objects": [{"Key": KEY}, {"Key": "x"}]}},
            [("s3:DeleteObject", OBJECT), ("s3:DeleteObject", "arn:aws:s3:::landing/x")],
        ),
        ("list_objects", {"Bucket": "landing"}, [("s3:ListBucket", "arn:aws:s3:::landing")]),
        ("list_objects_v2", {"Bucket": "landing"}, [("s3:ListBucket", "arn:aws:s3:::landing")]),
        ("list_object_versions", {"Bucket": "landing"}, [("s3:ListBucketVersions", "arn:aws:s3:::landing")]),
        ("list_multipart_uploads", {"Bucket": "landing"}, [("s3:ListBucketMultipartUploads", "arn:aws:s3:::landing")]),
        ("head_bucket", {"Bucket": "landing"}, [("s3:ListBucket", "arn:aws:s3:::landing")]),
        ("get_bucket_location", {"Bucket": "landing"}, [("s3:GetBucketLocation", "arn:aws:s3:::landing")]),
        ("get_bucket_encryption", {"Bucket": "landing"}, [("s3:GetEncryptionConfiguration", "arn:aws:s3:::landing")]),
        (
            "copy_object",
            {**AT, "CopySource": {"Bucket": "landing", "Key": "of me"}},
            [("s3:PutObject", OBJECT), ("s3:GetObject", "arn:aws:s3:::landing/of me")],
        ),
        ("list_buckets", {}, [("s3:ListAllMyBuckets", "*")]),
    ],
)
def test_s3(
    account: Account, bucket: str, operation: str, parameters: dict[str, object], needs: list[tuple[str, str]]
) -> None:
    assert bucket == "landing"
    assert needed(account, "s3", operation, **parameters) == needs


@pytest.mark.parametrize(
    ("operation", "parameters", "resources"),
    [
        ("get_databases", {}, [CATALOG, f"{GLUE}:database/*"]),
        ("get_database", {"Name": "shop"}, [CATALOG, SHOP]),
        ("create_database", {"DatabaseInput": {"Name": "shop"}}, [CATALOG, SHOP]),
        ("get_tables", {"DatabaseName": "shop"}, [CATALOG, SHOP, f"{GLUE}:table/shop/*"]),
        ("get_table", {"DatabaseName": "shop", "Name": "orders"}, [CATALOG, SHOP, ORDERS]),
        ("create_table", {"DatabaseName": "shop", "TableInput": {"Name": "orders"}}, [CATALOG, SHOP, ORDERS]),
        ("update_table", {"DatabaseName": "shop", "TableInput": {"Name": "orders"}}, [CATALOG, SHOP, ORDERS]),
        ("delete_table", {"DatabaseName": "shop", "Name": "orders"}, [CATALOG, SHOP, ORDERS]),
        ("get_partitions", TABLE, [CATALOG, SHOP, ORDERS]),
        ("batch_create_partition", {**TABLE, "PartitionInputList": [{"Values": ["a"]}]}, [CATALOG, SHOP, ORDERS]),
        (
            "delete_database",
            {"Name": "shop"},
            [CATALOG, SHOP, f"{GLUE}:table/shop/*", f"{GLUE}:userDefinedFunction/shop/*"],
        ),
        (
            "get_table",
            {"CatalogId": "999999999999", "DatabaseName": "shop", "Name": "orders"},
            [resource.replace(ACCOUNT_ID, "999999999999") for resource in (CATALOG, SHOP, ORDERS)],
        ),
    ],
)
def test_a_glue_operation_needs_its_resource_and_all_its_ancestors(
    account: Account, operation: str, parameters: dict[str, object], resources: list[str]
) -> None:
    action = f"glue:{''.join(word.capitalize() for word in operation.split('_'))}"

    assert needed(account, "glue", operation, **parameters) == [(action, resource) for resource in resources]


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "needs"),
    [
        ("sts", "get_caller_identity", {}, []),
        (
            "sts",
            "assume_role",
            {"RoleArn": f"arn:aws:iam::{ACCOUNT_ID}:role/r", "RoleSessionName": "me"},
            [("sts:AssumeRole", f"arn:aws:iam::{ACCOUNT_ID}:role/r")],
        ),
        ("lakeformation", "get_data_lake_settings", {}, [("lakeformation:GetDataLakeSettings", "*")]),
        (
            "lakeformation",
            "register_resource",
            {"ResourceArn": "arn:aws:s3:::landing/a", "RoleArn": f"arn:aws:iam::{ACCOUNT_ID}:role/r"},
            [("lakeformation:RegisterResource", "*"), ("iam:PassRole", f"arn:aws:iam::{ACCOUNT_ID}:role/r")],
        ),
        (
            "kms",
            "describe_key",
            {"KeyId": "alias/lake"},
            [("kms:DescribeKey", f"arn:aws:kms:{REGION}:{ACCOUNT_ID}:alias/lake")],
        ),
    ],
)
def test_other_services(
    account: Account, service: str, operation: str, parameters: dict[str, object], needs: list[tuple[str, str]]
) -> None:
    assert needed(account, service, operation, **parameters) == needs


def test_a_listing_has_its_prefix_as_a_condition_key(account: Account, bucket: str) -> None:
    log = account.log()

    account.client("s3").list_objects_v2(Bucket=bucket, Prefix="raw/ä/", MaxKeys=7)

    (need,) = log.needs()
    assert need.conditions == {"s3:prefix": ["raw/ä/"], "s3:max-keys": ["7"]}
