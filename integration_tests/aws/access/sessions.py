"""How long the sessions of roles last, whatever their callers asked for: a test's matter."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Seconds after which AWS refuses a session's credentials, and those after which it said that it would."""

    seconds: float
    announced_seconds: float


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


def end_of(session: Any) -> datetime:
    """Return when a session's credentials are refused from."""
    ends: datetime = vars(session).get("ends") or session.expiration.replace(tzinfo=UTC)
    return ends
