"""The server determines the operation of each request that botocore sends."""

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.model import ServiceModel, Shape, StructureShape
from botocore.serialize import create_serializer
from botocore.session import get_session
from emulated_aws.requests.s3_operations import s3_operation

pytestmark = pytest.mark.share(3)

S3: ServiceModel = get_session().get_service_model("s3")
REPLACED = {
    "GetBucketLifecycle": "GetBucketLifecycleConfiguration",
    "PutBucketLifecycle": "PutBucketLifecycleConfiguration",
    "GetBucketNotification": "GetBucketNotificationConfiguration",
    "PutBucketNotification": "PutBucketNotificationConfiguration",
    "ListDirectoryBuckets": "ListBuckets",
}
"""Maps operations to the operations with the same method, path and query that the server returns instead."""

ELSEWHERE = {"WriteGetObjectResponse"}
"""The operations that botocore sends to another host."""


def value(shape: Shape, name: str) -> Any:
    """Return a minimal value for a parameter of this shape."""
    if isinstance(shape, StructureShape):
        return {name: value(shape.members[name], name) for name in shape.required_members}
    simple: Mapping[str, Any] = {"list": [], "map": {}, "integer": 1, "long": 1, "boolean": True, "blob": b"x"}
    return simple.get(shape.type_name, name.lower())


@pytest.mark.parametrize("operation", sorted(set(S3.operation_names) - ELSEWHERE))
def test_every_operation_of_s3_is_recognised(operation: str) -> None:
    model = S3.operation_model(operation)
    parameters = value(model.input_shape, "input") if model.input_shape is not None else {}
    request = create_serializer("rest-xml", False).serialize_to_request(parameters, model)
    path, _, query = request["url_path"].partition("?")
    bucket, _, key = path[1:].partition("/")
    given = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
    given |= {name: str(value) for name, value in request["query_string"].items()}
    headers = {name.lower(): str(value) for name, value in request["headers"].items()}

    assert s3_operation(request["method"], bucket, key, given, headers) == REPLACED.get(operation, operation)


def test_operations_of_lake_formation_are_their_paths() -> None:
    model = get_session().get_service_model("lakeformation")
    paths = {name: model.operation_model(name).http["requestUri"] for name in model.operation_names}

    assert paths == {name: f"/{name}" for name in paths}
