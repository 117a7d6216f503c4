"""Steps about S3: the bucket's region and lifecycle rules, every folder that a sync writes to, and the KMS key."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from destination_datalake.archive.objects import ARCHIVE_FOLDER
from destination_datalake.aws.address import S3Address, known_regions
from destination_datalake.check.step import LEFTOVER_AGE, Findings, Trial
from destination_datalake.errors import Failure, quoted

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef

_logger = logging.getLogger(__name__)

KMS_KEY = "kms_key"
"""The id of the step that reports what KMS refuses, whichever folder met it first."""

_CONTENT = b"Written by a connection check of destination-datalake; safe to delete.\n"
_NAME = "_check-"
_OURS = re.compile(rf"(.*/)?{_NAME}[0-9a-f]{{32}}")
_DELETED_AT_ONCE = 10


def try_region(trial: Trial, findings: Findings) -> None:
    """Compare the bucket's region with the option's: boto3 follows redirects, other clients may not."""
    bucket, expected = trial.config.bucket_name, trial.config.region
    s3 = trial.access.client("s3")
    with findings.attempt("find", f"s3://{bucket}/"):
        try:
            headers = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        except s3.exceptions.ClientError as error:
            # S3 names the region also if it denies access. Later steps report what else is wrong.
            response = error.response.get("ResponseMetadata", {})
            if response.get("HTTPStatusCode") == 404:
                findings.fail(
                    f"Cannot find s3://{bucket}/ (S3, HeadBucket): the bucket does not exist. Create the bucket, or "
                    "correct bucket_name and region."
                )
            headers = response.get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region", expected) if not findings.failures else expected
    if region != expected:
        # Nobody has a bucket in a region that does not exist.
        other = f", or choose a bucket in {expected}" if expected in known_regions() else ""
        findings.fail(
            f"Bucket {bucket} is in region {region}, but region is {expected}. Set region to {region}{other}."
        )


def try_own_folder(trial: Trial, findings: Findings, uri: str) -> None:
    """Try a folder of `bucket_name`. KMS refuses the same in all of them, which one step reports."""
    found = Findings(findings.remedies)
    trial.encrypted_with += try_folder(trial, found, S3Address.parse(uri))
    for failure in found.failures:
        if _is_about_key(failure):
            trial.key_failures.append(_without_object(failure, trial.config.bucket_name))
            findings.blocked_by = KMS_KEY
        else:
            findings.failures.append(failure)


def try_folder(trial: Trial, findings: Findings, folder: S3Address) -> list[str]:
    """Send every request for an object in `folder` that a sync sends for its own. Leaves nothing behind.

    Returns what S3 has encrypted the object with, if it is written: "AES256", or the ARN of a KMS key.
    """
    s3 = trial.access.client("s3")
    bucket, root = folder.bucket, folder.key.rstrip("/")
    key = f"{root}/{_NAME}{trial.unique}".lstrip("/")
    address = str(S3Address(bucket, key))
    encrypted_with = []
    with findings.attempt("write to", address) as write:
        stored = s3.put_object(Bucket=bucket, Key=key, Body=_CONTENT)
        encrypted_with.append(stored.get("SSEKMSKeyId") or stored.get("ServerSideEncryption") or "nothing")
    try:
        if write.succeeded:
            with findings.attempt("read", address):
                if s3.get_object(Bucket=bucket, Key=key)["Body"].read() != _CONTENT:
                    findings.fail(f"S3 returned other bytes for {address} than were written. Check endpoint_url.")
            with findings.attempt("list", address):
                _delete_leftovers(s3, bucket, key.removesuffix(trial.unique))
    finally:
        # A write may have failed after the object was stored. If it failed, a failing delete is no further problem.
        with (findings if write.succeeded else Findings()).attempt("delete", address):
            s3.delete_object(Bucket=bucket, Key=key)
    if write.succeeded:
        with findings.attempt("upload in parts to", address):
            upload = s3.create_multipart_upload(Bucket=bucket, Key=key)
            s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])
    return encrypted_with


def _delete_leftovers(s3: S3Client, bucket: str, prefix: str) -> None:
    """List the objects of checks in a folder, and delete those that killed checks have left there days ago."""
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    latest = datetime.now(UTC) - LEFTOVER_AGE
    old = [
        each
        for each in listed
        if _OURS.fullmatch(each["Key"]) and each["LastModified"] < latest and each["Size"] == len(_CONTENT)
    ]
    for each in old[:_DELETED_AT_ONCE]:
        address = str(S3Address(bucket, each["Key"]))
        # What cannot be deleted stays: the check's own object shows whether that is a problem.
        with Findings().attempt("delete", address):
            s3.delete_object(Bucket=bucket, Key=each["Key"])
            _logger.info("Deleted %s, which an interrupted check has left.", address)


def _is_about_key(failure: Failure) -> bool:
    """Whether S3 permits the request and KMS does not; S3 passes on KMS's error codes."""
    denied = failure.missing is not None and failure.missing.action.startswith("kms:")
    return denied or failure.detail.startswith("KMS.")


def _without_object(failure: Failure, bucket: str) -> Failure:
    """Return the failure as that of the bucket's key, the same for every object."""
    reason = failure.message.rpartition(" (S3, ")[2]
    return dataclasses.replace(failure, message=f"Cannot use the KMS key for objects in {bucket} (S3, {reason}")


def try_kms_key(trial: Trial, findings: Findings) -> None:
    """Report why S3 could not use the KMS key, or that it has not used the one that is configured."""
    findings.failures += {failure.message: failure for failure in trial.key_failures}.values()
    encryption = trial.config.encryption
    match encryption.encryption_type:
        case "SSE-KMS":
            expected = encryption.kms_key_arn
        case "SSE-S3":
            expected = "AES256"
        case "Bucket default":
            return
    if others := [each for each in trial.encrypted_with if each != expected]:
        findings.fail(
            f"Objects in {trial.config.bucket_name} are encrypted with {others[0]}, but encryption asks for {expected}."
            " Check endpoint_url: the store may not support this encryption."
        )


def try_lifecycle(trial: Trial, findings: Findings) -> None:
    """Warn where the bucket's rules and the option disagree. Syncs need no rule, so that nothing fails the check."""
    bucket = trial.config.bucket_name
    s3 = trial.access.client("s3")
    rules: Sequence[LifecycleRuleOutputTypeDef] = ()
    with findings.attempt("read the lifecycle rules of", f"s3://{bucket}/") as reading:
        try:
            rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except s3.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
                raise
    if not reading.succeeded:
        findings.warn(f"{findings.failures.pop().message} Without it, check cannot tell how long the archive is kept.")
        return
    folder = S3Address(bucket, trial.config.key(ARCHIVE_FOLDER, ""))
    for sentence in deviations(rules, folder, trial.config.raw_archive.retention_days):
        findings.warn(sentence)


@dataclass(frozen=True, slots=True)
class _Expiry:
    """A rule by which S3 deletes objects of a folder, all of them or some.

    `days` is the age at which it does. A rule with a date deletes objects of any age, from then on: its `days` are 0.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/intro-lifecycle-rules.html
    """

    rule: str
    days: int
    when: str
    is_of_all: bool


def _expiries(rules: Iterable[LifecycleRuleOutputTypeDef], folder: str) -> Iterator[_Expiry]:
    """Yield what the rules delete of a folder."""
    for rule in rules:
        expiration, chosen = rule.get("Expiration", {}), rule.get("Filter", {})
        # A filter has one criterion, or several in `And`; rules of an older form have the prefix outside.
        criteria = {"Prefix": rule.get("Prefix", ""), **chosen, **chosen.get("And", {})}
        prefix = str(criteria["Prefix"])
        above = folder.startswith(prefix)
        if rule["Status"] != "Enabled" or not (above or prefix.startswith(folder)):
            continue
        is_of_all = above and criteria.keys() <= {"Prefix", "And"}
        name = quoted(rule.get("ID", ""))
        if "Days" in expiration:
            yield _Expiry(name, expiration["Days"], f"{expiration['Days']} days after it was written", is_of_all)
        elif "Date" in expiration:
            yield _Expiry(name, 0, f"of any age from {expiration['Date']:%Y-%m-%d} on", is_of_all)


def deviations(rules: Iterable[LifecycleRuleOutputTypeDef], folder: S3Address, days: int) -> Iterator[str]:
    """Yield a sentence for each way in which rules keep objects of a folder shorter or longer than these days.

    The folder's key has a slash at its end.
    """
    expiries = list(_expiries(rules, folder.key))
    for each in expiries:
        if each.days < days:
            yield (
                f"Lifecycle rule {each.rule} deletes {'what' if each.is_of_all else 'some of what'} is in {folder} "
                f"{each.when}, and raw_archive.retention_days is {days}: tables cannot be made again from what is "
                "gone. Change the rule, or retention_days."
            )
    of_all = [each for each in expiries if each.is_of_all]
    if not of_all:
        yield (
            f"No lifecycle rule of the bucket deletes all that is in {folder}, so that it is kept for good, and "
            f"raw_archive.retention_days is {days}. Add a rule: docs/permissions.md has a rule for it."
        )
    # Where rules overlap, S3 deletes at the earliest (S3 User Guide: How Amazon S3 handles conflicts in lifecycle
    # configurations).
    elif (first := min(of_all, key=lambda each: each.days)).days > days:
        yield (
            f"Lifecycle rule {first.rule} deletes what is in {folder} {first.when}, and raw_archive.retention_days is "
            f"{days}: it is kept longer than that. Change the rule, or retention_days."
        )
