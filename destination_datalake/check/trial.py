"""What the steps of one check share: the options, access to AWS, a name of its own, and what earlier steps found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from destination_datalake.aws.access import AwsAccess
from destination_datalake.check.remedies import Remedies
from destination_datalake.config.options import Config
from destination_datalake.errors import Failure

LEFTOVER_AGE = timedelta(days=1)
"""What a check has made and is older was left by one that was killed."""


@dataclass(slots=True)
class Trial:
    """One check. `unique` is a word of 32 hexadecimal digits that no other check uses."""

    config: Config
    access: AwsAccess
    unique: str
    remedies: Remedies | None = None
    """How missing permissions are given to the caller; set by the step that asks AWS who that is."""
    key_failures: list[Failure] = field(default_factory=list)
    """Why S3 could not use the KMS key, from each folder."""
    encrypted_with: list[str] = field(default_factory=list)
    """What S3 has encrypted objects with, from each folder: "AES256", or the ARN of a KMS key."""
    settings: Mapping[str, Any] | None = None
    """The data lake settings (Lake Formation API: DataLakeSettings), if the caller may read them."""
