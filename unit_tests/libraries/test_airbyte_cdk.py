"""Airbyte's CDK: what it does when it is imported, and to messages."""

from __future__ import annotations

import subprocess
import sys

import orjson
import pytest
from airbyte_cdk.models.airbyte_protocol_serializers import AirbyteMessageSerializer

pytestmark = pytest.mark.slow

IMPORT = """
import logging, sys
import airbyte_cdk
print(len(logging.getLogger().handlers), len(sys.modules) > 1000)
"""


def test_importing_it_installs_a_log_handler_and_loads_a_thousand_modules() -> None:
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORT], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "1 True\n", ended.stderr


def test_its_messages_drop_unknown_fields_and_digits() -> None:
    record = b'{"stream":"s","data":{"n":1.0000000000000000001},"emitted_at":1,"unknown":1}'

    message = AirbyteMessageSerializer.load(orjson.loads(b'{"type":"RECORD","record":%b}' % record))

    assert AirbyteMessageSerializer.dump(message)["record"] == {"stream": "s", "data": {"n": 1.0}, "emitted_at": 1}
