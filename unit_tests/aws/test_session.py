"""The session of botocore: a role that is assumed, the catalog that requests name, the encryption that they ask for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.session import Session
from moto import mock_aws
from moto.core.botocore_stubber import MockRawResponse
from moto.core.utils import utcnow
from moto.sts.models import AssumedRole

from destination_datalake.aws.access import AccessKeys, AwsAccess, Encryption, Role, name_catalog
from destination_datalake.aws.objects import PART_BYTES, Upload

pytestmark = pytest.mark.share(10)

ROLE = Role("arn:aws:iam::123456789012:role/airbyte", session_duration_seconds=900)


@pytest.fixture(autouse=True)
def keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    with mock_aws():
        yield


def test_an_upload_goes_on_with_new_credentials_when_those_of_its_first_parts_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Due for renewal whenever they are asked for.
    nearly_over = property(lambda _: utcnow() + timedelta(seconds=100), lambda *_: None)
    monkeypatch.setattr(AssumedRole, "expiration", nearly_over, raising=False)
    boto3.client("s3", "us-east-1").create_bucket(Bucket="lake")
    s3 = AwsAccess("us-east-1", ROLE).client("s3")
    signed_by: list[str] = []

    def note(request: Any, **_: object) -> None:
        signed_by.extend(re.findall(r"Credential=(\w+)", str(request.headers["Authorization"])))

    s3.meta.events.register("before-send.s3.UploadPart", note)

    upload = Upload(s3, "s3://lake/big", deferred=False)
    upload.write(b"x" * (2 * PART_BYTES + 1))
    upload.close()

    assert len(signed_by) == len(set(signed_by)) == 3
    assert s3.head_object(Bucket="lake", Key="big")["ContentLength"] == 2 * PART_BYTES + 1


def test_a_role_of_fifteen_minutes_is_not_assumed_again_for_every_request() -> None:
    access = AwsAccess("eu-west-3", ROLE)
    tokens = set()
    for _ in range(3):
        access.client("glue").get_databases()
        credentials = access.session().get_credentials()
        assert credentials is not None
        tokens.add(credentials.get_frozen_credentials().token)

    assert len(tokens) == 1


@pytest.mark.parametrize(("lifetime", "before"), [(900, 300), (2700, 900), (3600, 900), (43200, 900)])
def test_a_role_is_renewed_in_the_last_third_of_its_lifetime_or_its_last_quarter_hour(
    lifetime: int, before: int
) -> None:
    role = Role("arn:aws:iam::123456789012:role/airbyte", session_duration_seconds=lifetime)

    assert role.renewal_margin_seconds == before


OWN_ACCOUNT = "210987654321"
OTHER_ACCOUNT = "333333333333"
IN_ANOTHER_REGION = AwsAccess(
    "eu-west-1", AccessKeys("AKIA", "s"), "http://localhost:1", glue_region="eu-central-1", glue_catalog_id=OWN_ACCOUNT
)


def sent(client: Any, operation: str, request: dict[str, Any]) -> Any:
    """What a call sends as its body."""
    bodies = []

    def answer(request: Any, **_: object) -> AWSResponse:
        bodies.append(request.body)
        raw: Any = MockRawResponse(b'{"Database": {}, "DatabaseList": [], "TableList": []}')
        return AWSResponse(request.url, 200, HTTPHeaders(), raw)

    client.meta.events.register("before-send", answer)
    try:
        getattr(client, operation)(**request)
    finally:
        client.meta.events.unregister("before-send", answer)
    return json.loads(bodies[0])


@pytest.mark.parametrize(
    ("operation", "request_", "expected"),
    [
        ("get_database", {"Name": "shop"}, {"Name": "shop", "CatalogId": OWN_ACCOUNT}),
        ("get_database", {"Name": "shop", "CatalogId": OTHER_ACCOUNT}, {"Name": "shop", "CatalogId": OTHER_ACCOUNT}),
        # What a resource link points to is in a catalog of its own.
        (
            "create_database",
            {"DatabaseInput": {"Name": "link", "TargetDatabase": {"DatabaseName": "shop"}}},
            {"DatabaseInput": {"Name": "link", "TargetDatabase": {"DatabaseName": "shop"}}, "CatalogId": OWN_ACCOUNT},
        ),
        # Input without a catalog's id.
        ("get_tags", {"ResourceArn": "arn:aws:glue:r:1:x"}, {"ResourceArn": "arn:aws:glue:r:1:x"}),
    ],
)
def test_glue_is_told_the_catalog(operation: str, request_: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sent(IN_ANOTHER_REGION.client("glue"), operation, request_) == expected


def test_a_page_of_tables_after_the_first_is_of_the_same_catalog() -> None:
    request = {"DatabaseName": "shop", "NextToken": "2"}

    assert sent(IN_ANOTHER_REGION.client("glue"), "get_tables", request) == {**request, "CatalogId": OWN_ACCOUNT}


SHOP = {"Database": {"Name": "shop"}}
OUR_SHOP = {"Database": {"Name": "shop", "CatalogId": OWN_ACCOUNT}}


@pytest.mark.parametrize(
    ("operation", "request_", "expected"),
    [
        ("get_data_lake_settings", {}, {"CatalogId": OWN_ACCOUNT}),
        (
            "add_lf_tags_to_resource",
            {"Resource": SHOP, "LFTags": [{"TagKey": "pii", "TagValues": ["no"]}]},
            {
                "CatalogId": OWN_ACCOUNT,
                "Resource": OUR_SHOP,
                "LFTags": [{"CatalogId": OWN_ACCOUNT, "TagKey": "pii", "TagValues": ["no"]}],
            },
        ),
        (
            "batch_grant_permissions",
            {"Entries": [{"Id": "1", "Resource": SHOP}, {"Id": "2", "Resource": {"Catalog": {}}}]},
            {
                "CatalogId": OWN_ACCOUNT,
                "Entries": [
                    {"Id": "1", "Resource": OUR_SHOP},
                    {"Id": "2", "Resource": {"Catalog": {"Id": OWN_ACCOUNT}}},
                ],
            },
        ),
        (
            "list_permissions",
            {"Resource": {"TableWithColumns": {"DatabaseName": "shop", "Name": "t", "CatalogId": OTHER_ACCOUNT}}},
            {
                "CatalogId": OWN_ACCOUNT,
                "Resource": {"TableWithColumns": {"DatabaseName": "shop", "Name": "t", "CatalogId": OTHER_ACCOUNT}},
            },
        ),
        (
            "get_data_cells_filter",
            {"TableCatalogId": OTHER_ACCOUNT, "DatabaseName": "d", "TableName": "t", "Name": "n"},
            {"TableCatalogId": OTHER_ACCOUNT, "DatabaseName": "d", "TableName": "t", "Name": "n"},
        ),
        # A registered location belongs to no catalog.
        ("describe_resource", {"ResourceArn": "arn:aws:s3:::lake"}, {"ResourceArn": "arn:aws:s3:::lake"}),
    ],
)
def test_lake_formation_is_told_the_catalog_in_every_resource(
    operation: str, request_: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert sent(IN_ANOTHER_REGION.client("lakeformation"), operation, request_) == expected


def test_the_caller_s_structures_are_not_changed() -> None:
    resource = {"Database": {"Name": "shop"}}

    sent(IN_ANOTHER_REGION.client("lakeformation"), "get_resource_lf_tags", {"Resource": resource})

    assert resource == {"Database": {"Name": "shop"}}


@pytest.mark.parametrize(("service", "operation"), [("glue", "get_databases"), ("lakeformation", "list_lf_tags")])
def test_without_a_configured_catalog_none_is_named(service: Any, operation: str) -> None:
    access = AwsAccess("eu-west-1", AccessKeys("AKIA", "s"), "http://localhost:1")

    assert sent(access.client(service), operation, {}) == {}


def test_every_operation_of_glue_and_lake_formation_that_can_name_a_catalog_does() -> None:
    session = Session()
    name_catalog(session, OWN_ACCOUNT)
    events = session.get_component("event_emitter")

    for service in ("glue", "lakeformation"):
        model = session.get_service_model(service)
        for operation in map(model.operation_model, model.operation_names):
            params: dict[str, Any] = {}
            event = f"before-parameter-build.{service}.{operation.name}"
            events.emit(event, params=params, model=operation, context={})
            can = operation.input_shape is not None and "CatalogId" in operation.input_shape.members
            assert (params.get("CatalogId") == OWN_ACCOUNT) is can, operation.name


def test_libraries_own_clients_of_glue_have_its_region_and_name_the_catalog() -> None:
    client = IN_ANOTHER_REGION.session().client("glue", endpoint_url="http://localhost:1")

    assert client.meta.region_name == "eu-central-1"
    assert sent(client, "get_databases", {}) == {"CatalogId": OWN_ACCOUNT}


@pytest.mark.parametrize(
    ("service", "region"),
    [("glue", "eu-central-1"), ("lakeformation", "eu-central-1"), ("s3", "eu-west-1"), ("sts", "eu-west-1")],
)
def test_the_catalog_s_region_is_that_of_glue_and_lake_formation_only(service: Any, region: str) -> None:
    assert IN_ANOTHER_REGION.client(service).meta.region_name == region


def test_the_catalog_is_in_the_bucket_s_region_unless_configured() -> None:
    access = AwsAccess("eu-west-1", AccessKeys("AKIA", "s"), "http://localhost:1")

    assert access.client("glue").meta.region_name == access.client("lakeformation").meta.region_name == "eu-west-1"


KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
BUCKET = "lake"
BIG = b"x" * (9 * 1024 * 1024)

CASES: Mapping[str, tuple[Encryption | None, dict[str, str]]] = {
    "bucket default": (None, {}),
    "SSE-S3": (Encryption(), {"x-amz-server-side-encryption": "AES256"}),
    "SSE-KMS": (
        Encryption(KEY, bucket_key=True),
        {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": KEY,
            "x-amz-server-side-encryption-bucket-key-enabled": "true",
        },
    ),
    # Not left out: the bucket's default may be to have one.
    "SSE-KMS without a bucket key": (
        Encryption(KEY, bucket_key=False),
        {
            "x-amz-server-side-encryption": "aws:kms",
            "x-amz-server-side-encryption-aws-kms-key-id": KEY,
            "x-amz-server-side-encryption-bucket-key-enabled": "false",
        },
    ),
}


class Sent:
    """The encryption headers of each request, by operation."""

    def __init__(self, s3: Any) -> None:
        self.headers: list[tuple[str, dict[str, str]]] = []
        s3.meta.events.register("before-send.s3", self._note)

    def _note(self, request: Any, event_name: str, **_: object) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in headers.items()
            if name.startswith("x-amz-server-side-encryption")
        }
        self.headers.append((event_name.rpartition(".")[2], asked))


@pytest.fixture(autouse=True)
def bucket() -> Iterator[None]:
    with mock_aws():
        boto3.client("s3", "us-east-1").create_bucket(Bucket=BUCKET)
        yield


def put(s3: Any, _: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="a", Body=b"1")


def upload_in_parts(s3: Any, tmp_path: Any) -> None:
    file = tmp_path / "big"
    file.write_bytes(BIG)
    s3.upload_file(str(file), BUCKET, "a")


def copy(s3: Any, _: Any) -> None:
    s3.copy({"Bucket": BUCKET, "Key": "source"}, BUCKET, "a")


WAYS: Mapping[str, tuple[Callable[[Any, Any], None], str]] = {
    "a put": (put, "PutObject"),
    "an upload in parts": (upload_in_parts, "CreateMultipartUpload"),
    "a copy": (copy, "CopyObject"),
}


@pytest.mark.share(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_each_request_that_creates_an_object_asks_for_the_encryption(case: str, way: str, tmp_path: Any) -> None:
    encryption, expected = CASES[case]
    write, creating = WAYS[way]
    s3 = AwsAccess("us-east-1", AccessKeys(f"{case} {way}", "s"), encryption=encryption).client("s3")
    boto3.client("s3", "us-east-1").put_object(Bucket=BUCKET, Key="source", Body=b"1")
    sent = Sent(s3)

    write(s3, tmp_path)

    assert dict(sent.headers)[creating] == expected
    # S3 refuses these headers on all other requests (UploadPart, HeadObject, CompleteMultipartUpload).
    assert all(headers == {} for operation, headers in sent.headers if operation != creating)


def test_a_library_s_own_client_asks_for_the_same() -> None:
    access = AwsAccess("us-east-1", AccessKeys("library", "s"), encryption=Encryption())
    s3 = access.session().client("s3", "us-east-1")

    s3.put_object(Bucket=BUCKET, Key="a", Body=b"1")

    assert s3.head_object(Bucket=BUCKET, Key="a")["ServerSideEncryption"] == "AES256"


def test_every_operation_of_s3_that_takes_an_encryption_is_known() -> None:
    """A new one would have to be added to the hook."""
    s3 = AwsAccess("us-east-1", AccessKeys("model", "s"), encryption=Encryption()).client("s3")
    model: Any = s3.meta.service_model
    takes = {
        name
        for name in model.operation_names
        if "ServerSideEncryption" in getattr(model.operation_model(name).input_shape, "members", {})
    }

    # Sessions are those of directory buckets; responses are written by S3 Object Lambda.
    assert takes - {"CreateSession", "WriteGetObjectResponse"} == {"PutObject", "CreateMultipartUpload", "CopyObject"}
