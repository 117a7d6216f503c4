"""A check and syncs that write in every way that the connector can write, and every request that they made."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qs, urlsplit

from integration_tests.harness.aws_proxy import Answer, AwsProxy, Request
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.warehouse import INTEGER, NUMBER, Warehouse, object_schema

WIDE = 2**40
"""An integer for which a column must become wider."""


@dataclass(frozen=True)
class AwsRequest:
    """A request as AWS reads it."""

    request: Request

    @cached_property
    def region(self) -> str:
        """The region that it is signed for; empty if it is not signed."""
        return self._scope[0]

    @cached_property
    def service(self) -> str:
        """The service that it is signed for: `s3`, `glue`, `lakeformation`, `sts`."""
        return self._scope[1]

    @cached_property
    def creates_object(self) -> bool:
        """Whether it is S3's PutObject, CopyObject or CreateMultipartUpload."""
        url = urlsplit(self.request.path)
        query = parse_qs(url.query, keep_blank_values=True)
        in_bucket = url.path.strip("/").count("/") > 0
        put = self.request.method == "PUT" and "uploadId" not in query
        return self.service == "s3" and in_bucket and (put or (self.request.method == "POST" and "uploads" in query))

    @cached_property
    def _scope(self) -> tuple[str, str]:
        found = re.search(r"Credential=[^/]+/\d+/([^/]+)/([^/]+)/", self.request.header("Authorization"))
        return (found[1], found[2]) if found else ("", "")

    def __str__(self) -> str:
        return f"{self.service} {self.request.operation or self.request.method} {self.request.path}"


class RecordingAws(AwsProxy):
    """Notes every request."""

    def __init__(self, endpoint_url: str) -> None:
        super().__init__(endpoint_url)
        self.requests: list[AwsRequest] = []

    def answer(self, request: Request) -> Answer:
        noted = AwsRequest(request)
        self.requests.append(noted)
        return self.refusal(noted) or self.pass_on(request)

    def refusal(self, request: AwsRequest) -> Answer | None:  # noqa: ARG002
        """Return what is answered in AWS's place; None where AWS answers."""
        return None


def write_in_every_way(warehouse: Warehouse, **options: object) -> Sequence[Run]:
    """Check, and sync: rejects, appends, wider columns, an overwrite given up and adopted, one that is published.

    Hive tables get their files by multipart uploads, and adopted ones by copies; where types become wider, files are
    rewritten. Run without a shared disk, segments are staged.
    """
    schema = object_schema(id=INTEGER, amount=NUMBER)
    complete = status("orders", "COMPLETE")

    def orders(generation: int, minimum: int = 0) -> list[dict[str, object]]:
        return [configured_stream("orders", schema, generation=generation, minimum=minimum)]

    def order(id: object, amount: object = 0.5) -> bytes:
        return record("orders", {"id": id, "amount": amount})

    runs = [
        warehouse.platform.check(warehouse.config(**options)),
        warehouse.sync(orders(1), [order(1), order("many"), state("orders", 1), complete], **options),
        warehouse.sync(orders(1), [order(WIDE, 1 / 3), state("orders", 2), complete], **options),
        warehouse.attempt(orders(2, 2), [order(3), state("orders", 3)], **options),
        warehouse.sync(orders(3), [complete], **options),
        warehouse.sync(orders(4, 4), [order(4), state("orders", 4), complete], **options),
    ]
    assert runs[0].connection_status == {"status": "SUCCEEDED"}
    return runs
