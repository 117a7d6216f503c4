"""Python's environment variables, and moto's Glue and Lake Formation without an extension."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_iterating_over_the_environment_fails_when_a_variable_is_removed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAST_OF_ALL", "1")
    variables = iter(os.environ.items())
    next(variables)

    monkeypatch.delenv("LAST_OF_ALL")

    with pytest.raises(KeyError):
        list(variables)


ACCOUNT = """
import boto3
from moto import mock_aws

mock_aws().start()
keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
glue = boto3.client("glue", "eu-west-1", **keys)
lf = boto3.client("lakeformation", "eu-west-1", **keys)
"""

UPDATES = """
glue.create_database(DatabaseInput={"Name": "shop"})
glue.create_table(DatabaseName="shop", TableInput={"Name": "orders"})
version = glue.get_table(DatabaseName="shop", Name="orders")["Table"]["VersionId"]
for owner in ("one", "other"):
    glue.update_table(DatabaseName="shop", TableInput={"Name": "orders", "Owner": owner}, VersionId=version)
print(glue.get_table(DatabaseName="shop", Name="orders")["Table"]["Owner"])
"""

NAMES = """
glue.create_database(DatabaseInput={"Name": "Shop"})
glue.create_table(DatabaseName="Shop", TableInput={"Name": "orders"})
partitions = [{"Values": [str(number)]} for number in range(101)]
glue.batch_create_partition(DatabaseName="Shop", TableName="orders", PartitionInputList=partitions)
print(glue.get_databases()["DatabaseList"][0]["Name"])
print(len(lf.list_permissions()["PrincipalResourcePermissions"]))
"""

TAGS = """
orders = {"Table": {"DatabaseName": "nowhere", "Name": "nothing"}}
for key in ("team", "pii"):
    lf.create_lf_tag(TagKey=key, TagValues=["yes"])
    lf.add_lf_tags_to_resource(Resource=orders, LFTags=[{"TagKey": key, "TagValues": ["no", "maybe"]}])
print([(tag["TagKey"], tag["TagValues"]) for tag in lf.get_resource_lf_tags(Resource=orders)["LFTagsOnTable"]])
"""

GRANTS = """
grant = {
    "Id": "1",
    "Principal": {"DataLakePrincipalIdentifier": "nobody"},
    "Resource": {"Database": {"Name": "nowhere"}},
    "Permissions": ["SELECT"],
    "PermissionsWithGrantOption": ["SELECT"],
}
print(lf.batch_grant_permissions(Entries=[grant] * 21)["Failures"])
(held,) = lf.list_permissions()["PrincipalResourcePermissions"]
print(held["Permissions"], held["PermissionsWithGrantOption"])
"""

LOCATIONS = """
lf.register_resource(ResourceArn="arn:aws:s3:::lake", RoleArn="role", HybridAccessEnabled=True)
print(lf.describe_resource(ResourceArn="arn:aws:s3:::lake")["ResourceInfo"].get("HybridAccessEnabled"))
try:
    lf.list_lake_formation_opt_ins()
except Exception as error:
    print(error)
"""

POLICIES = """
import json

s3, sts, iam = (boto3.client(service, "us-east-1", **keys) for service in ("s3", "sts", "iam"))
s3.create_bucket(Bucket="lake")
s3.put_object(Bucket="lake", Key="a", ServerSideEncryption="aws:kms", SSEKMSKeyId="unknown")
statement = {"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::999999999999:root"}, "Action": "sts:AssumeRole"}
trust = {"Version": "2012-10-17", "Statement": statement | {"Condition": {"StringEquals": {"sts:ExternalId": "1"}}}}
role = iam.create_role(RoleName="strict", AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
print(sts.assume_role(RoleArn=role, RoleSessionName="anybody")["AssumedRoleUser"]["Arn"])
insecure = {"Bool": {"aws:SecureTransport": "false"}}
deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*", "Condition": insecure}
s3.put_bucket_policy(Bucket="lake", Policy=json.dumps({"Version": "2012-10-17", "Statement": deny}))
try:
    s3.put_object(Bucket="lake", Key="a")
except Exception as error:
    print(error)
"""


def printed(script: str) -> list[str]:
    """Run a script against moto in a process of its own, as other tests extend moto in theirs; return its lines."""
    command = [sys.executable, "-W", "ignore", "-c", ACCOUNT + script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_glue_of_moto_updates_a_table_whose_version_is_not_the_one_given() -> None:
    assert printed(UPDATES) == ["other"]


def test_glue_of_moto_keeps_upper_case_takes_large_batches_and_grants_nothing() -> None:
    assert printed(NAMES) == ["Shop", "0"]


def test_lf_tags_of_moto_have_values_that_nobody_defined_and_replace_each_other() -> None:
    assert printed(TAGS) == ["[('pii', ['no', 'maybe'])]"]


def test_grants_of_moto_never_fail_and_lose_the_grant_option() -> None:
    assert printed(GRANTS) == ["[]", "['SELECT'] []"]


def test_data_locations_of_moto_lose_their_flags_and_there_are_no_opt_ins() -> None:
    lost, unknown = printed(LOCATIONS)

    assert lost == "None"
    assert "Not yet implemented" in unknown


def test_policies_of_buckets_deny_without_their_conditions_in_moto_and_those_of_roles_and_keys_do_nothing() -> None:
    assumed, denied = printed(POLICIES)

    assert assumed == "arn:aws:sts::123456789012:assumed-role/strict/anybody"
    assert "403" in denied
