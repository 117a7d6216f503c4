"""Find buckets and KMS keys in moto's state, and the policies of buckets, KMS keys and roles."""

from dataclasses import dataclass
from typing import Any

from emulated_aws.access.identity import PARTITION, role_of
from emulated_aws.policies.policy import Policy, parse_policy
from emulated_aws.requests.needs import key_arn


@dataclass(frozen=True, slots=True)
class ResourcePolicy:
    """The policy of a resource. `kind` is the name of the policy's kind in error messages."""

    policy: Policy
    kind: str
    decides: bool
    """Whether the policy must allow an action, or delegate the decision to the account's identity-based policies. If
    false, an identity-based policy that allows the action is sufficient."""


def resource_policy(resource: str, account: str) -> ResourcePolicy | None:
    """Return the policy that applies to a resource, or None if there is none.

    This is the policy of a KMS key or a role, or the policy of the bucket for a bucket or an object.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-policies.html,
    https://docs.aws.amazon.com/kms/latest/developerguide/key-policies.html,
    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles.html#iam-term-trust-policy
    """
    if is_of_key(resource):
        key = find_key(resource, "", account)
        return None if key is None else ResourcePolicy(parse_policy(key.policy), "resource-based", True)
    if resource.startswith("arn:aws:s3:::"):
        bucket = bucket_named(resource.removeprefix("arn:aws:s3:::").partition("/")[0], account)
        if bucket is None or bucket.policy is None:
            return None
        return ResourcePolicy(parse_policy(bucket.policy.decode()), "resource-based", False)
    if ":role/" in resource:
        role = role_of(resource, account)
        return role and ResourcePolicy(parse_policy(role.assume_role_policy_document), "role trust", True)
    return None


def bucket_named(name: str, account: str) -> Any:
    """Return the object that represents a bucket in moto, or None if the bucket does not exist."""
    from moto.s3.models import s3_backends

    return s3_backends[account][PARTITION].buckets.get(name)


def find_key(named: str, region: str, account: str) -> Any:
    """Return the object that represents a KMS key in moto, or None if the key does not exist.

    `named` is the key's ID, alias or ARN. The region and the account in an ARN override the arguments.
    """
    from moto.kms.models import kms_backends

    _, _, _, region, account, name = key_arn(named, region, account).split(":", 5)
    if region not in kms_backends[account]:
        return None
    backend = kms_backends[account][region]
    kind, _, key_id = name.partition("/")
    if kind == "alias":
        key_id = backend.get_key_id_from_alias(name) or ""
    return backend.keys.get(key_id)


def is_of_key(resource: str) -> bool:
    """Return whether a resource is the ARN of a KMS key or of an alias."""
    return resource.startswith("arn:aws:kms:")


def take_bucket_policies_from_moto() -> None:
    """Prevent moto from applying bucket policies, because moto ignores their conditions and principals."""
    from moto.iam.access_control import PermissionResult
    from moto.s3.models import FakeBucket

    def neutral(_self: FakeBucket, _action: str, _resource: str) -> PermissionResult:
        return PermissionResult.NEUTRAL

    FakeBucket.get_permission = neutral  # type: ignore[assignment,method-assign]
