"""The caller of the request that this thread handles: the ARN of the IAM user or role, or None if it is unknown."""

from contextvars import ContextVar

caller_arn: ContextVar[str | None] = ContextVar("caller_arn", default=None)
