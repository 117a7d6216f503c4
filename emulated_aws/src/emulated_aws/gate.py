"""The layer in front of moto. It reads each request, applies the account's rules, and records the request."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from emulated_aws.access.call import Call
from emulated_aws.access.identity import Administrator, Caller, identify
from emulated_aws.access.refusal import Refusal, answer, drain, throttled
from emulated_aws.access.rules import refused
from emulated_aws.caller import caller_arn
from emulated_aws.controls import PREFIX, Controls
from emulated_aws.objects.deletes import delete_others, refused_keys
from emulated_aws.objects.implied import implied_needs, with_encryption_of_upload
from emulated_aws.objects.policies import take_bucket_policies_from_moto
from emulated_aws.requests.log import Ledger, Record
from emulated_aws.requests.needs import needs
from emulated_aws.requests.request import AwsRequest, read_request

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_OF_INTEREST = (
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
    "x-amz-acl",
    "x-amz-copy-source",
    "if-match",
    "if-none-match",
    "user-agent",
)


class Gate:
    """Answers requests that the account's rules refuse, and passes all other requests to moto.

    For the account's own access key, only the policy of a resource, or a fault that a test requests, can refuse a
    request. Requests to `/_account/…` come from tests.
    """

    def __init__(self, behind: "WSGIApplication", account: str, administrator_key: str) -> None:
        self._behind = behind
        self._account = account
        self._key = administrator_key
        self._administrator = Administrator(f"arn:aws:iam::{account}:root")
        self._ledger = Ledger()
        self._controls = Controls(self._ledger)
        take_bucket_policies_from_moto()

    def __call__(self, environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path.startswith("/moto-api"):
            return self._behind(environ, start_response)
        if path.startswith(PREFIX):
            return self._controls.answer(environ, start_response)
        call, refusal = self._judge(read_request(environ))
        if refusal is not None:
            drain(environ)
            body = answer(refusal, call.request, environ["REQUEST_METHOD"], start_response)
            self._ledger.add(_record(call, refusal.status, refusal.code))
            return body
        # If moto raises an exception, its server answers with status 500.
        statuses = [500]

        def started(status: str, *more: Any) -> Any:
            statuses.append(int(status.partition(" ")[0]))
            return start_response(status, *more)

        token = caller_arn.set(_of_lake_formation(call))
        try:
            if keys := refused_keys(call):
                return delete_others(keys, self._behind, environ, started)
            return self._behind(environ, started)
        finally:
            caller_arn.reset(token)
            # Add the record before the client receives the response, so that the client can then find the record.
            self._ledger.add(_record(call, statuses[-1], ""))

    def _judge(self, request: AwsRequest) -> tuple[Call, Refusal | None]:
        """Return the request in its context, and its refusal, or None if the rules allow it."""
        needed = [
            *with_encryption_of_upload(needs(request, self._account), request, self._account),
            *implied_needs(request, self._account),
        ]
        call = Call(request, self._administrator, needed, self._account)
        if self._controls.throttles(request):
            return call, throttled(request)
        try:
            if request.access_key_id not in ("", self._key):
                identity = identify(request.access_key_id, request.session_token, self._account)
                call = Call(request, identity, needed, self._account)
            return call, refused(call)
        except ValueError as error:
            return call, Refusal(400, "MalformedPolicyDocument", str(error))


def _of_lake_formation(call: Call) -> str | None:
    """Return the caller as Lake Formation's grants name it: the user, or the role of a session.

    Returns None for administrators, because they need no grants.
    """
    return (call.principal.role_arn or call.caller) if isinstance(call.identity, Caller) else None


def _record(call: Call, status: int, refusal: str) -> Record:
    request = call.request
    return Record(
        number=0,
        caller=call.caller,
        service=request.service,
        operation=request.operation,
        region=request.region,
        needs=call.needs,
        headers={name: request.headers[name] for name in _OF_INTEREST if name in request.headers},
        catalog_id=request.text("CatalogId") or None,
        bucket=request.bucket,
        key=request.key,
        sent_bytes=request.sent_bytes,
        status=status,
        refusal=refusal,
    )
