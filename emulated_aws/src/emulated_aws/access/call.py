"""A request in its context: who makes it, what it needs, and what conditions can ask about it."""

from dataclasses import dataclass

from emulated_aws.access.identity import Caller, Identity
from emulated_aws.policies.conditions import Context
from emulated_aws.policies.policy import Principal
from emulated_aws.requests.needs import Need
from emulated_aws.requests.request import AwsRequest


@dataclass(frozen=True, slots=True)
class Call:
    """A request, who makes it, and what it needs."""

    request: AwsRequest
    identity: Identity
    needs: list[Need]
    account: str

    @property
    def caller(self) -> str:
        """The ARN that error messages name."""
        return self.principal.arn

    @property
    def principal(self) -> Principal:
        """The caller as policies of resources name it."""
        if isinstance(self.identity, Caller):
            return self.identity.principal
        return Principal(self.identity.arn, "", self.account)

    def context(self, need: Need) -> Context:
        """Return the condition keys of a need: its own, and those that every request has.

        https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html
        """
        return {
            # Of a session it is the role's ARN.
            "aws:principalarn": [self.principal.role_arn or self.principal.arn],
            "aws:principalaccount": [self.account],
            "aws:resourceaccount": [self.account],
            "s3:resourceaccount": [self.account],
            "aws:requestedregion": [self.request.region],
            "aws:securetransport": ["true" if self.request.secure else "false"],
            **need.conditions,
        }
