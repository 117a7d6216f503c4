"""Steps about S3: the bucket's region, every folder that a sync writes to, and the KMS key."""

from __future__ import annotations

import dataclasses
import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from destination_datalake.archive.objects import ARCHIVE_FOLDER
from destination_datalake.aws.address import S3Address, known_regions
from destination_datalake.check.step import LEFTOVER_AGE, Findings, Trial
from destination_datalake.config.options import Config
from destination_datalake.errors import Failure
from destination_datalake.rejects.ledger import REJECTS_FOLDER

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

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


def try_tables_folder(trial: Trial, findings: Findings) -> None:
    """Try the folder of the tables of `lakeformation_database_name`."""
    _try_own_folder(trial, findings, trial.config.table_uri(trial.config.lakeformation_database_name, ""))


def try_rejects_folder(trial: Trial, findings: Findings) -> None:
    """Try the folder of the rejects."""
    _try_own_folder(trial, findings, trial.config.uri(REJECTS_FOLDER))


def try_archive_folder(trial: Trial, findings: Findings) -> None:
    """Try the folder of the archive."""
    _try_own_folder(trial, findings, trial.config.uri(ARCHIVE_FOLDER))


def try_staging_folder(trial: Trial, findings: Findings) -> None:
    """Try the folder of the records that executors on other machines read."""
    _try_own_folder(trial, findings, trial.config.uri("_staging"))


def stages_records(config: Config) -> bool:
    """Whether executors are on other machines, so that records are staged in S3."""
    return not config.spark.is_local


def _try_own_folder(trial: Trial, findings: Findings, uri: str) -> None:
    """Try a folder of `bucket_name`. What KMS refuses is the same in all of them, and left to one step."""
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
