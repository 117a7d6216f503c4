"""Sessions of roles and users: their owners, and lifetimes that tests can set instead of the callers."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The lifetime of a session.

    After `seconds`, the server refuses the session's credentials. `announced_seconds` is the lifetime that the server
    announces when it issues the credentials.
    """

    seconds: float
    announced_seconds: float


@dataclass(frozen=True, slots=True)
class UserSession:
    """A session that a user has started with an access key (STS: GetSessionToken). `key` is the ID of this key."""

    key: str
    ends: datetime
    token: str = field(default_factory=lambda: token_hex(80))


_user_sessions: dict[str, UserSession] = {}


def user_session(access_key_id: str) -> UserSession | None:
    """Return the user session to which an access key belongs, or None if it belongs to no user session."""
    return _user_sessions.get(access_key_id)


class Sessions:
    """Sets the lifetime of sessions that start from now on. If `lifetime` is None, the caller chooses the duration."""

    lifetime: Lifetime | None = None

    def install(self) -> None:
        """Change moto's STS so that its sessions have the lifetime of this instance."""
        from moto.sts.models import AssumedRole

        begin: Any = AssumedRole.__init__

        def began(session: AssumedRole, *args: Any, **kwargs: Any) -> None:
            begin(session, *args, **kwargs)
            lifetime = self.lifetime
            if lifetime is not None:
                now = datetime.now(UTC)
                session.expiration = (now + timedelta(seconds=lifetime.announced_seconds)).replace(tzinfo=None)
                vars(session)["ends"] = now + timedelta(seconds=lifetime.seconds)

        AssumedRole.__init__ = began  # type: ignore[assignment,method-assign]
        self._install_users()

    def _install_users(self) -> None:
        """Make GetSessionToken start sessions of users. moto returns the same keys to every caller."""
        from moto.core.responses import ActionResult
        from moto.sts.responses import TokenResponse

        def begun(response: TokenResponse) -> ActionResult:
            asked = float(response._get_int_param("DurationSeconds", 43200))
            lifetime = self.lifetime or Lifetime(asked, asked)
            now = datetime.now(UTC)
            access_key_id = f"ASIA{token_hex(8).upper()}"
            session = UserSession(response.get_access_key(), now + timedelta(seconds=lifetime.seconds))
            _user_sessions[access_key_id] = session
            credentials = {
                "AccessKeyId": access_key_id,
                "SecretAccessKey": token_hex(20),
                "SessionToken": session.token,
                "Expiration": (now + timedelta(seconds=lifetime.announced_seconds)).replace(tzinfo=None),
            }
            return ActionResult({"Credentials": credentials})

        TokenResponse.get_session_token = begun  # type: ignore[assignment,method-assign]


def end_of(session: Any) -> datetime:
    """Return the time from which the server refuses a session's credentials."""
    ends: datetime = vars(session).get("ends") or session.expiration.replace(tzinfo=UTC)
    return ends


def end(access_key_ids: Collection[str]) -> None:
    """End the sessions of roles with these access key IDs."""
    from moto.sts.models import sts_backends

    for account in list(sts_backends.values()):
        for backend in list(account.values()):
            for session in list(backend.assumed_roles):
                if session.access_key_id in access_key_ids:
                    vars(session)["ends"] = datetime.now(UTC)
