"""The identity of a caller: the user, role session or administrator whose access key signed the request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from emulated_aws.access.sessions import UserSession, end_of, user_session
from emulated_aws.policies.policy import Policy, Principal, parse_policy
from emulated_aws.server import ACCESS_KEY_ID

PARTITION = "aws"


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller whose requests policies can refuse: a user, or a session of a role in the account's IAM."""

    principal: Principal
    policies: tuple[Policy, ...]
    """The inline and managed policies of the identity and, for a user, of the user's groups."""
    limits: tuple[tuple[str, Policy], ...] = ()
    """The policies that must allow an action in addition, each after its kind: the permissions boundary and the policy
    of the session."""
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class Administrator:
    """A caller without policies of its own: the account's own key, or any other key that is not a user's.

    Tests use such keys to distinguish their clients. The session of a role that does not exist in IAM is also an
    administrator.
    """

    arn: str
    expires: datetime | None = None


@dataclass(frozen=True, slots=True)
class Nobody:
    """An access key in the form of a user's key that the account has not issued, or an unknown session."""

    arn: str = ""
    expires: datetime | None = None


Identity = Caller | Administrator | Nobody


def identify(access_key_id: str, session_token: str, account: str) -> Identity:
    """Return the identity to which an access key belongs, according to moto's IAM and STS.

    moto allows callers to assume roles that do not exist in IAM. The session of such a role is an administrator.
    """
    from moto.iam.models import iam_backends
    from moto.sts.models import sts_backends

    # Copy the list, here and below, because the server handles other requests at the same time.
    for session in reversed(list(sts_backends[account][PARTITION].assumed_roles)):
        if session.access_key_id == access_key_id:
            if session.session_token != session_token:
                return Nobody()
            role = role_of(session.role_arn, account)
            if role is None:
                return Administrator(session.arn, end_of(session))
            principal = Principal(session.arn, role.arn, account)
            return Caller(principal, _policies(role), _limits(role, session.policy), end_of(session))
    if (begun := user_session(access_key_id)) is not None:
        return _of_user_session(begun, session_token, account)
    key = iam_backends[account][PARTITION].access_keys.get(access_key_id)
    user = iam_backends[account][PARTITION].users.get(key.user_name or "") if key is not None else None
    if key is not None and user is not None and key.status == "Active":
        groups = iam_backends[account][PARTITION].get_groups_for_user(user.name)
        policies = tuple(policy for group in groups for policy in _policies(group))
        return Caller(Principal(user.arn, "", account), _policies(user) + policies, _limits(user, None))
    if is_of_a_user(access_key_id):
        return Nobody()
    return Administrator(f"arn:aws:iam::{account}:root")


def _of_user_session(session: UserSession, token: str, account: str) -> Identity:
    if session.token != token:
        return Nobody()
    if session.key == ACCESS_KEY_ID:
        return Administrator(f"arn:aws:iam::{account}:root", session.ends)
    return replace(identify(session.key, "", account), expires=session.ends)


def is_of_a_user(access_key_id: str) -> bool:
    """Return whether an access key ID has the form of a user's: AKIA, followed by 16 letters and digits.

    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html#identifiers-unique-ids
    """
    return len(access_key_id) == 20 and access_key_id.startswith("AKIA") and access_key_id.isalnum()


def role_of(arn: str, account: str) -> Any:
    from moto.iam.models import iam_backends

    roles = list(iam_backends[account][PARTITION].roles.values())
    return next((role for role in roles if role.arn == arn), None)


def _policies(identity: Any) -> tuple[Policy, ...]:
    inline: Mapping[str, str] = identity.policies
    managed: Sequence[Any] = list(identity.managed_policies.values())
    return tuple(parse_policy(document) for document in (*inline.values(), *map(_document, managed)))


def _document(managed: Any) -> str:
    return str(next(version.document for version in managed.versions if version.is_default))


def _limits(identity: Any, session_policy: str | None) -> tuple[tuple[str, Policy], ...]:
    from moto.iam.models import iam_backends

    limits = [("session", parse_policy(session_policy))] if session_policy else []
    boundary = getattr(identity, "permissions_boundary_arn", None)
    if boundary:
        managed = iam_backends[identity.account_id][PARTITION].get_policy(boundary)
        limits.append(("permissions boundary", parse_policy(_document(managed))))
    return tuple(limits)
