"""The policies that resources have themselves: those of buckets."""

from typing import Any

from integration_tests.aws.access.identity import PARTITION
from integration_tests.aws.access.policy import Policy, parse_policy


def resource_policy(resource: str, account: str) -> Policy | None:
    """Return the policy of the bucket that a resource is or lies in, if it has one.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-policies.html
    """
    if not resource.startswith("arn:aws:s3:::"):
        return None
    bucket = bucket_named(resource.removeprefix("arn:aws:s3:::").partition("/")[0], account)
    return None if bucket is None or bucket.policy is None else parse_policy(bucket.policy.decode())


def bucket_named(name: str, account: str) -> Any:
    """Return moto's bucket, or nothing."""
    from moto.s3.models import s3_backends

    return s3_backends[account][PARTITION].buckets.get(name)


def take_bucket_policies_from_moto() -> None:
    """Let moto apply no bucket policy: it regards neither conditions nor principals."""
    from moto.iam.access_control import PermissionResult
    from moto.s3.models import FakeBucket

    def neutral(_self: FakeBucket, _action: str, _resource: str) -> PermissionResult:
        return PermissionResult.NEUTRAL

    FakeBucket.get_permission = neutral  # type: ignore[assignment,method-assign]
