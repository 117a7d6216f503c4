"""Bucket policies, objects that are encrypted with KMS keys, and less obvious permissions that S3 requires."""

from typing import Any
from uuid import uuid4

import boto3
import pytest
from emulated_aws.account import Account, Document, Member, allow, deny, policy
from emulated_aws.server import ACCOUNT_ID, REGION

from tests.refusals import refusal

pytestmark = pytest.mark.share(3)

KMS = "aws:kms"


@pytest.fixture
def bucket(account: Account) -> str:
    """The name of a new bucket for the test."""
    name = f"objects-{uuid4().hex[:10]}"
    account.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def key(account: Account) -> str:
    """The ARN of a KMS key with the default policy, which delegates decisions to the account's IAM policies."""
    arn: str = account.client("kms").create_key()["KeyMetadata"]["Arn"]
    return arn


def everybody(statement: Document) -> Document:
    return {**statement, "Principal": "*"}


def test_a_bucket_that_demands_encryption_refuses_even_the_administrator(account: Account, bucket: str) -> None:
    s3 = account.client("s3")
    unencrypted = {"StringNotEquals": {"s3:x-amz-server-side-encryption": "AES256"}}
    rule = everybody(deny("s3:PutObject", resource=f"arn:aws:s3:::{bucket}/*", condition=unencrypted))
    s3.put_bucket_policy(Bucket=bucket, Policy=policy(rule))

    s3.put_object(Bucket=bucket, Key="a", ServerSideEncryption="AES256")
    assert refusal(s3.put_object, Bucket=bucket, Key="a") == (
        "AccessDenied",
        f"User: arn:aws:iam::{ACCOUNT_ID}:root is not authorized to perform: s3:PutObject on resource: "
        f'"arn:aws:s3:::{bucket}/a" with an explicit deny in a resource-based policy',
    )
    assert refusal(s3.create_multipart_upload, Bucket=bucket, Key="a")[0] == "AccessDenied"


def test_a_bucket_for_tls_alone_is_reached_as_aws_is(account: Account, bucket: str) -> None:
    s3 = boto3.client("s3", REGION, endpoint_url=account.endpoint_url, aws_access_key_id="-", aws_secret_access_key="-")
    insecure = everybody(deny("s3:*", condition={"Bool": {"aws:SecureTransport": "false"}}))
    s3.put_bucket_policy(Bucket=bucket, Policy=policy(insecure))

    s3.list_objects_v2(Bucket=bucket)
    s3.meta.events.register("before-send.s3", _over_plain_http)

    assert refusal(s3.list_objects_v2, Bucket=bucket)[0] == "AccessDenied"


def _over_plain_http(request: Any, **_: object) -> None:
    request.headers["X-Forwarded-Proto"] = "http"


def test_a_bucket_s_policy_can_allow_what_no_other_does(account: Account, bucket: str) -> None:
    user, other_user = account.user(), account.user()
    rule = {**allow("s3:PutObject", resource=f"arn:aws:s3:::{bucket}/*"), "Principal": {"AWS": user.arn}}
    account.client("s3").put_bucket_policy(Bucket=bucket, Policy=policy(rule))

    account.client("s3", user).put_object(Bucket=bucket, Key="a")
    assert refusal(account.client("s3", other_user).put_object, Bucket=bucket, Key="a")[0] == "AccessDenied"


def test_what_is_not_there_is_told_to_who_may_list(account: Account, bucket: str) -> None:
    reader = account.client("s3", account.user(allow("s3:GetObject")))
    lister = account.client("s3", account.user(allow("s3:GetObject", "s3:ListBucket")))

    assert refusal(lister.get_object, Bucket=bucket, Key="none")[0] == "NoSuchKey"
    assert refusal(reader.get_object, Bucket=bucket, Key="none")[0] == "AccessDenied"
    assert refusal(reader.head_object, Bucket=bucket, Key="none")[0] == "403"


def test_keys_that_may_not_be_deleted_are_reported_and_the_others_deleted(account: Account, bucket: str) -> None:
    admin, user = account.client("s3"), account.user(allow("s3:DeleteObject", resource=f"arn:aws:s3:::{bucket}/mine/*"))
    for key in ("mine/a&b", "other/<c>"):
        admin.put_object(Bucket=bucket, Key=key)
    objects = [{"Key": "mine/a&b"}, {"Key": "other/<c>"}]

    answer = account.client("s3", user).delete_objects(Bucket=bucket, Delete={"Objects": objects})

    assert [deleted["Key"] for deleted in answer["Deleted"]] == ["mine/a&b"]
    assert [(error["Key"], error["Code"]) for error in answer["Errors"]] == [("other/<c>", "AccessDenied")]
    assert [entry["Key"] for entry in admin.list_objects_v2(Bucket=bucket)["Contents"]] == ["other/<c>"]


def upload(s3: Any, bucket: str, **encryption: str) -> None:
    """Upload an object in parts."""
    at = {"Bucket": bucket, "Key": "parts"}
    number = s3.create_multipart_upload(**at, **encryption)["UploadId"]
    part = s3.upload_part(**at, UploadId=number, PartNumber=1, Body=b"1")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    s3.complete_multipart_upload(**at, UploadId=number, MultipartUpload=parts)


def user_of(account: Account, key: str, *actions: str) -> Member:
    return account.user(allow("s3:*"), allow(*actions, resource=key) if actions else allow("s3:*"))


@pytest.mark.parametrize("by_default", [True, False], ids=["the bucket's default", "a header"])
def test_encrypted_objects_need_their_key(account: Account, bucket: str, key: str, by_default: bool) -> None:
    if by_default:
        rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": KMS, "KMSMasterKeyID": key}}
        account.client("s3").put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]})
    encryption = {} if by_default else {"ServerSideEncryption": KMS, "SSEKMSKeyId": key}
    keyless, writer, reader, read_writer = (
        account.client("s3", user_of(account, key, *actions))
        for actions in ((), ("kms:GenerateDataKey",), ("kms:Decrypt",), ("kms:GenerateDataKey", "kms:Decrypt"))
    )
    at = {"Bucket": bucket, "Key": "a"}

    code, message = refusal(keyless.put_object, **at, **encryption)
    assert (code, f"kms:GenerateDataKey on resource: {key} because" in message) == ("AccessDenied", True)
    writer.put_object(**at, **encryption)
    assert "kms:Decrypt" in refusal(writer.get_object, **at)[1]
    writer.head_object(**at)
    reader.get_object(**at)
    upload(read_writer, bucket, **encryption)
    assert "kms:Decrypt" in refusal(upload, s3=writer, bucket=bucket, **encryption)[1]


def test_a_key_s_use_is_limited_to_s3_and_to_the_bucket(account: Account, bucket: str, key: str) -> None:
    through = {
        "kms:ViaService": f"s3.{REGION}.amazonaws.com",
        "kms:EncryptionContext:aws:s3:arn": f"arn:aws:s3:::{bucket}",
    }
    member = account.user(allow("s3:*"), allow("kms:*", resource=key, condition={"StringEquals": through}))
    s3, kms = account.client("s3", member), account.client("kms", member)
    encryption = {"ServerSideEncryption": KMS, "SSEKMSKeyId": key}

    s3.put_object(Bucket=bucket, Key="a", **encryption, BucketKeyEnabled=True)
    assert refusal(s3.put_object, Bucket=bucket, Key="a", **encryption)[0] == "AccessDenied"
    assert refusal(kms.generate_data_key, KeyId=key, KeySpec="AES_256")[0] == "AccessDeniedException"


def test_a_key_s_policy_decides_first(account: Account, bucket: str, key: str) -> None:
    named = account.user(allow("s3:*"))
    able = account.user(allow("s3:*", "kms:*"))
    account.client("kms").put_key_policy(
        KeyId=key, PolicyName="default", Policy=policy({**allow("kms:*"), "Principal": {"AWS": named.arn}})
    )
    encryption = {"ServerSideEncryption": KMS, "SSEKMSKeyId": key}

    account.client("s3", named).put_object(Bucket=bucket, Key="a", **encryption)
    code, message = refusal(account.client("s3", able).put_object, Bucket=bucket, Key="a", **encryption)

    assert code == "AccessDenied"
    assert "because no resource-based policy allows the kms:GenerateDataKey action" in message


@pytest.mark.parametrize(
    ("named", "code"),
    [
        (f"arn:aws:kms:{REGION}:{ACCOUNT_ID}:key/00000000-0000-0000-0000-000000000000", "KMS.NotFoundException"),
        ("00000000-0000-0000-0000-000000000000", "KMS.NotFoundException"),
        ("alias/unknown", "KMS.NotFoundException"),
    ],
)
def test_a_key_that_there_is_none_of_is_an_error(account: Account, bucket: str, named: str, code: str) -> None:
    s3 = account.client("s3")

    assert refusal(s3.put_object, Bucket=bucket, Key="a", ServerSideEncryption=KMS, SSEKMSKeyId=named)[0] == code


@pytest.mark.parametrize(
    ("operation", "parameters", "code"),
    [
        ("disable_key", {}, "KMS.DisabledException"),
        ("schedule_key_deletion", {"PendingWindowInDays": 7}, "KMS.KMSInvalidStateException"),
    ],
)
def test_a_key_that_cannot_be_used_is_an_error(
    account: Account, bucket: str, key: str, operation: str, parameters: dict[str, int], code: str
) -> None:
    s3 = account.client("s3")
    getattr(account.client("kms"), operation)(KeyId=key.partition("/")[2], **parameters)

    assert refusal(s3.put_object, Bucket=bucket, Key="a", ServerSideEncryption=KMS, SSEKMSKeyId=key)[0] == code


def test_an_alias_is_its_key(account: Account, bucket: str, key: str) -> None:
    account.client("kms").create_alias(AliasName=f"alias/{bucket}", TargetKeyId=key)
    user = account.user(allow("s3:*"), allow("kms:GenerateDataKey", resource=key))
    log = account.log()

    account.client("s3", user).put_object(
        Bucket=bucket, Key="a", ServerSideEncryption=KMS, SSEKMSKeyId=f"alias/{bucket}"
    )

    assert [need.resource for need in log.needs(caller=user.arn)] == [f"arn:aws:s3:::{bucket}/a", key]


@pytest.mark.parametrize(("size", "is_taken"), [(2048 - 4, True), (2048 - 3, False)])
def test_an_object_has_two_kilobytes_of_metadata_at_most(
    account: Account, bucket: str, size: int, is_taken: bool
) -> None:
    s3 = account.client("s3")
    metadata = {"name": "x" * size}

    if is_taken:
        s3.put_object(Bucket=bucket, Key="a", Metadata=metadata)
        assert s3.head_object(Bucket=bucket, Key="a")["Metadata"] == metadata
    else:
        assert refusal(s3.put_object, Bucket=bucket, Key="a", Metadata=metadata)[0] == "MetadataTooLarge"
        assert refusal(s3.create_multipart_upload, Bucket=bucket, Key="a", Metadata=metadata)[0] == "MetadataTooLarge"
