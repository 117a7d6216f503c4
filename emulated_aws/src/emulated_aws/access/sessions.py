"""Sessions of roles and of users: whose they are, and how long they last, whatever their callers asked for."""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Seconds after which AWS refuses a session's credentials, and those after which it said that it would."""

    seconds: float
    announced_seconds: float


@dataclass(frozen=True, slots=True)
class UserSession:
    """A session that a user has begun with an access key of theirs (STS: GetSessionToken); `key` is that key's id."""

    key: str
    ends: datetime
    token: str = field(default_factory=lambda: token_hex(80))


_user_sessions: dict[str, UserSession] = {}


def user_session(access_key_id: str) -> UserSession | None:
    """Return the user's session that an access key is of, if it is one's."""
    return _user_sessions.get(access_key_id)


class Sessions:
    """The lifetime of sessions that begin from now on; None leaves it to who assumes the role."""

    lifetime: Lifetime | None = None

    def install(self) -> None:
        """Let moto's sessions last as long as this says."""
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
        """Let STS begin sessions of users; moto answers each with the same keys, which are nobody's."""
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
    """Return when a session's credentials are refused from."""
    ends: datetime = vars(session).get("ends") or session.expiration.replace(tzinfo=UTC)
    return ends


def end(access_key_ids: Collection[str]) -> None:
    """Let these sessions of roles be over."""
    from moto.sts.models import sts_backends

    for account in list(sts_backends.values()):
        for backend in list(account.values()):
            for session in list(backend.assumed_roles):
                if session.access_key_id in access_key_ids:
                    vars(session)["ends"] = datetime.now(UTC)
