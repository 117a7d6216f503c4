"""Handle DeleteObjects requests with keys that the caller may not delete. S3 deletes the others, and reports these.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeleteObjects.html
"""

import io
import re
from collections.abc import Iterable, Mapping
from html import escape, unescape
from typing import TYPE_CHECKING, Any

from emulated_aws.access.authorization import unmet
from emulated_aws.access.call import Call
from emulated_aws.access.refusal import Refusal

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

_OBJECT = re.compile(r"<Object>.*?</Object>", re.DOTALL)
_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_CHECKSUMS = ("HTTP_CONTENT_MD5", "HTTP_X_AMZ_CHECKSUM_CRC32", "HTTP_X_AMZ_CHECKSUM_CRC64NVME")


def refused_keys(call: Call) -> Mapping[str, Refusal]:
    """Return the keys that the caller may not delete, each with the refusal."""
    if call.request.operation != "DeleteObjects":
        return {}
    start = len(f"arn:aws:s3:::{call.request.bucket}/")
    refusals = {need.resource[start:]: unmet(call, need) for need in call.needs}
    return {key: refusal for key, refusal in refusals.items() if refusal is not None}


def delete_others(
    refused: Mapping[str, Refusal], behind: "WSGIApplication", environ: dict[str, Any], start_response: "StartResponse"
) -> Iterable[bytes]:
    """Delete the keys that are not refused, and answer with an error for each refused key."""
    body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
    permitted_body = _OBJECT.sub(lambda match: match[0] if _is_kept(match[0], refused) else "", body).encode()
    answered = b'<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult></DeleteResult>'
    if b"<Object>" in permitted_body:
        for checksum in _CHECKSUMS:
            environ.pop(checksum, None)
        environ["wsgi.input"], environ["CONTENT_LENGTH"] = io.BytesIO(permitted_body), str(len(permitted_body))
        answered = b"".join(behind(environ, lambda *_: lambda _: None))
    errors = "".join(
        f"<Error><Key>{escape(key)}</Key><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>"
        for key, refusal in refused.items()
    )
    answered = answered.replace(b"</DeleteResult>", f"{errors}</DeleteResult>".encode())
    start_response("200 OK", [("Content-Type", "application/xml"), ("Content-Length", str(len(answered)))])
    return [answered]


def _is_kept(element: str, refused: Mapping[str, Refusal]) -> bool:
    return unescape(_KEY.findall(element)[0]) not in refused
