"""Check steps for S3: the bucket's region and lifecycle rules, the folders that syncs use, and the KMS key."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from destination_datalake.archive.objects import ARCHIVE_FOLDER
from destination_datalake.aws.objects import S3Address, known_regions
from destination_datalake.check.step import LEFTOVER_AGE, CheckContext, StepFindings
from destination_datalake.errors import Failure, quoted

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import LifecycleRuleOutputTypeDef

_logger = logging.getLogger(__name__)

KMS_KEY = "kms_key"
"""The ID of the step that reports all requests that KMS has rejected, in any folder."""

_CONTENT = b"Written by a connection check of destination-datalake; safe to delete.\n"
_NAME = "_check-"
_CHECK_OBJECT = re.compile(rf"(.*/)?{_NAME}[0-9a-f]{{32}}")
_MAX_DELETED = 10


def try_region(context: CheckContext, findings: StepFindings) -> None:
    """Add a failure if the bucket does not exist, or if its region differs from the option `region`.

    The connector requires the correct region, because not all S3 clients follow redirects to another region.
    """
    bucket, expected = context.config.bucket_name, context.config.region
    s3 = context.access.client("s3")
    with findings.attempt("find", f"s3://{bucket}/"):
        try:
            headers = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        except s3.exceptions.ClientError as error:
            # S3 returns the region even if it denies access. A later step reports that access is denied.
            response = error.response.get("ResponseMetadata", {})
            if response.get("HTTPStatusCode") == 404:
                findings.fail(
                    f"Cannot find s3://{bucket}/ (S3, HeadBucket): the bucket does not exist. Create the bucket, or "
                    "correct bucket_name and region."
                )
            headers = response.get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region", expected) if not findings.failures else expected
    if region != expected:
        # If the configured region does not exist, no bucket can be in it.
        alternative = f", or choose a bucket in {expected}" if expected in known_regions() else ""
        findings.fail(
            f"Bucket {bucket} is in region {region}, but region is {expected}. Set region to {region}{alternative}."
        )


def try_own_folder(context: CheckContext, findings: StepFindings, uri: str) -> None:
    """Check the permissions for a folder in the configured bucket, and add a failure for each denied request.

    If KMS rejects a request, it rejects the same request in all folders. This function therefore adds such failures to
    `context.key_failures`, so that the step `kms_key` reports each of them once.
    """
    folder_findings = StepFindings(findings.remedies)
    context.encrypted_with += try_folder(context, folder_findings, S3Address.parse(uri))
    for failure in folder_findings.failures:
        if _is_about_key(failure):
            context.key_failures.append(_without_object(failure, context.config.bucket_name))
            findings.blocked_by = KMS_KEY
        else:
            findings.failures.append(failure)


def try_folder(context: CheckContext, findings: StepFindings, folder: S3Address) -> list[str]:
    """Write, read, list and delete an object in `folder`, and start and abort a multipart upload, as syncs do.

    Adds a failure for each rejected request. Returns a list with the encryption of the object: "AES256", the ARN of a
    KMS key, or "nothing". If the write failed, the list is empty.
    """
    s3 = context.access.client("s3")
    bucket, root = folder.bucket, folder.key.rstrip("/")
    key = f"{root}/{_NAME}{context.unique}".lstrip("/")
    address = str(S3Address(bucket, key))
    encrypted_with = []
    with findings.attempt("write to", address) as write:
        stored = s3.put_object(Bucket=bucket, Key=key, Body=_CONTENT)
        encrypted_with.append(stored.get("SSEKMSKeyId") or stored.get("ServerSideEncryption") or "nothing")
    try:
        if write.succeeded:
            with findings.attempt("read", address):
                if s3.get_object(Bucket=bucket, Key=key)["Body"].read() != _CONTENT:
                    findings.fail(
                        f"The content of {address} differs from the content that the check wrote. Check endpoint_url."
                    )
            with findings.attempt("list", address):
                _delete_leftovers(s3, bucket, key.removesuffix(context.unique))
    finally:
        # Always delete the object, because it may exist even if the write failed. Report a failed deletion only after a
        # successful write.
        with (findings if write.succeeded else StepFindings()).attempt("delete", address):
            s3.delete_object(Bucket=bucket, Key=key)
    if write.succeeded:
        with findings.attempt("upload in parts to", address):
            upload = s3.create_multipart_upload(Bucket=bucket, Key=key)
            s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])
    return encrypted_with


def _delete_leftovers(s3: S3Client, bucket: str, prefix: str) -> None:
    """List the objects with this prefix. Delete up to 10 that earlier checks left and that are older than LEFTOVER_AGE.

    Raises botocore's errors if the list request fails. Ignores errors from deletions.
    """
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    latest = datetime.now(UTC) - LEFTOVER_AGE
    # Delete only objects that certainly belong to a check: name, age and size must all match.
    old = [
        entry
        for entry in listed
        if _CHECK_OBJECT.fullmatch(entry["Key"]) and entry["LastModified"] < latest and entry["Size"] == len(_CONTENT)
    ]
    for entry in old[:_MAX_DELETED]:
        address = str(S3Address(bucket, entry["Key"]))
        # Ignore a failure, because the deletion of the check's own object reports a missing permission.
        with StepFindings().attempt("delete", address):
            s3.delete_object(Bucket=bucket, Key=entry["Key"])
            _logger.info("Deleted %s, which an interrupted check had left behind.", address)


def _is_about_key(failure: Failure) -> bool:
    """Return whether KMS rejected the request that failed.

    If so, S3's error code begins with `KMS.`, or the missing permission is an action of KMS.
    """
    denied = failure.missing is not None and failure.missing.action.startswith("kms:")
    return denied or failure.detail.startswith("KMS.")


def _without_object(failure: Failure, bucket: str) -> Failure:
    """Return a copy of the failure that names the bucket instead of an object.

    The failures for different objects then have the same message, so that the check can report them once.
    """
    reason = failure.message.rpartition(" (S3, ")[2]
    return dataclasses.replace(failure, message=f"Cannot use the KMS key for objects in {bucket} (S3, {reason}")


def try_kms_key(context: CheckContext, findings: StepFindings) -> None:
    """Add the failures in `context.key_failures`, and a failure if an object lacks the configured encryption."""
    findings.failures += {failure.message: failure for failure in context.key_failures}.values()
    encryption = context.config.encryption
    match encryption.encryption_type:
        case "SSE-KMS":
            expected = encryption.kms_key_arn
        case "SSE-S3":
            expected = "AES256"
        case "Bucket default":
            return
    if different := [used for used in context.encrypted_with if used != expected]:
        findings.fail(
            f"Objects in {context.config.bucket_name} are encrypted with {different[0]}, but the option encryption "
            f"requires {expected}. If endpoint_url is set, check that the store supports this encryption."
        )


def try_lifecycle(context: CheckContext, findings: StepFindings) -> None:
    """Warn if the bucket's lifecycle rules for the archive differ from the option raw_archive.retention_days.

    Never adds a failure, because syncs do not need a lifecycle rule.
    """
    bucket = context.config.bucket_name
    s3 = context.access.client("s3")
    rules: Sequence[LifecycleRuleOutputTypeDef] = ()
    with findings.attempt("read the lifecycle rules of", f"s3://{bucket}/") as reading:
        try:
            rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        except s3.exceptions.ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchLifecycleConfiguration":
                raise
    if not reading.succeeded:
        findings.warn(
            f"{findings.failures.pop().message} Without this permission, the check cannot determine the retention of "
            "the archive."
        )
        return
    folder = S3Address(bucket, context.config.key(ARCHIVE_FOLDER, ""))
    for message in lifecycle_warnings(rules, folder, context.config.raw_archive.retention_days):
        findings.warn(message)


@dataclass(frozen=True, slots=True)
class _Expiry:
    """The expiration in a lifecycle rule that deletes some or all objects in a folder.

    `days` is the age in days at which the rule deletes an object. A rule with a date deletes objects of any age, so its
    `days` is 0: https://docs.aws.amazon.com/AmazonS3/latest/userguide/intro-lifecycle-rules.html
    `when` is a phrase for messages. `covers_folder` is true if the rule applies to all objects in the folder.
    """

    rule: str
    days: int
    when: str
    covers_folder: bool


def _expiries(rules: Iterable[LifecycleRuleOutputTypeDef], folder: str) -> Iterator[_Expiry]:
    """Yield the expirations of the enabled lifecycle rules that apply to some or all objects in a folder."""
    for rule in rules:
        expiration, chosen = rule.get("Expiration", {}), rule.get("Filter", {})
        # A filter contains one criterion, or several in `And`. Older rules contain a prefix instead of a filter.
        criteria = {"Prefix": rule.get("Prefix", ""), **chosen, **chosen.get("And", {})}
        prefix = str(criteria["Prefix"])
        includes_folder = folder.startswith(prefix)
        if rule["Status"] != "Enabled" or not (includes_folder or prefix.startswith(folder)):
            continue
        covers_folder = includes_folder and criteria.keys() <= {"Prefix", "And"}
        name = quoted(rule.get("ID", ""))
        if "Days" in expiration:
            yield _Expiry(name, expiration["Days"], f"after {expiration['Days']} days", covers_folder)
        elif "Date" in expiration:
            yield _Expiry(name, 0, f"from {expiration['Date']:%Y-%m-%d} on", covers_folder)


def lifecycle_warnings(rules: Iterable[LifecycleRuleOutputTypeDef], folder: S3Address, days: int) -> Iterator[str]:
    """Yield a warning for each lifecycle rule that deletes objects in a folder after fewer than `days` days.

    Also yields a warning if the bucket keeps objects longer. This is the case if no rule deletes all objects in the
    folder, or if every such rule deletes them after more than `days` days. The folder's key must end with a slash.
    """
    expiries = list(_expiries(rules, folder.key))
    for expiry in expiries:
        if expiry.days < days:
            yield (
                f"Lifecycle rule {expiry.rule} deletes {'all' if expiry.covers_folder else 'some'} objects in {folder} "
                f"{expiry.when}, but raw_archive.retention_days is {days}. Tables cannot be rebuilt from deleted "
                "objects. Change the rule, or raw_archive.retention_days."
            )
    complete = [expiry for expiry in expiries if expiry.covers_folder]
    if not complete:
        yield (
            f"No lifecycle rule of the bucket deletes all objects in {folder}, so some objects never expire, but "
            f"raw_archive.retention_days is {days}. Add the lifecycle rule from docs/permissions.md to the bucket."
        )
    # Where rules overlap, the earliest expiration applies (S3 User Guide: How Amazon S3 handles conflicts in lifecycle
    # configurations).
    elif (first := min(complete, key=lambda expiry: expiry.days)).days > days:
        yield (
            f"Lifecycle rule {first.rule} deletes objects in {folder} {first.when}, but "
            f"raw_archive.retention_days is {days}. Change the rule, or raw_archive.retention_days."
        )
