"""Steps about S3: what they report, and that they leave nothing behind."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from destination_datalake.aws.objects import S3Address
from destination_datalake.check.connection import STEPS
from destination_datalake.check.step import StepFindings
from destination_datalake.check.storage import (
    lifecycle_warnings,
    try_folder,
    try_kms_key,
    try_lifecycle,
    try_own_folder,
    try_region,
)
from unit_tests.check.examples import UNIQUE, USER, a_context, deny, findings_of
from unit_tests.cloud import BUCKET, Cloud, another_client

FOLDER = S3Address(BUCKET, "lake/raw")
OBJECT = f"s3://lake/lake/raw/_check-{UNIQUE}"
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1"


def of_the_folder(cloud: Cloud) -> list[str]:
    context = a_context(cloud.access, bucket_prefix="lake/raw")
    findings = findings_of(context)
    try_folder(context, findings, FOLDER)
    return [failure.message for failure in findings.failures]


def test_a_folder_that_works_is_left_as_it_was(cloud: Cloud) -> None:
    assert of_the_folder(cloud) == []
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


@pytest.mark.parametrize(
    ("operation", "doing", "action", "statement"),
    [
        (
            "ListObjectsV2",
            "list",
            "s3:ListBucket",
            {"Resource": ["arn:aws:s3:::lake"], "Condition": {"StringLike": {"s3:prefix": ["lake/raw/*"]}}},
        ),
        ("CreateMultipartUpload", "upload in parts to", "s3:PutObject", {"Resource": ["arn:aws:s3:::lake/lake/raw/*"]}),
    ],
)
def test_a_refused_request_is_one_failure_with_the_statement_that_allows_it(
    cloud: Cloud, operation: str, doing: str, action: str, statement: dict[str, Any]
) -> None:
    with cloud.refusing(operation):
        [message] = of_the_folder(cloud)

    sentence, _, remedy = message.partition(f" Add this statement to an IAM policy of {USER}: ")
    assert sentence == (
        f"Cannot {doing} {OBJECT} (S3, {operation}): access denied. Allow {action} for the connector's identity in IAM."
    )
    assert json.loads(remedy) == {"Effect": "Allow", "Action": [action], **statement}


def test_a_failed_write_and_its_failed_deletion_are_one_failure(cloud: Cloud) -> None:
    with cloud.refusing("PutObject", "DeleteObject"):
        assert len(of_the_folder(cloud)) == 1


def test_an_explicit_deny_gets_no_statement_that_would_not_help(cloud: Cloud) -> None:
    access, text = another_client(), "not authorized to perform: s3:PutObject with an explicit deny in a bucket policy"
    deny(access, "s3", "PutObject", text)
    context = a_context(access)
    findings = findings_of(context)
    try_folder(context, findings, FOLDER)

    assert findings.failures[0].message.endswith(
        "Remove the explicit deny of s3:PutObject for the connector's identity."
    )
    assert cloud.objects() == {}


@pytest.mark.parametrize(
    ("region", "messages"),
    [("us-east-1", []), ("eu-west-1", ["Bucket lake is in region us-east-1, but region is eu-west-1"])],
)
def test_a_bucket_in_another_region_is_named_with_both(cloud: Cloud, region: str, messages: list[str]) -> None:
    findings = StepFindings()

    try_region(a_context(cloud.access, region=region), findings)

    assert [failure.message.partition(".")[0] for failure in findings.failures] == messages


def test_a_missing_bucket_is_one_failure(cloud: Cloud) -> None:
    findings = StepFindings()

    try_region(a_context(cloud.access, bucket_name="nobody-s"), findings)

    [failure] = findings.failures
    assert failure.message.startswith("Cannot find s3://nobody-s/ (S3, HeadBucket): the bucket does not exist.")
    assert failure.error_class == "invalid_settings"


@pytest.mark.parametrize("denied", ["kms:GenerateDataKey", "kms:Decrypt"])
@pytest.mark.parametrize(
    "encryption", [{"encryption_type": "Bucket default"}, {"encryption_type": "SSE-KMS", "kms_key_arn": KEY}]
)
def test_what_kms_refuses_is_one_failure_of_the_step_about_the_key(
    cloud: Cloud, denied: str, encryption: dict[str, str]
) -> None:
    text = f"User: {USER} is not authorized to perform: {denied} on resource: {KEY} because no identity-based policy"
    access = another_client()
    deny(access, "s3", "PutObject", text)
    context = a_context(access, encryption=encryption)
    tables, rejects, key = findings_of(context), findings_of(context), findings_of(context)
    for findings in (tables, rejects):
        try_own_folder(context, findings, context.config.uri("_errors"))
    try_kms_key(context, key)

    assert (tables.failures, tables.blocked_by, rejects.blocked_by) == ([], "kms_key", "kms_key")
    [failure] = key.failures
    assert failure.message.startswith(
        f"Cannot use the KMS key for objects in lake (S3, PutObject): access denied. Allow {denied} on {KEY} for "
    )
    assert f'"Resource": ["{KEY}"]' in failure.message
    assert "kms:GenerateDataKey" in failure.message
    assert "kms:Decrypt" in failure.message
    assert cloud.objects() == {}


@pytest.mark.parametrize(
    ("encryption", "seen", "failures"),
    [
        ({"encryption_type": "Bucket default"}, "aws:kms", 0),
        ({"encryption_type": "SSE-S3"}, "AES256", 0),
        ({"encryption_type": "SSE-S3"}, KEY, 1),
        ({"encryption_type": "SSE-KMS", "kms_key_arn": KEY}, KEY, 0),
        ({"encryption_type": "SSE-KMS", "kms_key_arn": KEY}, "AES256", 1),
        ({"encryption_type": "SSE-KMS", "kms_key_arn": KEY}, "nothing", 1),
    ],
)
def test_a_store_that_encrypts_otherwise_than_asked_is_a_failure(
    encryption: dict[str, str], seen: str, failures: int
) -> None:
    context, findings = a_context(another_client(), encryption=encryption), StepFindings()
    context.encrypted_with.append(seen)

    try_kms_key(context, findings)

    assert len(findings.failures) == failures


def test_only_objects_that_killed_checks_left_long_ago_are_deleted(cloud: Cloud) -> None:
    access, s3 = another_client(), cloud.access.client("s3")
    ours = b"Written by a connection check of destination-datalake; safe to delete.\n"
    leftovers = {
        f"lake/raw/_check-{'a' * 32}": ours,
        f"lake/raw/_check-{'b' * 32}": b"what somebody else keeps under such a name, in a length of its own",
        "lake/raw/_check-list.csv": ours,
        f"lake/raw/orders/_check-{'a' * 32}": ours,
    }
    for key, content in leftovers.items():
        s3.put_object(Bucket=BUCKET, Key=key, Body=content)

    try_folder(a_context(access), StepFindings(), FOLDER)
    assert cloud.objects() == leftovers

    def age(parsed: dict[str, Any], **_: object) -> None:
        for entry in parsed["Contents"]:
            entry["LastModified"] = datetime.now(UTC) - timedelta(days=2)

    access.client("s3").meta.events.register("after-call.s3.ListObjectsV2", age)
    try_folder(a_context(access), StepFindings(), FOLDER)
    assert list(cloud.objects()) == list(leftovers)[1:]


def test_records_are_staged_only_for_executors_on_other_machines(cloud: Cloud) -> None:
    [staging] = [step for step in STEPS if step.id == "staging_folder"]

    assert not staging.applies(a_context(cloud.access).config)
    assert staging.applies(a_context(cloud.access, spark={"master": "spark://cluster:7077"}).config)


# Rules that keep the archive for the days of the option


RAW = "lake/_raw/"
ARCHIVE = f"s3://{BUCKET}/{RAW}"
TAG = {"Key": "team", "Value": "sales"}


def expiring(days: int = 30, name: str = "archive", **rule: Any) -> dict[str, Any]:
    """A rule that deletes what is under `_raw/`, with changes."""
    complete = {"ID": name, "Status": "Enabled", "Expiration": {"Days": days}, **rule}
    return complete if "Prefix" in complete else {"Filter": {"Prefix": RAW}, **complete}


def on(prefix: str, *tags: dict[str, str], **sizes: int) -> dict[str, Any]:
    """A filter by more than a prefix."""
    return {"And": {"Prefix": prefix, "Tags": [*tags], **sizes}}


KEPT = f"No lifecycle rule of the bucket deletes all objects in {ARCHIVE}"
EARLY = f"Lifecycle rule archive deletes all objects in {ARCHIVE} after 7 days"
LATE = f"Lifecycle rule archive deletes objects in {ARCHIVE} after 90 days"
SOME_OBJECTS = f"Lifecycle rule archive deletes some objects in {ARCHIVE} after 7 days"


@pytest.mark.parametrize(
    ("rules", "sentences"),
    [
        ([expiring()], []),
        ([expiring(Prefix=RAW)], []),
        ([expiring(Filter=on(RAW, TAG)), expiring(name="other")], []),
        ([expiring(Filter={"Prefix": ""})], []),
        ([expiring(Filter={"Prefix": "lake/_raw"})], []),
        ([expiring(7)], [EARLY]),
        ([expiring(7, Filter={"Prefix": ""})], [EARLY]),
        ([expiring(7), expiring(90, "later")], [EARLY]),
        ([expiring(90)], [LATE]),
        ([expiring(90), expiring(365, "later")], [LATE]),
        ([expiring(90), expiring(30, "first")], []),
        ([expiring(Status="Disabled")], [KEPT]),
        ([expiring(Filter={"Prefix": "lake/_staging/"})], [KEPT]),
        ([expiring(Filter={"Prefix": "lake/_rawest/"})], [KEPT]),
        ([expiring(Filter={"Prefix": f"{RAW}landing.users/"})], [KEPT]),
        ([expiring(Filter={"Tag": TAG})], [KEPT]),
        ([expiring(Filter=on(RAW, TAG))], [KEPT]),
        ([expiring(Filter=on(RAW, ObjectSizeLessThan=1000))], [KEPT]),
        ([expiring(Filter={"ObjectSizeGreaterThan": 1000})], [KEPT]),
        ([expiring(7, Filter=on("lake/", TAG)), expiring(name="whole")], [SOME_OBJECTS]),
        ([expiring(7, Filter={"Prefix": f"{RAW}landing.users/"}), expiring(90)], [SOME_OBJECTS, LATE]),
        ([expiring(Expiration={"Date": datetime(2040, 1, 31, tzinfo=UTC)})],
         [f"Lifecycle rule archive deletes all objects in {ARCHIVE} from 2040-01-31 on"]),
        ([expiring(Expiration={"ExpiredObjectDeleteMarker": True})], [KEPT]),
        ([expiring(7, "two words")], [EARLY.replace("archive", "'two words'")]),
    ],
    ids=str,
)  # fmt: skip
def test_rules_that_keep_the_archive_shorter_or_longer_are_told(rules: list[Any], sentences: list[str]) -> None:
    warnings = lifecycle_warnings(rules, S3Address(BUCKET, RAW), 30)

    assert [warning.partition(", ")[0] for warning in warnings] == sentences


def lifecycle_notes(cloud: Cloud, days: int) -> list[str]:
    context = a_context(cloud.access, bucket_prefix="lake", raw_archive={"enabled": True, "retention_days": days})
    findings = findings_of(context)
    try_lifecycle(context, findings)
    assert findings.failures == []
    return findings.notes


def test_the_bucket_s_rules_are_compared_with_the_option(cloud: Cloud) -> None:
    assert [note.partition(",")[0] for note in lifecycle_notes(cloud, 30)] == [KEPT]

    rules: Any = [expiring(), {**expiring(7, "staged"), "Filter": {"Prefix": "lake/_staging/"}}]
    cloud.access.client("s3").put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": rules})

    assert lifecycle_notes(cloud, 30) == []
    assert lifecycle_notes(cloud, 31) == [
        f"Lifecycle rule archive deletes all objects in {ARCHIVE} after 30 days, but "
        "raw_archive.retention_days is 31. Tables cannot be rebuilt from deleted objects. Change the rule, or "
        "raw_archive.retention_days."
    ]


def test_rules_that_may_not_be_read_are_a_note_with_the_statement_that_allows_it(cloud: Cloud) -> None:
    with cloud.refusing("GetBucketLifecycleConfiguration"):
        [note] = lifecycle_notes(cloud, 30)

    sentence, _, remedy = note.partition(f" Add this statement to an IAM policy of {USER}: ")
    statement, _, consequence = remedy.partition("} ")
    assert sentence == (
        "Cannot read the lifecycle rules of s3://lake/ (S3, GetBucketLifecycleConfiguration): access denied. Allow "
        "s3:GetLifecycleConfiguration for the connector's identity in IAM."
    )
    assert json.loads(f"{statement}}}") == {
        "Effect": "Allow",
        "Action": ["s3:GetLifecycleConfiguration"],
        "Resource": ["arn:aws:s3:::lake"],
    }
    assert consequence == "Without this permission, the check cannot determine the retention of the archive."
