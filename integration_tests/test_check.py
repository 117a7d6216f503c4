"""`check` through the command line: it tries everything out, leaves nothing behind, and says what to mend."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest

from destination_datalake.tables.glue.database import ensure_database
from integration_tests.aws_server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY, AwsServer
from integration_tests.lake import PREFIX, Lake
from integration_tests.platform import COMMAND, Platform, Run


def refusal(run: Run) -> str:
    """The message of a check that answered FAILED, which is an answer and not a failure."""
    assert run.exit_code == 0, run.report()
    assert run.connection_status["status"] == "FAILED"
    message: str = run.connection_status["message"]
    return message


def test_a_configuration_that_works_succeeds_and_leaves_only_the_database_behind(
    platform: Platform, lake: Lake
) -> None:
    run = platform.check(lake.config())

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert run.exit_code == 0
    assert lake.objects() == {}
    assert lake.unfinished_uploads() == []
    assert lake.tables() == []
    assert lake.glue.get_database(Name=lake.database)["Database"]["Name"] == lake.database


def test_two_checks_at_once_do_not_disturb_each_other(platform: Platform, lake: Lake) -> None:
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(platform.check, [lake.config()] * 2))

    assert [run.connection_status["status"] for run in runs] == ["SUCCEEDED", "SUCCEEDED"]
    assert (lake.objects(), lake.tables()) == ({}, [])


def test_a_role_is_assumed_with_the_credentials_of_the_environment(lake: Lake, tmp_path: Path) -> None:
    role = {
        "credentials_title": "IAM Role",
        "role_arn": f"arn:aws:iam::{ACCOUNT_ID}:role/airbyte",
        "external_id": "airbyte-1",
        "session_duration_seconds": 900,
    }
    config = tmp_path / "config.json"
    config.write_text(json.dumps(lake.config(credentials=role)))
    environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}

    done = subprocess.run([COMMAND, "check", "--config", str(config)], capture_output=True, check=True, env=environment)

    assert json.loads(done.stdout.splitlines()[-1])["connectionStatus"] == {"status": "SUCCEEDED"}


def test_a_bucket_that_is_missing_is_named_with_what_to_do(platform: Platform, lake: Lake) -> None:
    said = refusal(platform.check(lake.config(bucket_name="nobody-s-bucket")))

    assert "s3://nobody-s-bucket/" in said
    assert "(S3, PutObject): the bucket does not exist. Create the bucket, or correct bucket_name and region." in said


def test_a_bucket_in_another_region_is_named_with_both_regions(platform: Platform, lake: Lake) -> None:
    bucket = f"{lake.bucket}-eu"
    lake.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})

    said = refusal(platform.check(lake.config(bucket_name=bucket)))

    assert said == (
        f"Bucket {bucket} is in region eu-west-1, but region is {REGION}. Set region to eu-west-1, or choose a bucket "
        f"in {REGION}."
    )


def made_for(lake: Lake, stream: str, location: str, namespace: str | None = None) -> None:
    """A table as a sync of the stream makes it, at a location of the test's choice."""
    database = namespace or lake.database
    ensure_database(lake.glue, database)
    of = {} if namespace is None else {"airbyte.stream-namespace": namespace}
    entry: Any = {
        "Name": stream,
        "Parameters": {"airbyte.stream-name": stream, "airbyte.naming": "snake_case", **of},
        "StorageDescriptor": {"Location": location},
    }
    lake.glue.create_table(DatabaseName=database, TableInput=entry)


def test_tables_that_are_there_are_told_with_their_kind_and_location(platform: Platform, lake: Lake) -> None:
    location = f"s3://{lake.bucket}/{PREFIX}/{lake.database}/orders/data/"
    made_for(lake, "orders", location)

    run = platform.check(lake.config(table_type="HIVE"))

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert f"INFO: Found: table {lake.database}.orders (Hive) at {location} holds stream orders." in run.logs


def test_a_table_of_another_kind_is_a_note_because_it_may_be_another_connection_s(
    platform: Platform, lake: Lake
) -> None:
    made_for(lake, "orders", f"s3://{lake.bucket}/{PREFIX}/{lake.database}/orders/data/")

    status = platform.check(lake.config(table_type="ICEBERG")).connection_status

    assert status["status"] == "SUCCEEDED"
    assert f"would refuse to write to {lake.database}.orders (Hive, stream orders)" in status["message"]


def test_another_connection_s_tables_in_a_namespace_s_database_fail_no_check(platform: Platform, lake: Lake) -> None:
    made_for(lake, "orders", "s3://another-lake/shop/orders/", lake.name("shop"))

    assert platform.check(lake.config()).connection_status == {"status": "SUCCEEDED"}


def test_a_table_that_lies_elsewhere_is_refused_with_both_places(platform: Platform, lake: Lake) -> None:
    made_for(lake, "orders", "s3://elsewhere/orders/")

    said = refusal(platform.check(lake.config()))

    assert said.startswith(f"Cannot write stream orders to table {lake.database}.orders: it lies at ")
    assert f"at s3://elsewhere/orders/, while bucket_name and bucket_prefix say s3://{lake.bucket}/{PREFIX}/" in said
    assert "set follow_table_location to true" in said


def test_tables_elsewhere_are_a_note_where_other_tables_of_the_database_lie_as_the_options_say(
    platform: Platform, lake: Lake
) -> None:
    """Two connections that differ in bucket or prefix may share a database: nobody can tell whose stream it is."""
    made_for(lake, "users", f"s3://{lake.bucket}/{PREFIX}/{lake.database}/users/")
    made_for(lake, "orders", "s3://elsewhere/orders/")

    status = platform.check(lake.config(table_type="HIVE")).connection_status

    assert status["status"] == "SUCCEEDED"
    assert f"{lake.database}.orders (s3://elsewhere/orders/, stream orders)" in status["message"]
    assert "its syncs refuse their streams" in status["message"]


def test_the_bucket_of_a_table_that_is_to_be_followed_is_tried_out(platform: Platform, lake: Lake) -> None:
    made_for(lake, "orders", "s3://elsewhere-too/orders/")
    following = lake.config(follow_table_location=True, table_type="HIVE")

    said = refusal(platform.check(following))
    assert "Cannot write to s3://elsewhere-too/orders/_check-" in said
    assert "the bucket does not exist" in said

    lake.s3.create_bucket(Bucket="elsewhere-too")
    assert platform.check(following).connection_status == {"status": "SUCCEEDED"}
    assert "Contents" not in lake.s3.list_objects_v2(Bucket="elsewhere-too")


def test_an_account_that_is_not_the_expected_one_is_named(platform: Platform, lake: Lake) -> None:
    said = refusal(platform.check(lake.config(aws_account_id="999999999999")))

    assert f"The credentials belong to AWS account {ACCOUNT_ID}" in said
    assert "aws_account_id is 999999999999" in said


def test_a_place_where_nobody_listens_is_said_in_time(platform: Platform, lake: Lake) -> None:
    said = refusal(platform.check(lake.config(endpoint_url="http://127.0.0.1:9")))

    assert "Cannot identify the owner of the credentials" in said
    assert "Check region, endpoint_url and the network" in said


def test_options_that_cannot_work_are_an_answer_with_a_sentence_for_each(platform: Platform, lake: Lake) -> None:
    said = refusal(
        platform.check(
            lake.config(
                region="Ireland", bucket_prefix="../other", format={"format_type": "JSONL"}, table_type="ICEBERG"
            )
        )
    )

    assert 'region "Ireland" is not valid.' in said
    assert 'bucket_prefix "../other" is not valid. It must be folders inside the bucket' in said
    assert "table_type ICEBERG cannot hold format_type JSONL" in said


def test_an_option_nobody_knows_is_a_warning(platform: Platform, lake: Lake) -> None:
    run = platform.check(lake.config(colour="green"))

    assert run.connection_status["status"] == "SUCCEEDED"
    assert any("option colour" in text for text in run.logs)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not json {", "is not valid JSON: line 1, column 1: Expecting value."),
        ('{"region": "eu-west-1",\n "bucket_name": }', "is not valid JSON: line 2, column 17: Expecting value."),
        ("[" * 100_000, "is nested too deeply"),
        ('{"a":' * 900 + "1" + "}" * 900, "is nested too deeply"),
        ('{"batch_size_mb": ' + "9" * 5000 + "}", "holds a number of more digits than anything here takes"),
        ('{"batch_size_mb": ' + "9" * 400 + "}", "batch_size_mb 999"),
        ("[]", "does not hold a JSON object"),
        (None, "cannot be read: No such file"),
    ],
)
def test_a_configuration_file_that_is_none_is_an_answer_too(tmp_path: Path, content: str | None, said: str) -> None:
    config = tmp_path / "config.json"
    if content is not None:
        config.write_text(content)

    done = subprocess.run([COMMAND, "check", "--config", str(config)], capture_output=True, text=True, check=True)

    answer = json.loads(done.stdout.splitlines()[-1])["connectionStatus"]
    assert answer["status"] == "FAILED"
    assert said in answer["message"]
    assert "not json" not in done.stdout


@pytest.mark.parametrize("version", [None, "11"])
def test_a_java_that_spark_cannot_run_on_is_named_without_starting_spark(
    lake: Lake, tmp_path: Path, version: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    if version is not None:
        java.write_text(f"#!/bin/sh\necho '    java.specification.version = {version}' >&2\n")
        java.chmod(0o755)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(lake.config()))
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}

    done = subprocess.run([COMMAND, "check", "--config", str(config)], capture_output=True, check=True, env=environment)

    answer = json.loads(done.stdout.splitlines()[-1])["connectionStatus"]
    assert answer["status"] == "FAILED"
    assert str(java) in answer["message"]
    assert "Install a Java runtime 17 or newer" in answer["message"]
    assert lake.objects() == {}


def test_check_loads_no_engine(lake: Lake, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(lake.config()))

    done = subprocess.run(
        [sys.executable, "-X", "importtime", COMMAND, "check", "--config", str(config)],
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert loaded.isdisjoint({"pyspark", "py4j", "pandas", "awswrangler", "pyiceberg", "pyarrow"})


class GuardedLake:
    """A lake in an account that asks everybody for permission, and a user with a policy of the test's choice."""

    def __init__(self, server: AwsServer) -> None:
        self._url = server.endpoint_url
        self.lake = Lake(server.endpoint_url)
        self._users = 0

    def config(self, *allowed: str) -> dict[str, object]:
        """A configuration whose user may do what is allowed and nothing else."""
        self._ask_for_permission(False)
        self._users += 1
        name = f"user-{self._users}"
        iam = boto3.client(
            "iam",
            region_name=REGION,
            endpoint_url=self._url,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )
        iam.create_user(UserName=name)
        statement = {"Effect": "Allow", "Action": list(allowed), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName="some", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        self._ask_for_permission(True)
        return self.lake.config(
            credentials={
                "credentials_title": "IAM User",
                "aws_access_key_id": key["AccessKeyId"],
                "aws_secret_access_key": key["SecretAccessKey"],
            },
            # No user finds a database that another one has made.
            lakeformation_database_name=self.lake.name(f"lake_{self._users}"),
        )

    def unguarded(self) -> Lake:
        """The lake, open to the test again."""
        self._ask_for_permission(False)
        return self.lake

    def _ask_for_permission(self, ask: bool) -> None:
        # The number of requests that the server still answers without asking.
        free = b"0" if ask else b"1000000"
        request = urllib.request.Request(f"{self._url}/moto-api/reset-auth", free, {"Content-Type": "text/plain"})
        urllib.request.urlopen(request).close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[GuardedLake]:
    with AwsServer() as server:
        yield GuardedLake(server)


EVERYTHING = ("s3:*", "glue:*")


def test_all_that_check_needs_is_s3_and_glue(platform: Platform, guarded: GuardedLake) -> None:
    assert platform.check(guarded.config(*EVERYTHING)).connection_status == {"status": "SUCCEEDED"}


def test_who_may_not_list_tables_gets_no_warning_of_earlier_ones_and_no_problem(
    platform: Platform, guarded: GuardedLake
) -> None:
    tables = ("glue:GetTable", "glue:CreateTable", "glue:UpdateTable", "glue:DeleteTable")

    run = platform.check(guarded.config("s3:*", "glue:GetDatabase", "glue:CreateDatabase", *tables))

    assert run.connection_status == {"status": "SUCCEEDED"}
    assert any("Cannot look for earlier tables" in text and "Only a warning" in text for text in run.logs)


@pytest.mark.parametrize(
    ("allowed", "sentences"),
    [
        (("glue:*",), ["(S3, PutObject): access denied. Allow s3:PutObject on it to the connector's identity in IAM."]),
        (("s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:ListBucket", "glue:*"), ["s3:GetObject"]),
        (("s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "glue:*"), ["s3:ListBucket"]),
        (("s3:*",), ["Allow glue:GetDatabase"]),
        (("s3:*", "glue:GetDatabase"), ["Allow glue:CreateDatabase"]),
        (("s3:*", "glue:*Database"), ["airbyte_check_", "(Glue, CreateTable): access denied. Allow glue:CreateTable"]),
        (("s3:*", "glue:*Database", "glue:CreateTable", "glue:DeleteTable"), ["glue:GetTable", "glue:UpdateTable"]),
    ],
)
def test_a_permission_that_is_missing_is_named_and_nothing_is_left_behind(
    platform: Platform, guarded: GuardedLake, allowed: tuple[str, ...], sentences: list[str]
) -> None:
    said = refusal(platform.check(guarded.config(*allowed)))

    for sentence in sentences:
        assert sentence in said
    lake = guarded.unguarded()
    assert (lake.objects(), lake.unfinished_uploads(), lake.tables()) == ({}, [], [])


def test_keys_nobody_knows_are_said_once_and_not_for_every_service(platform: Platform, guarded: GuardedLake) -> None:
    config = guarded.config(*EVERYTHING)
    config["credentials"] = {
        "credentials_title": "IAM User",
        "aws_access_key_id": "AKIANOBODY1234567890",
        "aws_secret_access_key": "n0b0dy/knows/this/secret",
    }

    said = refusal(platform.check(config))

    assert "AWS does not know the access key id. Check aws_access_key_id and aws_secret_access_key" in said
    assert "\n" not in said
