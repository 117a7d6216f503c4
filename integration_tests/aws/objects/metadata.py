"""Metadata of objects: how much S3 takes of them."""

from integration_tests.aws.access.refusal import Refusal
from integration_tests.aws.requests.request import AwsRequest

_PREFIX = "x-amz-meta-"
_MOST_BYTES = 2048


def metadata_too_large(request: AwsRequest) -> Refusal | None:
    """Refuse an object whose keys and values together have more than 2 KB.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html#UserMetadata
    """
    members = [(name, value) for name, value in request.headers.items() if name.startswith(_PREFIX)]
    size = sum(len(name) - len(_PREFIX) + len(value.encode()) for name, value in members)
    if size <= _MOST_BYTES:
        return None
    return Refusal(400, "MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size.")
