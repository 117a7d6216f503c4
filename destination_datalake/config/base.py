"""What all models of options have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

ROLE_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$"
"""The pattern of an IAM role's ARN; spec.json has the same."""


class Options(BaseModel):
    """An object of options: immutable, and strict about types."""

    # `allow`, not `forbid`: unknown options cause a warning (`Config.unknown_options`), not a refusal.
    # Python's regular expressions have look-ahead, which spec.json's patterns use; pydantic's own have not.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", regex_engine="python-re")
