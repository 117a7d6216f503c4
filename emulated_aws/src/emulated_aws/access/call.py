"""A request in its context: the caller, the needed permissions, and the condition keys."""

from dataclasses import dataclass

from emulated_aws.access.identity import Caller, Identity
from emulated_aws.policies.conditions import Context
from emulated_aws.policies.policy import Principal
from emulated_aws.requests.needs import Need
from emulated_aws.requests.request import AwsRequest


@dataclass(frozen=True, slots=True)
class Call:
    """A request, the identity of the caller, and the permissions that the request needs."""

    request: AwsRequest
    identity: Identity
    needs: list[Need]
    account: str

    @property
    def caller(self) -> str:
        """The ARN of the caller, as error messages name it."""
        return self.principal.arn

    @property
    def principal(self) -> Principal:
        """The caller, as the policies of resources name it."""
        if isinstance(self.identity, Caller):
            return self.identity.principal
        return Principal(self.identity.arn, "", self.account)

    def context(self, need: Need) -> Context:
        """Return the values of a need's own condition keys, and of the condition keys that every request has.

        https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html
        """
        return {
            # For a session, this is the ARN of the role.
            "aws:principalarn": [self.principal.role_arn or self.principal.arn],
            "aws:principalaccount": [self.account],
            "aws:resourceaccount": [self.account],
            "s3:resourceaccount": [self.account],
            "aws:requestedregion": [self.request.region],
            "aws:securetransport": ["true" if self.request.secure else "false"],
            **need.conditions,
        }
