"""Options for notices of syncs to Amazon SNS and lineage events to OpenLineage."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from destination_datalake.config.base import Options


class NotifyOptions(Options):
    """The SNS topic for messages about failed syncs, and the numbers of failures that send one."""

    sns_topic_arn: Annotated[
        str | None, Field(pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,256}(\.fifo)?$")
    ] = None
    after: list[Annotated[int, Field(ge=1, le=1000)]] = Field(default_factory=lambda: [1, 5, 20])


class LineageOptions(Options):
    """The receiver of OpenLineage events."""

    endpoint: Annotated[str | None, Field(pattern=r"^(https?://[^\s@?#]+|/[^\x00-\x1f]+)$")] = None
    api_key: SecretStr | None = None
