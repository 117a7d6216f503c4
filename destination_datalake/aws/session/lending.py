"""Short-lived credentials of an identity, for processes elsewhere that may act as it for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.secrets import register_secrets

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from botocore.session import Session
    from mypy_boto3_sts import STSClient

_SESSION_SECONDS = 3600
_RENEWED_BEFORE_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The credentials of a session, which AWS ends and nobody renews. `repr` does not show them."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)

    @classmethod
    def of(cls, credentials: Credentials) -> SessionKeys:
        """Return what the credentials of `lendable` are now. Raises what their renewal raises."""
        frozen = credentials.get_frozen_credentials()
        keys = cls(str(frozen.access_key), str(frozen.secret_key), str(frozen.token))
        # Only executors sign with them; what they are told by AWS may come back in error messages.
        register_secrets(keys.access_key_id, keys.secret_access_key, keys.session_token)
        return keys


def lendable(session: Session, sts: Callable[[], STSClient]) -> Credentials:
    """Return credentials of a session, which renew themselves when read: those of `session`, or else made of its keys.

    Keys of an IAM user are not lent: they begin a session of an hour, which needs no permission
    (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_temp_control-access_getsessiontoken.html). Raises
    NoCredentialsError (botocore) if `session` has none, and what STS raises.
    """
    from botocore.credentials import RefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    own = session.get_credentials()
    if own is None:
        raise NoCredentialsError()
    if own.get_frozen_credentials().token is not None:
        return own

    def begun() -> dict[str, Any]:
        keys = sts().get_session_token(DurationSeconds=_SESSION_SECONDS)["Credentials"]
        return {
            "access_key": keys["AccessKeyId"],
            "secret_key": keys["SecretAccessKey"],
            "token": keys["SessionToken"],
            "expiry_time": keys["Expiration"].isoformat(),
        }

    return RefreshableCredentials.create_from_metadata(
        begun(),
        begun,
        "session-token",
        advisory_timeout=_RENEWED_BEFORE_SECONDS,
        mandatory_timeout=_RENEWED_BEFORE_SECONDS * 2 // 3,
    )
