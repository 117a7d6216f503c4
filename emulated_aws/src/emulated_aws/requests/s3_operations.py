"""Determine the S3 operation of a request from its method, path and query, by botocore's model of S3."""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple
from urllib.parse import parse_qsl


class _Route(NamedTuple):
    """An operation, and the parameters that its query must contain: with a value (`query`), or by name (`named`).

    A route with more parameters is more specific.
    """

    operation: str
    query: Mapping[str, str]
    named: frozenset[str]


def s3_operation(method: str, bucket: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Return the name of the operation, or the method and the path if S3 has no such operation."""
    for route in _routes().get((method, bool(bucket), bool(key)), ()):
        if route.named <= query.keys() and all(query.get(name) == value for name, value in route.query.items()):
            if "x-amz-copy-source" in headers:
                return _COPIES.get(route.operation, route.operation)
            return route.operation
    return f"{method} /{bucket}/{key}"


_COPIES = {"PutObject": "CopyObject", "UploadPart": "UploadPartCopy"}
"""Maps operations to those that differ from them only by a header."""

_OBSOLETE = frozenset({"GetBucketLifecycle", "PutBucketLifecycle", "GetBucketNotification", "PutBucketNotification"})
"""Operations that newer ones with the same method, path and query have replaced."""


@cache
def _routes() -> Mapping[tuple[str, bool, bool], list[_Route]]:
    from botocore.session import get_session

    model = get_session().get_service_model("s3")
    routes: dict[tuple[str, bool, bool], list[_Route]] = {}
    for name in model.operation_names:
        if name in _OBSOLETE or name in _COPIES.values() or name == "ListDirectoryBuckets":
            continue
        operation = model.operation_model(name)
        path, _, literal = operation.http["requestUri"].partition("?")
        shape = operation.input_shape
        members = {} if shape is None else shape.members
        required = frozenset(
            member.serialization["name"]
            for field, member in members.items()
            if shape is not None
            and field in shape.required_members
            and member.serialization.get("location") == "querystring"
        )
        wanted = dict(parse_qsl(literal, keep_blank_values=True))
        # `?uploads` requires a name, and `?list-type=2` requires a value.
        route = _Route(
            name,
            {key: value for key, value in wanted.items() if value},
            required | {key for key, value in wanted.items() if not value},
        )
        routes.setdefault((operation.http["method"], "{Bucket}" in path, "{Key+}" in path), []).append(route)
    for candidates in routes.values():
        candidates.sort(key=lambda route: len(route.query) + len(route.named), reverse=True)
    return routes
