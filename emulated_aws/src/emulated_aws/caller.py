"""Who calls: the ARN of the IAM user or role whose request this thread handles; None if nobody looked."""

from contextvars import ContextVar

caller_arn: ContextVar[str | None] = ContextVar("caller_arn", default=None)
