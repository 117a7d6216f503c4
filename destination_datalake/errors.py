"""Failures in the protocol's terms. Without the CDK, whose import would cost executors and `spec` seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

FailureType = Literal["config_error", "system_error", "transient_error"]
ErrorClass = Literal["insufficient_permissions", "invalid_settings", "internal"]
"""Who can help: an administrator of permissions, a user who edits the options, or neither of them."""


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with an escape for whatever a terminal acts on, but for line feeds and tabs."""
    return _UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def quoted(name: str) -> str:
    """Return a name that others have given, for a message: as it is if it is one word, else as Python writes it."""
    return name if re.fullmatch(r"[\w.$*\[\]…-]+", name) else repr(name)


def counted(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with a noun: `counted(2, "file")` is "2 files", `counted(1, "batch", "es")` is "1 batch"."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


@dataclass(frozen=True, slots=True)
class MissingPermission:
    """A denied permission: `action` is an IAM action ("s3:PutObject") or a Lake Formation permission ("CREATE_TABLE").

    `resource` is the ARN or the name that AWS denied it on, None if AWS names none.
    """

    action: str
    resource: str | None = None

    @property
    def in_iam(self) -> bool:
        """Whether IAM grants it, not Lake Formation."""
        return ":" in self.action


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, as in a TRACE ERROR (protocol: AirbyteErrorTraceMessage).

    `message` is for the user: what, where, why, and what to do. `detail` is for the log. `type` says what can help: a
    change by the user (config_error), one by the developers (system_error), or a retry (transient_error). `missing` is
    the permission that was denied, if that is the reason.
    """

    message: str
    detail: str
    type: FailureType
    missing: MissingPermission | None = None

    @property
    def advice(self) -> str:
        """The message and, if a permission is missing, how to see all of them: who lacks one often lacks others."""
        if self.missing is None or "iam-policy" in self.message:
            return self.message
        option = "" if self.missing.in_iam else " --grants"
        return (
            f"{self.message} `destination-datalake iam-policy --config FILE{option}` prints all permissions that this "
            "configuration needs."
        )

    @property
    def error_class(self) -> ErrorClass:
        """Who can help."""
        if self.missing is not None:
            return "insufficient_permissions"
        return "invalid_settings" if self.type == "config_error" else "internal"


class ConnectorError(Exception):
    """An error whose failure is known; its text is the failure's message."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ConfigError(ConnectorError):
    """The configuration or the catalog cannot be synced. `message` has a sentence for each problem, and no secret."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure(message, message, "config_error"))
