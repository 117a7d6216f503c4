"""What AWS says to a request that it refuses."""

from typing import Any

import pytest
from botocore.exceptions import ClientError


def refusal(call: Any, **parameters: object) -> tuple[str, str]:
    """The error's code and message."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]
