"""The requests that the account refuses, AWS's error messages, and the records in the log."""

import pytest
from emulated_aws.account import Account, Member, allow, deny
from emulated_aws.controls import throttling
from emulated_aws.server import ACCOUNT_ID, REGION

from tests.refusals import refusal

pytestmark = pytest.mark.share(3)

CATALOG = f"arn:aws:glue:{REGION}:{ACCOUNT_ID}:catalog"


@pytest.fixture(params=["user", "role"])
def writer(request: pytest.FixtureRequest, account: Account) -> Member:
    """A user or role that may write objects below raw/, and read one table."""
    statements = (
        allow("s3:PutObject", resource="arn:aws:s3:::landing/raw/*"),
        allow("s3:ListBucket", condition={"StringLike": {"s3:prefix": "raw/*"}}),
        allow("glue:GetTable", resource=[CATALOG, f"arn:aws:glue:{REGION}:{ACCOUNT_ID}:*/shop*"]),
        deny("s3:PutObject", resource="arn:aws:s3:::landing/raw/closed/*"),
    )
    member: Member = getattr(account, request.param)(*statements)
    return member


@pytest.mark.usefixtures("bucket")
def test_what_the_policies_allow_is_done_and_the_rest_refused(account: Account, writer: Member) -> None:
    s3 = account.client("s3", writer)
    arn = account.client("sts", writer).get_caller_identity()["Arn"]

    s3.put_object(Bucket="landing", Key="raw/a", Body=b"1")
    s3.list_objects_v2(Bucket="landing", Prefix="raw/a")
    assert refusal(s3.get_object, Bucket="landing", Key="raw/a") == (
        "AccessDenied",
        f"User: {arn} is not authorized to perform: s3:GetObject on resource: "
        '"arn:aws:s3:::landing/raw/a" because no identity-based policy allows the s3:GetObject action',
    )
    assert refusal(s3.put_object, Bucket="landing", Key="raw/closed/a", Body=b"1" * 3_000_000) == (
        "AccessDenied",
        f"User: {arn} is not authorized to perform: s3:PutObject on resource: "
        '"arn:aws:s3:::landing/raw/closed/a" with an explicit deny in an identity-based policy',
    )
    assert refusal(s3.list_objects_v2, Bucket="landing", Prefix="other/")[0] == "AccessDenied"
    assert refusal(s3.list_objects_v2, Bucket="landing")[0] == "AccessDenied"
    assert refusal(s3.head_object, Bucket="landing", Key="raw/a") == ("403", "Forbidden")


def test_a_table_s_database_and_catalog_must_be_allowed_too(account: Account, writer: Member) -> None:
    glue = account.client("glue", writer)
    arn = account.client("sts", writer).get_caller_identity()["Arn"]

    assert refusal(glue.get_table, DatabaseName="shop", Name="orders")[0] == "EntityNotFoundException"
    assert refusal(glue.get_table, DatabaseName="other", Name="shop") == (
        "AccessDeniedException",
        f"User: {arn} is not authorized to perform: glue:GetTable on resource: "
        f"arn:aws:glue:{REGION}:{ACCOUNT_ID}:database/other because no identity-based policy allows the "
        "glue:GetTable action",
    )


@pytest.mark.parametrize(
    ("service", "operation", "code"),
    [
        ("s3", "list_buckets", "InvalidAccessKeyId"),
        ("glue", "get_databases", "UnrecognizedClientException"),
        ("lakeformation", "list_lf_tags", "UnrecognizedClientException"),
        ("sts", "get_caller_identity", "InvalidClientTokenId"),
    ],
)
def test_a_key_that_the_account_never_gave_is_refused(
    account: Account, service: str, operation: str, code: str
) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "AKIANOBODY1234567890", "AWS_SECRET_ACCESS_KEY": "unknown"}
    nobody = Member("", "", {}, keys)

    assert refusal(getattr(account.client(service, nobody), operation))[0] == code


def test_a_managed_policy_a_group_s_and_a_boundary_count(account: Account, bucket: str) -> None:
    iam, user = account.client("iam"), account.user()
    everything = iam.create_policy(PolicyName=f"all-{user.name}", PolicyDocument=_policy("s3:*"))["Policy"]["Arn"]
    s3 = account.client("s3", user)

    assert refusal(s3.put_object, Bucket=bucket, Key="a")[0] == "AccessDenied"
    iam.attach_user_policy(UserName=user.name, PolicyArn=everything)
    s3.put_object(Bucket=bucket, Key="a")
    iam.detach_user_policy(UserName=user.name, PolicyArn=everything)
    assert refusal(s3.put_object, Bucket=bucket, Key="a")[0] == "AccessDenied"
    iam.create_group(GroupName=user.name)
    iam.put_group_policy(GroupName=user.name, PolicyName="p", PolicyDocument=_policy("s3:*"))
    iam.add_user_to_group(GroupName=user.name, UserName=user.name)
    s3.put_object(Bucket=bucket, Key="a")


def test_a_role_s_boundary_limits_what_its_policies_allow(account: Account, bucket: str) -> None:
    iam, role = account.client("iam"), account.role(allow("s3:*"))
    reading = iam.create_policy(PolicyName=role.name, PolicyDocument=_policy("s3:Get*"))["Policy"]["Arn"]
    s3 = account.client("s3", role)

    s3.put_object(Bucket=bucket, Key="a")
    iam.put_role_permissions_boundary(RoleName=role.name, PermissionsBoundary=reading)

    assert refusal(s3.put_object, Bucket=bucket, Key="a")[0] == "AccessDenied"
    s3.get_object(Bucket=bucket, Key="a")


def test_parts_of_an_upload_have_its_encryption_as_policies_see_them(account: Account, bucket: str) -> None:
    encrypted = {"Null": {"s3:x-amz-server-side-encryption": "true"}}
    s3 = account.client("s3", account.user(allow("s3:PutObject"), deny("s3:PutObject", condition=encrypted)))

    upload = s3.create_multipart_upload(Bucket=bucket, Key="raw/a", ServerSideEncryption="AES256")["UploadId"]
    part = s3.upload_part(Bucket=bucket, Key="raw/a", UploadId=upload, PartNumber=1, Body=b"1")
    parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
    s3.complete_multipart_upload(Bucket=bucket, Key="raw/a", UploadId=upload, MultipartUpload={"Parts": parts})

    assert refusal(s3.create_multipart_upload, Bucket=bucket, Key="raw/b")[0] == "AccessDenied"


def test_a_policy_that_is_not_understood_allows_nothing(account: Account, bucket: str) -> None:
    dated = account.user(allow("s3:*", condition={"DateLessThan": {"aws:CurrentTime": "2999-01-01"}}))

    code, message = refusal(account.client("s3", dated).list_objects_v2, Bucket=bucket)

    assert (code, "DateLessThan" in message) == ("MalformedPolicyDocument", True)


def test_a_key_that_was_withdrawn_is_nobody_s(account: Account, bucket: str) -> None:
    user = account.user(allow("s3:*"))
    key = user.environment["AWS_ACCESS_KEY_ID"]
    account.client("iam").update_access_key(UserName=user.name, AccessKeyId=key, Status="Inactive")

    assert refusal(account.client("s3", user).list_objects_v2, Bucket=bucket)[0] == "InvalidAccessKeyId"


def test_the_log_has_each_request_once_with_caller_and_outcome(account: Account, bucket: str) -> None:
    user = account.user(allow("s3:PutObject"))
    s3, log = account.client("s3", user), account.log()

    s3.put_object(Bucket=bucket, Key="a", Body=b"12345", ServerSideEncryption="AES256")
    refusal(s3.get_object, Bucket=bucket, Key="a")

    put, get = log.read(caller=user.arn)
    assert (put.operation, put.bucket, put.key, put.sent_bytes, put.status) == ("PutObject", bucket, "a", 5, 200)
    assert put.headers["x-amz-server-side-encryption"] == "AES256"
    assert put.headers["user-agent"].startswith("Boto3/")
    assert put.needs[0].conditions == {"s3:x-amz-server-side-encryption": ["AES256"]}
    assert (get.operation, get.status, get.refusal) == ("GetObject", 403, "AccessDenied")
    assert log.read(service="glue") == []


@pytest.mark.parametrize(
    ("service", "operation", "parameters", "error_code"),
    [
        ("glue", "get_databases", {}, "ThrottlingException"),
        ("s3", "list_buckets", {}, "SlowDown"),
        ("sts", "get_caller_identity", {}, "Throttling"),
    ],
)
def test_what_is_throttled_is_asked_again(
    account: Account, service: str, operation: str, parameters: dict[str, str], error_code: str
) -> None:
    client, log = account.client(service), account.log()
    name = "".join(word.capitalize() for word in operation.split("_"))

    with throttling(account.endpoint_url, service, name, times=1):
        getattr(client, operation)(**parameters)

    assert [record.refusal for record in log.read()] == [error_code, ""]


def test_the_log_tells_region_and_catalog_of_a_call(account: Account) -> None:
    log = account.log()

    account.client("glue", region="eu-west-1").get_databases(CatalogId="999999999999")

    (record,) = log.read()
    assert (record.region, record.catalog_id) == ("eu-west-1", "999999999999")


def _policy(action: str) -> str:
    return f'{{"Version": "2012-10-17", "Statement": {{"Effect": "Allow", "Action": "{action}", "Resource": "*"}}}}'
