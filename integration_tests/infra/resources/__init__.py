"""The types of resources that the templates use, each applied through the API of its service."""

from __future__ import annotations

from collections.abc import Mapping

from integration_tests.infra.resources import catalog, governance, identity, storage, streaming
from integration_tests.infra.resources.resource import Put

TYPES: Mapping[str, Put] = {
    "AWS::Athena::WorkGroup": storage.work_group,
    "AWS::Glue::Database": catalog.database,
    "AWS::Glue::Table": catalog.table,
    "AWS::IAM::Role": identity.role,
    "AWS::IAM::RolePolicy": identity.role_policy,
    "AWS::KMS::Alias": storage.alias,
    "AWS::KMS::Key": storage.key,
    "AWS::Kinesis::Stream": streaming.stream,
    "AWS::KinesisFirehose::DeliveryStream": streaming.delivery,
    "AWS::LakeFormation::PrincipalPermissions": governance.permissions,
    "AWS::LakeFormation::Resource": governance.location,
    "AWS::LakeFormation::Tag": governance.tag,
    "AWS::LakeFormation::TagAssociation": governance.tag_association,
    "AWS::Logs::LogGroup": streaming.log_group,
    "AWS::Logs::LogStream": streaming.log_stream,
    "AWS::S3::Bucket": storage.bucket,
    "AWS::S3::BucketPolicy": storage.bucket_policy,
}
