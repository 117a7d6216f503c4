"""Read AWS's errors for refused requests."""

from typing import Any

import pytest
from botocore.exceptions import ClientError


def refusal(call: Any, **parameters: object) -> tuple[str, str]:
    """Call `call`, which must raise a ClientError, and return the error's code and message."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]
