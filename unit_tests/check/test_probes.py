"""Probes of AWS: the problems that they report, and that they leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.aws.address import S3Address
from destination_datalake.check.probes import Probes
from destination_datalake.config.options import Config
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.relocations import OwnedTable
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, Cloud, another_client, before
from unit_tests.config.examples import options

ADDRESS = S3Address(BUCKET, "_staging/check-x")


def probes(cloud: Cloud, **changes: Any) -> Probes:
    return Probes(Config.parse(options(**changes)), cloud.access, "x")


def outside(number: int) -> OwnedTable:
    owner = TableOwner(StreamId(None, f"s{number}"), SNAKE_CASE)
    return OwnedTable(TableName("raw", f"s{number}"), owner, (), "Iceberg", f"s3://elsewhere/s{number}/")


@pytest.mark.parametrize(("account", "problems"), [(None, 0), ("123456789012", 0), ("999999999999", 1)])
def test_credentials_of_another_account_are_a_problem(cloud: Cloud, account: str | None, problems: int) -> None:
    tried = probes(cloud, aws_account_id=account)

    tried.probe_identity()

    assert len(tried.problems) == problems


def test_a_bucket_that_works_is_left_as_it_was(cloud: Cloud) -> None:
    tried = probes(cloud)

    tried.probe_bucket(ADDRESS)

    assert tried.problems == []
    assert (cloud.objects(), cloud.unfinished_uploads()) == ({}, [])


@pytest.mark.parametrize(
    ("operation", "problem"),
    [
        ("PutObject", "Cannot write to s3://lake/_staging/check-x (S3, PutObject)"),
        ("GetObject", "Cannot read s3://lake/_staging/check-x (S3, GetObject)"),
        ("ListObjectsV2", "Cannot list s3://lake/_staging/check-x (S3, ListObjectsV2)"),
        ("DeleteObject", "Cannot delete s3://lake/_staging/check-x (S3, DeleteObject)"),
        ("CreateMultipartUpload", "Cannot upload in parts to s3://lake/_staging/check-x (S3, CreateMultipartUpload)"),
    ],
)
def test_a_refused_request_to_a_bucket_is_one_problem(cloud: Cloud, operation: str, problem: str) -> None:
    tried = probes(cloud)

    with cloud.refusing(operation):
        tried.probe_bucket(ADDRESS)

    [said] = tried.problems
    assert said.startswith(problem)


def test_a_failed_write_and_its_failed_deletion_are_one_problem(cloud: Cloud) -> None:
    tried = probes(cloud)

    with cloud.refusing("PutObject", "DeleteObject"):
        tried.probe_bucket(ADDRESS)

    assert len(tried.problems) == 1


def test_a_bucket_in_another_region_is_a_problem(cloud: Cloud) -> None:
    s3 = cloud.access.client("s3")
    s3.create_bucket(Bucket="lake-eu", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    tried = probes(cloud)

    tried.probe_bucket(S3Address("lake-eu", "_staging/check-x"))

    assert tried.problems[0].startswith("Bucket lake-eu is in region eu-west-1, but region is us-east-1.")


def test_a_catalog_that_works_keeps_only_the_database(cloud: Cloud) -> None:
    tried = probes(cloud)

    tried.probe_catalog()

    glue = cloud.access.client("glue")
    assert tried.problems == []
    assert glue.get_database(Name="raw")["Database"]["Name"] == "raw"
    assert glue.get_tables(DatabaseName="raw")["TableList"] == []


def test_an_error_that_is_not_from_aws_is_raised_and_leaves_no_table(cloud: Cloud) -> None:
    access = another_client()

    def fail(_: int) -> None:
        raise ZeroDivisionError

    before(access, "glue", "UpdateTable", fail)

    with pytest.raises(ZeroDivisionError):
        Probes(Config.parse(options()), access, "x").probe_catalog()
    assert cloud.access.client("glue").get_tables(DatabaseName="raw")["TableList"] == []


def test_tables_outside_are_refused_ten_by_name(cloud: Cloud) -> None:
    tried = probes(cloud)

    tried.probe_locations([outside(number) for number in range(12)])

    assert len(tried.problems) == 11
    assert tried.problems[0].startswith(
        "Cannot write stream s0 to table raw.s0: its location is s3://elsewhere/s0/, while bucket_name and "
    )
    assert tried.problems[-1] == "And 2 more tables like these."


def test_the_buckets_of_followed_tables_are_probed_once_each(cloud: Cloud) -> None:
    tried = probes(cloud, follow_table_location=True)

    tried.probe_locations([outside(0), outside(1)])

    assert {said.partition(" (S3")[0] for said in tried.problems} == {
        "Cannot upload in parts to s3://elsewhere/s1/_check-x",
        "Cannot write to s3://elsewhere/s1/_check-x",
    }
