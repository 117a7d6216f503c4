"""What the template's resources are in Terraform: each type's counterparts in hashicorp/aws, and their attributes.

Each function takes every property out of the dictionary that it is given; what is left has no counterpart yet.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import Any

from unit_tests.infra.resolved import Resolved
from unit_tests.infra.terraform import event_counterparts

Attributes = dict[str, Any]
Found = Mapping[tuple[str, str], Attributes]


def counterparts(template: Resolved) -> Found:
    """Return type, name and attributes of every resource of Terraform that stands for one of the template's."""
    found: dict[tuple[str, str], Attributes] = {}
    for logical, properties in template.properties.items():
        left = copy.deepcopy(properties)
        for (kind, name), attributes in _RULES[template.type_of(logical)](snake(logical), left).items():
            found[kind, name] = {key: each for key, each in attributes.items() if each is not None}
        assert _is_empty(left), f"{logical} has more in CloudFormation: {left}"
    return found


def snake(logical: str) -> str:
    """Return `LFTagKey` as `lf_tag_key`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", logical).lower()


def statements(document: Attributes) -> list[Attributes]:
    """Return the statements of a policy, in order, everything in lists that may stand alone; the rest is sorted."""
    document.pop("Version", None)
    return [
        {
            "Sid": each.get("Sid"),
            "Effect": each["Effect"],
            "Action": sorted(_listed(each["Action"])),
            "Resource": sorted(_listed(each.get("Resource", []))),
            "Principal": _principals(each.get("Principal", {})),
            "Condition": {
                test: {key: _listed(values) for key, values in keys.items()}
                for test, keys in each.get("Condition", {}).items()
            },
        }
        for each in document.pop("Statement")
    ]


def _principals(principal: Any) -> dict[str, list[str]]:
    named = {principal: [principal]} if isinstance(principal, str) else principal
    return {kind: sorted(_listed(values)) for kind, values in named.items()}


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list) else [values]


def _is_empty(left: Any) -> bool:
    return isinstance(left, dict) and all(map(_is_empty, left.values()))


def _key(name: str, left: Attributes) -> Found:
    return {
        ("aws_kms_key", name): {
            "description": left.pop("Description"),
            "enable_key_rotation": left.pop("EnableKeyRotation"),
            "deletion_window_in_days": left.pop("PendingWindowInDays"),
            "policy": statements(left["KeyPolicy"]),
        }
    }


def _alias(name: str, left: Attributes) -> Found:
    return {("aws_kms_alias", name): {"name": left.pop("AliasName"), "target_key_id": left.pop("TargetKeyId")}}


def _bucket(name: str, left: Attributes) -> Found:
    bucket = left.pop("BucketName")
    [encryption] = left["BucketEncryption"].pop("ServerSideEncryptionConfiguration")
    default = encryption["ServerSideEncryptionByDefault"]
    [ownership] = left["OwnershipControls"].pop("Rules")
    access = left.pop("PublicAccessBlockConfiguration")
    rules = left["LifecycleConfiguration"].pop("Rules")
    parts: Mapping[str, Attributes] = {
        "": {},
        "_server_side_encryption_configuration": {
            "rule": [
                {
                    "bucket_key_enabled": encryption["BucketKeyEnabled"],
                    "apply_server_side_encryption_by_default": [
                        {"sse_algorithm": default["SSEAlgorithm"], "kms_master_key_id": default["KMSMasterKeyID"]}
                    ],
                }
            ]
        },
        "_ownership_controls": {"rule": [{"object_ownership": ownership["ObjectOwnership"]}]},
        "_public_access_block": {snake(key): each for key, each in access.items()},
        "_lifecycle_configuration": {"rule": [*map(_lifecycle_rule, rules)]},
    }
    return {(f"aws_s3_bucket{part}", name): {"bucket": bucket, **each} for part, each in parts.items()}


def _lifecycle_rule(rule: Attributes) -> Attributes:
    found: Attributes = {
        "id": rule.pop("Id"),
        "status": rule.pop("Status"),
        "filter": [{"prefix": rule.pop("Prefix")} if "Prefix" in rule else {}],
    }
    if "ExpirationInDays" in rule:
        found["expiration"] = [{"days": rule.pop("ExpirationInDays")}]
    if "AbortIncompleteMultipartUpload" in rule:
        days = rule.pop("AbortIncompleteMultipartUpload")["DaysAfterInitiation"]
        found["abort_incomplete_multipart_upload"] = [{"days_after_initiation": days}]
    assert not rule
    return found


def _bucket_policy(name: str, left: Attributes) -> Found:
    policy = statements(left["PolicyDocument"])
    return {("aws_s3_bucket_policy", name): {"bucket": left.pop("Bucket"), "policy": policy}}


def _database(name: str, left: Attributes) -> Found:
    """A stack of this one resource, as it is."""
    database = {
        "Type": "AWS::Glue::Database",
        "DeletionPolicy": "Retain",
        "UpdateReplacePolicy": "Retain",
        "Properties": dict(left),
    }
    left.clear()
    body = {"Resources": {"Database": database}, "Outputs": {"Name": {"Value": {"Ref": "Database"}}}}
    return {("aws_cloudformation_stack", name): {"name": "lake-database", "template_body": body}}


def _role(name: str, left: Attributes) -> Found:
    # A parameter, so text in CloudFormation.
    seconds = left.pop("MaxSessionDuration", None)
    return {
        ("aws_iam_role", name): {
            "description": left.pop("Description"),
            "max_session_duration": seconds and int(seconds),
            "assume_role_policy": statements(left["AssumeRolePolicyDocument"]),
        }
    }


def _role_policy(name: str, left: Attributes) -> Found:
    return {
        ("aws_iam_role_policy", name): {
            "name": left.pop("PolicyName"),
            "role": left.pop("RoleName"),
            "policy": statements(left["PolicyDocument"]),
        }
    }


def _location(name: str, left: Attributes) -> Found:
    return {
        ("aws_lakeformation_resource", name): {
            "arn": left.pop("ResourceArn"),
            "role_arn": left.pop("RoleArn"),
            "use_service_linked_role": left.pop("UseServiceLinkedRole"),
            "hybrid_access_enabled": left.pop("HybridAccessEnabled"),
        }
    }


def _grant(name: str, left: Attributes) -> Found:
    assert left.pop("PermissionsWithGrantOption") == []
    return {
        ("aws_lakeformation_permissions", name): {
            "principal": left["Principal"].pop("DataLakePrincipalIdentifier"),
            "permissions": left.pop("Permissions"),
            **_resource(left.pop("Resource")),
        }
    }


def _resource(resource: Attributes) -> Attributes:
    names = {
        "CatalogId": "catalog_id",
        "DatabaseName": "database_name",
        "Name": "name",
        "ResourceArn": "arn",
        "TableWildcard": "wildcard",
    }
    [(kind, described)] = resource.items()
    return {snake(kind): [{names[key]: True if each == {} else each for key, each in described.items()}]}


def _tag(name: str, left: Attributes) -> Found:
    return {
        ("aws_lakeformation_lf_tag", name): {
            "catalog_id": left.pop("CatalogId"),
            "key": left.pop("TagKey"),
            "values": left.pop("TagValues"),
        }
    }


def _assigned_tag(name: str, left: Attributes) -> Found:
    [tag] = left.pop("LFTags")
    [assigned] = tag["TagValues"]
    return {
        ("aws_lakeformation_resource_lf_tags", name): {
            **_resource(left.pop("Resource")),
            "lf_tag": [{"catalog_id": tag["CatalogId"], "key": tag["TagKey"], "value": assigned}],
        }
    }


def _work_group(name: str, left: Attributes) -> Found:
    configuration = left["WorkGroupConfiguration"]
    result = configuration["ResultConfiguration"]
    return {
        ("aws_athena_workgroup", name): {
            "name": left.pop("Name"),
            "description": left.pop("Description"),
            "state": left.pop("State"),
            "configuration": [
                {
                    "enforce_workgroup_configuration": configuration.pop("EnforceWorkGroupConfiguration"),
                    "publish_cloudwatch_metrics_enabled": configuration.pop("PublishCloudWatchMetricsEnabled"),
                    "result_configuration": [
                        {
                            "output_location": result.pop("OutputLocation"),
                            "expected_bucket_owner": result.pop("ExpectedBucketOwner"),
                            "encryption_configuration": [
                                {
                                    "encryption_option": result["EncryptionConfiguration"].pop("EncryptionOption"),
                                    "kms_key_arn": result["EncryptionConfiguration"].pop("KmsKey"),
                                }
                            ],
                        }
                    ],
                }
            ],
        }
    }


_RULES: Mapping[str, Callable[[str, Attributes], Found]] = {
    "AWS::Athena::WorkGroup": _work_group,
    "AWS::Glue::Database": _database,
    "AWS::IAM::Role": _role,
    "AWS::IAM::RolePolicy": _role_policy,
    "AWS::KMS::Alias": _alias,
    "AWS::KMS::Key": _key,
    "AWS::LakeFormation::PrincipalPermissions": _grant,
    "AWS::LakeFormation::Resource": _location,
    "AWS::LakeFormation::Tag": _tag,
    "AWS::LakeFormation::TagAssociation": _assigned_tag,
    "AWS::S3::Bucket": _bucket,
    "AWS::S3::BucketPolicy": _bucket_policy,
    **event_counterparts.RULES,
}
