"""The archive's lifecycle rule: what check says where the bucket's rules and retention_days disagree."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from destination_datalake.aws.address import S3Address
from destination_datalake.check.lifecycle import deviations, try_lifecycle
from unit_tests.check.examples import USER, a_trial, findings_of
from unit_tests.cloud import BUCKET, Cloud

pytestmark = pytest.mark.share(7)

RAW = "lake/_raw/"
FOLDER = f"s3://{BUCKET}/{RAW}"
TAG = {"Key": "team", "Value": "sales"}


def expiring(days: int = 30, name: str = "archive", **rule: Any) -> dict[str, Any]:
    """A rule that deletes what is under `_raw/`, with changes."""
    found = {"ID": name, "Status": "Enabled", "Expiration": {"Days": days}, **rule}
    return found if "Prefix" in found else {"Filter": {"Prefix": RAW}, **found}


def on(prefix: str, *tags: dict[str, str], **sizes: int) -> dict[str, Any]:
    """A filter by more than a prefix."""
    return {"And": {"Prefix": prefix, "Tags": [*tags], **sizes}}


KEPT = f"No lifecycle rule of the bucket deletes all that is in {FOLDER}, so that it is kept for good"
EARLY = f"Lifecycle rule archive deletes what is in {FOLDER} 7 days after it was written"
LATE = f"Lifecycle rule archive deletes what is in {FOLDER} 90 days after it was written"
SOME = f"Lifecycle rule archive deletes some of what is in {FOLDER} 7 days after it was written"


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
        ([expiring(7, Filter=on("lake/", TAG)), expiring(name="whole")], [SOME]),
        ([expiring(7, Filter={"Prefix": f"{RAW}landing.users/"}), expiring(90)], [SOME, LATE]),
        ([expiring(Expiration={"Date": datetime(2040, 1, 31, tzinfo=UTC)})],
         [f"Lifecycle rule archive deletes what is in {FOLDER} of any age from 2040-01-31 on"]),
        ([expiring(Expiration={"ExpiredObjectDeleteMarker": True})], [KEPT]),
        ([expiring(7, "two words")], [EARLY.replace("archive", "'two words'")]),
    ],
    ids=str,
)  # fmt: skip
def test_rules_that_keep_the_archive_shorter_or_longer_are_told(rules: list[Any], sentences: list[str]) -> None:
    found = deviations(rules, S3Address(BUCKET, RAW), 30)

    assert [each.partition(", and raw_archive.retention_days is 30")[0] for each in found] == sentences


def said(cloud: Cloud, days: int) -> list[str]:
    trial = a_trial(cloud.access, bucket_prefix="lake", raw_archive={"enabled": True, "retention_days": days})
    findings = findings_of(trial)
    try_lifecycle(trial, findings)
    assert findings.failures == []
    return findings.notes


def test_the_bucket_s_rules_are_compared_with_the_option(cloud: Cloud) -> None:
    assert [note.partition(",")[0] for note in said(cloud, 30)] == [KEPT.partition(",")[0]]

    rules: Any = [expiring(), {**expiring(7, "staged"), "Filter": {"Prefix": "lake/_staging/"}}]
    cloud.access.client("s3").put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": rules})

    assert said(cloud, 30) == []
    assert said(cloud, 31) == [
        f"Lifecycle rule archive deletes what is in {FOLDER} 30 days after it was written, and "
        "raw_archive.retention_days is 31: tables cannot be made again from what is gone. Change the rule, or "
        "retention_days."
    ]


def test_rules_that_may_not_be_read_are_a_note_with_the_statement_that_allows_it(cloud: Cloud) -> None:
    with cloud.refusing("GetBucketLifecycleConfiguration"):
        [note] = said(cloud, 30)

    sentence, _, remedy = note.partition(f" Policy statement for {USER}: ")
    statement, _, consequence = remedy.partition("} ")
    assert sentence == (
        "Cannot read the lifecycle rules of s3://lake/ (S3, GetBucketLifecycleConfiguration): access denied. Allow "
        "s3:GetLifecycleConfiguration on it to the connector's identity in IAM."
    )
    assert json.loads(f"{statement}}}") == {
        "Effect": "Allow",
        "Action": ["s3:GetLifecycleConfiguration"],
        "Resource": ["arn:aws:s3:::lake"],
    }
    assert consequence == "Without it, check cannot tell how long the archive is kept."
