"""The types of resources that the templates use, each applied through the API of its service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from emulated_aws.server import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, PrimitiveType, StringType, TimestampType

from integration_tests.infra.template import Made

Properties: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Aws:
    """The account in which a stack is deployed. `client` returns a boto3 client for a service."""

    stack: str
    account: str
    region: str
    client: Callable[[str], Any]

    def name(self, logical_name: str) -> str:
        """Return the name of a resource whose properties give it none."""
        return f"{self.stack}-{logical_name}"


Put: TypeAlias = Callable[[Aws, str, Properties, Made | None], Made]
"""Make a resource with this logical name, or change the one that exists, to what the properties say."""


@contextmanager
def every(properties: Properties) -> Iterator[Properties]:
    """Lend properties to take from; fail if one is left: nothing that a template says is dropped silently."""
    remaining = dict(properties)
    yield remaining
    assert not remaining, f"properties that are not applied: {sorted(remaining)}"


# Keys, buckets, and where Athena keeps results


def key(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::KMS::Key."""
    kms = aws.client("kms")
    with every(properties) as remaining:
        # Only said to CloudFormation: how long a deleted key can be restored.
        assert 7 <= remaining.pop("PendingWindowInDays") <= 30
        policy, description = json.dumps(remaining.pop("KeyPolicy")), remaining.pop("Description")
        if made is None:
            created = kms.create_key(Policy=policy, Description=description)["KeyMetadata"]
            made = Made(created["KeyId"], {"Arn": created["Arn"]})
        else:
            kms.put_key_policy(KeyId=made.ref, PolicyName="default", Policy=policy)
            kms.update_key_description(KeyId=made.ref, Description=description)
        (kms.enable_key_rotation if remaining.pop("EnableKeyRotation") else kms.disable_key_rotation)(KeyId=made.ref)
    return made


def alias(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::KMS::Alias."""
    kms = aws.client("kms")
    (kms.update_alias if made else kms.create_alias)(**properties)
    return Made(properties["AliasName"])


def bucket(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::S3::Bucket."""
    s3 = aws.client("s3")
    with every(properties) as remaining:
        name = remaining.pop("BucketName")
        if made is None:
            s3.create_bucket(Bucket=name)
        rules = remaining.pop("BucketEncryption")["ServerSideEncryptionConfiguration"]
        s3.put_bucket_encryption(
            Bucket=name, ServerSideEncryptionConfiguration={"Rules": [_encryption_rule(rule) for rule in rules]}
        )
        s3.put_bucket_ownership_controls(Bucket=name, OwnershipControls=remaining.pop("OwnershipControls"))
        s3.put_public_access_block(
            Bucket=name, PublicAccessBlockConfiguration=remaining.pop("PublicAccessBlockConfiguration")
        )
        rules = remaining.pop("LifecycleConfiguration")["Rules"]
        s3.put_bucket_lifecycle_configuration(
            Bucket=name, LifecycleConfiguration={"Rules": [_lifecycle_rule(rule) for rule in rules]}
        )
    return Made(name, {"Arn": f"arn:aws:s3:::{name}"})


def _encryption_rule(rule: Properties) -> Any:
    with every(rule) as remaining:
        return {
            "BucketKeyEnabled": remaining.pop("BucketKeyEnabled"),
            "ApplyServerSideEncryptionByDefault": remaining.pop("ServerSideEncryptionByDefault"),
        }


def _lifecycle_rule(rule: Properties) -> Any:
    with every(rule) as remaining:
        applied = {
            "ID": remaining.pop("Id"),
            "Status": remaining.pop("Status"),
            "Filter": {"Prefix": remaining.pop("Prefix", "")},
        }
        if days := remaining.pop("ExpirationInDays", None):
            applied["Expiration"] = {"Days": int(days)}
        if abort := remaining.pop("AbortIncompleteMultipartUpload", None):
            applied["AbortIncompleteMultipartUpload"] = abort
    return applied


def bucket_policy(aws: Aws, name: str, properties: Properties, _made: Made | None) -> Made:
    """AWS::S3::BucketPolicy."""
    with every(properties) as remaining:
        aws.client("s3").put_bucket_policy(
            Bucket=remaining.pop("Bucket"), Policy=json.dumps(remaining.pop("PolicyDocument"))
        )
    return Made(aws.name(name))


def work_group(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Athena::WorkGroup."""
    athena = aws.client("athena")
    with every(properties) as remaining:
        name, configuration = remaining.pop("Name"), remaining.pop("WorkGroupConfiguration")
        # Every workgroup is enabled when it is made.
        assert remaining.pop("State") == "ENABLED"
        assert made is None, "moto cannot change a workgroup"
        athena.create_work_group(Name=name, Configuration=configuration, Description=remaining.pop("Description"))
    return Made(name)


# Databases and tables of the Glue Data Catalog


_ICEBERG: dict[str, PrimitiveType] = {"string": StringType(), "timestamp": TimestampType()}


def database(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Glue::Database."""
    glue = aws.client("glue")
    name = properties["DatabaseInput"]["Name"]
    if made is None:
        glue.create_database(**properties)
    else:
        glue.update_database(Name=name, **properties)
    return Made(name)


def table(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Glue::Table of an Iceberg table, whose first metadata Glue writes, and PyIceberg here."""
    assert made is None, "an update would write an old description over the table's present one"
    glue = aws.client("glue")
    with every(properties) as remaining:
        database, declared = remaining.pop("DatabaseName"), remaining.pop("TableInput")
        # The request that CloudFormation makes has to be valid, too.
        glue.create_table(
            CatalogId=remaining.pop("CatalogId"),
            DatabaseName=database,
            TableInput=declared,
            OpenTableFormatInput=remaining.pop("OpenTableFormatInput"),
        )
        glue.delete_table(DatabaseName=database, Name=declared["Name"])
        storage = declared["StorageDescriptor"]
        fields = [
            NestedField(number, column["Name"], _ICEBERG[column["Type"]])
            for number, column in enumerate(storage["Columns"], start=1)
        ]
        keys = {"access-key-id": ACCESS_KEY_ID, "secret-access-key": SECRET_ACCESS_KEY, "region": aws.region}
        keys["endpoint"] = glue.meta.endpoint_url
        catalog = GlueCatalog(aws.stack, client=glue, **{f"s3.{name}": value for name, value in keys.items()})
        catalog.create_table((database, declared["Name"]), Schema(*fields), location=storage["Location"])
    return Made(declared["Name"])


# Roles and their policies


def role(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::IAM::Role."""
    iam = aws.client("iam")
    name = aws.name(logical_name)
    with every(properties) as remaining:
        trust, description = json.dumps(remaining.pop("AssumeRolePolicyDocument")), remaining.pop("Description")
        seconds = int(remaining.pop("MaxSessionDuration", 3600))
        if made is None:
            created = iam.create_role(
                RoleName=name, AssumeRolePolicyDocument=trust, Description=description, MaxSessionDuration=seconds
            )["Role"]
            return Made(name, {"Arn": created["Arn"]})
        iam.update_role(RoleName=name, Description=description, MaxSessionDuration=seconds)
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=trust)
    return made


def role_policy(aws: Aws, logical_name: str, properties: Properties, _made: Made | None) -> Made:
    """AWS::IAM::RolePolicy."""
    with every(properties) as remaining:
        aws.client("iam").put_role_policy(
            RoleName=remaining.pop("RoleName"),
            PolicyName=remaining.pop("PolicyName"),
            PolicyDocument=json.dumps(remaining.pop("PolicyDocument")),
        )
    return Made(aws.name(logical_name))


# Lake Formation: data locations, permissions, LF-Tags


def location(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::LakeFormation::Resource."""
    client = aws.client("lakeformation")
    if made is None:
        client.register_resource(**properties)
    else:
        with every(properties) as remaining:
            assert not remaining.pop("UseServiceLinkedRole"), "such a location cannot be updated"
            client.update_resource(**remaining)
            remaining.clear()
    return Made(properties["ResourceArn"])


def permissions(aws: Aws, name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::LakeFormation::PrincipalPermissions."""
    assert made is None, "this resource is replaced, not updated"
    aws.client("lakeformation").grant_permissions(**properties)
    return Made(aws.name(name))


def tag(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::LakeFormation::Tag."""
    assert made is None, "this resource is made once in these tests"
    aws.client("lakeformation").create_lf_tag(**properties)
    return Made(properties["TagKey"])


def tag_association(aws: Aws, name: str, properties: Properties, _made: Made | None) -> Made:
    """AWS::LakeFormation::TagAssociation."""
    answer = aws.client("lakeformation").add_lf_tags_to_resource(**properties)
    assert answer.get("Failures", []) == []
    return Made(aws.name(name))


# Streams of events, their delivery, and its log


def stream(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Kinesis::Stream."""
    assert made is None, "this resource is made once in these tests"
    kinesis, name = aws.client("kinesis"), aws.name(logical_name)
    with every(properties) as remaining:
        kinesis.create_stream(StreamName=name, StreamModeDetails=remaining.pop("StreamModeDetails"))
        kinesis.start_stream_encryption(StreamName=name, **remaining.pop("StreamEncryption"))
        # What Kinesis keeps without being told.
        assert remaining.pop("RetentionPeriodHours") == 24
    described = kinesis.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]
    return Made(name, {"Arn": described["StreamARN"]})


def log_group(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Logs::LogGroup."""
    logs, name = aws.client("logs"), aws.name(logical_name)
    if made is None:
        logs.create_log_group(logGroupName=name)
    with every(properties) as remaining:
        logs.put_retention_policy(logGroupName=name, retentionInDays=remaining.pop("RetentionInDays"))
    return Made(name)


def log_stream(aws: Aws, _name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::Logs::LogStream."""
    assert made is None, "this resource is replaced, not updated"
    with every(properties) as remaining:
        name = remaining.pop("LogStreamName")
        aws.client("logs").create_log_stream(logGroupName=remaining.pop("LogGroupName"), logStreamName=name)
    return Made(name)


def delivery(aws: Aws, logical_name: str, properties: Properties, made: Made | None) -> Made:
    """AWS::KinesisFirehose::DeliveryStream with a destination of Iceberg tables."""
    assert made is None, "this resource is made once in these tests"
    name = aws.name(logical_name)
    with every(properties) as remaining:
        destination = {
            # The API writes two names otherwise than CloudFormation.
            "S3BackupMode" if option == "s3BackupMode" else option: {"CatalogARN": value["CatalogArn"]}
            if option == "CatalogConfiguration"
            else value
            for option, value in remaining.pop("IcebergDestinationConfiguration").items()
        }
        answer = aws.client("firehose").create_delivery_stream(
            DeliveryStreamName=name,
            DeliveryStreamType=remaining.pop("DeliveryStreamType"),
            KinesisStreamSourceConfiguration=remaining.pop("KinesisStreamSourceConfiguration"),
            IcebergDestinationConfiguration=destination,
        )
    return Made(name, {"Arn": answer["DeliveryStreamARN"]})


TYPES: Mapping[str, Put] = {
    "AWS::Athena::WorkGroup": work_group,
    "AWS::Glue::Database": database,
    "AWS::Glue::Table": table,
    "AWS::IAM::Role": role,
    "AWS::IAM::RolePolicy": role_policy,
    "AWS::KMS::Alias": alias,
    "AWS::KMS::Key": key,
    "AWS::Kinesis::Stream": stream,
    "AWS::KinesisFirehose::DeliveryStream": delivery,
    "AWS::LakeFormation::PrincipalPermissions": permissions,
    "AWS::LakeFormation::Resource": location,
    "AWS::LakeFormation::Tag": tag,
    "AWS::LakeFormation::TagAssociation": tag_association,
    "AWS::Logs::LogGroup": log_group,
    "AWS::Logs::LogStream": log_stream,
    "AWS::S3::Bucket": bucket,
    "AWS::S3::BucketPolicy": bucket_policy,
}
