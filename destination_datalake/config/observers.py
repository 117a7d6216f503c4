"""Options about those who are told of syncs: notices by Amazon SNS, and lineage by OpenLineage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from destination_datalake.config.base import Expects, Form, Options


class NotifyOptions(Options):
    """Who is told of syncs that fail, and when."""

    sns_topic_arn: Annotated[
        str | None,
        Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?$"),
        Expects("the ARN of an SNS topic, such as arn:aws:sns:eu-west-1:123456789012:syncs"),
        Form(
            "The SNS topic that gets a message of failures, and of the first good sync after them. "
            "Default: empty, no messages.",
            title="SNS Topic ARN",
            examples=("arn:aws:sns:eu-west-1:123456789012:syncs",),
        ),
    ] = None
    after: Annotated[
        list[Annotated[int, Field(ge=1, le=1000)]],
        Expects("a list of whole numbers from 1 to 1000"),
        Form(
            "The numbers of failures in a row after which a message is sent. Default: 1, 5 and 20.",
            title="After Failures",
        ),
    ] = Field(default_factory=lambda: [1, 5, 20])


class LineageOptions(Options):
    """Where events of lineage go."""

    endpoint: Annotated[
        str | None,
        Field(pattern=r"^(https?://[^\s@?#]+|/[^\x00-\x1f]+)$"),
        Expects("the address of a server such as http://marquez:5000, without user, or the absolute path of a file"),
        Form(
            "The server that OpenLineage events are sent to, or the file that they are appended to. "
            "Default: empty, none.",
            examples=("http://marquez:5000", "/data/lineage.jsonl"),
        ),
    ] = None
    api_key: Annotated[
        SecretStr | None,
        Form("The key that the server asks for, sent as a bearer token. Default: empty, none.", title="API Key"),
    ] = None
