"""Noncurrent versions of objects: deleted if they have rows of the ids, or listed with the day at which they end."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from unit_tests.cloud import BUCKET, Cloud
from unit_tests.erasure.places import erased, request, second_search, traces
from unit_tests.erasure.test_archived import INTEGER, NAME, archived, line, schema
from unit_tests.tables.hive.orders import ids, parquet_of, put, sync

pytestmark = pytest.mark.share(3)

PERSON = 424242


@pytest.fixture
def versioned(cloud: Cloud) -> Cloud:
    configuration: Any = {"Status": "Enabled"}
    cloud.access.client("s3").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration=configuration)
    return cloud


def versions(cloud: Cloud) -> list[str]:
    listed = cloud.access.client("s3").list_object_versions(Bucket=BUCKET)
    return sorted(version["Key"] for kind in ("Versions", "DeleteMarkers") for version in listed.get(kind, []))  # type: ignore[attr-defined]


def test_what_was_replaced_or_removed_leaves_no_version_with_rows(versioned: Cloud, tmp_path: Path) -> None:
    first = sync(versioned)
    first.commit("a", 1, PERSON)
    first.commit("b", PERSON)
    first.publish()

    done = erased(request(tmp_path, versioned.access, "id", PERSON), NAME)

    assert traces(versioned, PERSON) == []
    assert sum(object_.versions_deleted for object_ in done) == 2
    assert [name.rpartition("/")[2] for name in versions(versioned)] == ["a"]
    assert ids(versioned) == [1]


def test_versions_of_others_stay_and_older_ones_of_people_go(versioned: Cloud, tmp_path: Path) -> None:
    sync(versioned).commit("a", 1)
    folder = "shop/orders/generation-9-0123456789ab"
    for body in (parquet_of(PERSON, 1), parquet_of(2), parquet_of(3)):
        put(versioned, f"{folder}/x", body)
    put(versioned, f"{folder}/y", parquet_of(PERSON))
    versioned.access.client("s3").delete_object(Bucket=BUCKET, Key=f"{folder}/y")
    put(versioned, f"{folder}/z", parquet_of(5))
    versioned.access.client("s3").delete_object(Bucket=BUCKET, Key=f"{folder}/z")

    erased(request(tmp_path, versioned.access, "id", PERSON), NAME)

    assert traces(versioned, PERSON) == []
    assert [name for name in versions(versioned) if name.startswith(folder)] == [
        f"{folder}/x",
        f"{folder}/x",
        f"{folder}/z",
        f"{folder}/z",
    ]


def test_former_versions_of_the_archive_are_searched(versioned: Cloud, tmp_path: Path) -> None:
    archived(versioned, schema(id=INTEGER), {"id": PERSON}, {"id": 1})
    erased(request(tmp_path, versioned.access, "id", PERSON, bucket_prefix="lake"), NAME)
    assert traces(versioned, PERSON) == []


def test_former_versions_of_rejects_that_a_rule_has_ended_are_searched(versioned: Cloud, tmp_path: Path) -> None:
    archived(versioned, schema(id=INTEGER), {"id": 1})
    raw = base64.b64encode(line({"id": PERSON, "age": "x"}).strip()).decode()
    body = json.dumps({"rawData": raw, "sequenceNumber": "u-1", "subSequenceNumber": 0}).encode() + b"\n"
    name = "lake/_errors/DESTINATION_SERIALIZATION_ERROR/shop.orders/dt=2026-11-25/a.jsonl.gz"
    put(versioned, name, gzip.compress(body))
    versioned.access.client("s3").delete_object(Bucket=BUCKET, Key=name)
    (done,) = erased(request(tmp_path, versioned.access, "id", PERSON, bucket_prefix="lake"), NAME)
    assert (done.outcome, done.versions_deleted) == ("removed", 1)
    assert not any(name in key for key in versions(versioned))


def test_a_version_that_may_not_be_deleted_is_listed_with_the_day_at_which_it_ends(
    versioned: Cloud, tmp_path: Path
) -> None:
    s3 = versioned.access.client("s3")
    rule: Any = {
        "ID": "old",
        "Status": "Enabled",
        "Filter": {"Prefix": "shop/"},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 30},
    }
    s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [rule]})
    sync(versioned).commit("a", 1, PERSON)
    asked = request(tmp_path, versioned.access, "id", PERSON)

    events = s3.meta.events

    def refuse(params: Any, **_: Any) -> None:
        if "versionId" in params["query_string"]:
            from botocore.exceptions import ClientError

            raise ClientError({"Error": {"Code": "AccessDenied", "Message": ""}}, "DeleteObject")

    events.register("before-call.s3.DeleteObject", refuse)
    try:
        done = erased(asked, NAME)
    finally:
        events.unregister("before-call.s3.DeleteObject", refuse)

    rewritten, remaining = done
    assert (rewritten.outcome, remaining.outcome, remaining.rows_found, remaining.rows_removed) == (
        "rewritten",
        "left",
        1,
        0,
    )
    assert re.search(
        r"did not delete .* \(AccessDenied\)\. A lifecycle rule deletes the version on 20\d\d-\d\d-\d\d",
        remaining.reason,
    )
    assert [object_.reason for object_ in second_search(asked, NAME)] == ["a noncurrent version"]


@pytest.mark.parametrize("is_versioned", [True, False])
def test_versions_that_may_not_be_listed_are_found_where_there_may_be_some(
    cloud: Cloud, tmp_path: Path, *, is_versioned: bool
) -> None:
    if is_versioned:
        configuration: Any = {"Status": "Suspended"}
        cloud.access.client("s3").put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration=configuration)
    sync(cloud).commit("a", 1)
    with cloud.refusing("ListObjectVersions"):
        objects = second_search(request(tmp_path, cloud.access, "id", PERSON), NAME)
    assert bool(objects) == is_versioned
    assert all(object_.uri.endswith("/") and "could not be listed" in object_.reason for object_ in objects)
