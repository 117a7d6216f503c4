"""Keys, buckets, and where Athena keeps results."""

from __future__ import annotations

import json
from typing import Any

from integration_tests.infra.resources.resource import Aws, Properties, every
from integration_tests.infra.template import Made


def key(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::KMS::Key."""
    kms = aws.client("kms")
    with every(properties) as rest:
        # Only said to CloudFormation: how long a deleted key can be restored.
        assert 7 <= rest.pop("PendingWindowInDays") <= 30
        policy, description = json.dumps(rest.pop("KeyPolicy")), rest.pop("Description")
        if made is None:
            created = kms.create_key(Policy=policy, Description=description)["KeyMetadata"]
            made = Made(created["KeyId"], {"Arn": created["Arn"]})
        else:
            kms.put_key_policy(KeyId=made.ref, PolicyName="default", Policy=policy)
            kms.update_key_description(KeyId=made.ref, Description=description)
        (kms.enable_key_rotation if rest.pop("EnableKeyRotation") else kms.disable_key_rotation)(KeyId=made.ref)
    return made


def alias(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::KMS::Alias."""
    kms = aws.client("kms")
    (kms.update_alias if made else kms.create_alias)(**properties)
    return Made(properties["AliasName"])


def bucket(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::S3::Bucket."""
    s3 = aws.client("s3")
    with every(properties) as rest:
        name = rest.pop("BucketName")
        if made is None:
            s3.create_bucket(Bucket=name)
        rules = rest.pop("BucketEncryption")["ServerSideEncryptionConfiguration"]
        s3.put_bucket_encryption(
            Bucket=name, ServerSideEncryptionConfiguration={"Rules": [_encryption_rule(rule) for rule in rules]}
        )
        s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=rest.pop("OwnershipControls"))
        s3.put_public_access_block(
            Bucket=name, PublicAccessBlockConfiguration=rest.pop("PublicAccessBlockConfiguration")
        )
        rules = rest.pop("LifecycleConfiguration")["Rules"]
        s3.put_bucket_lifecycle_configuration(
            Bucket=name, LifecycleConfiguration={"Rules": [_lifecycle_rule(rule) for rule in rules]}
        )
    return Made(name, {"Arn": f"arn:aws:s3:::{name}"})


def _encryption_rule(rule: Properties) -> Any:
    with every(rule) as rest:
        return {
            "BucketKeyEnabled": rest.pop("BucketKeyEnabled"),
            "ApplyServerSideEncryptionByDefault": rest.pop("ServerSideEncryptionByDefault"),
        }


def _lifecycle_rule(rule: Properties) -> Any:
    with every(rule) as rest:
        applied = {
            "ID": rest.pop("Id"),
            "Status": rest.pop("Status"),
            "Filter": {"Prefix": rest.pop("Prefix", "")},
        }
        if days := rest.pop("ExpirationInDays", None):
            applied["Expiration"] = {"Days": int(days)}
        if abort := rest.pop("AbortIncompleteMultipartUpload", None):
            applied["AbortIncompleteMultipartUpload"] = abort
    return applied


def bucket_policy(aws: Aws, name: str, properties: Properties, _made: Made | None) -> Made:
    """AWS::S3::BucketPolicy."""
    with every(properties) as rest:
        aws.client("s3").put_bucket_policy(Bucket=rest.pop("Bucket"), Policy=json.dumps(rest.pop("PolicyDocument")))
    return Made(aws.name(name))


def work_group(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Athena::WorkGroup."""
    athena = aws.client("athena")
    with every(properties) as rest:
        name, configuration = rest.pop("Name"), rest.pop("WorkGroupConfiguration")
        # Every workgroup is enabled when it is made.
        assert rest.pop("State") == "ENABLED"
        assert made is None, "moto cannot change a workgroup"
        athena.create_work_group(Name=name, Configuration=configuration, Description=rest.pop("Description"))
    return Made(name)
