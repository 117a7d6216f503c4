"""Calls to a server: what they carry, and how long they are tried again."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import grpc
import pytest

from destination_datalake.spark.connect.connection import _PatientPolicy, connect
from destination_datalake.spark.connect.endpoint import Endpoint
from unit_tests.spark.connect.server import Server


class Refused(grpc.RpcError):
    """An error of gRPC's, as its calls raise it."""

    def __init__(self, status: grpc.StatusCode, text: str = "") -> None:
        super().__init__(text)
        self._status = status

    def code(self) -> grpc.StatusCode:
        return self._status

    def details(self) -> str:
        return str(self)

    def trailing_metadata(self) -> Any:
        """Return that there is none."""
        return None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_server_that_is_away_is_tried_for_a_time_that_begins_with_the_first_failure() -> None:
    clock = Clock()
    clock.now = 1000
    state = _PatientPolicy(60, clock).to_state()
    gone = Refused(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")

    waits = []
    while state.can_retry(gone):
        wait = state.next_attempt(gone)
        assert wait is not None
        waits.append(wait)
        clock.now += wait / 1000

    assert clock.now - 1000 >= 60
    assert waits == sorted(waits[:4]) + waits[4:]
    assert max(waits) < 6000


@pytest.mark.parametrize(
    "error",
    [
        Refused(grpc.StatusCode.UNAUTHENTICATED, "Invalid token"),
        Refused(grpc.StatusCode.INTERNAL, "Job aborted"),
        Refused(grpc.StatusCode.UNAVAILABLE, "Ssl handshake failed: SSL_ERROR_SSL: WRONG_VERSION_NUMBER"),
        ValueError("not of gRPC"),
    ],
)
def test_what_another_attempt_cannot_mend_is_not_tried_again(error: Exception) -> None:
    assert not _PatientPolicy(60).to_state().can_retry(error)


def test_each_connection_is_a_session_of_its_own_whatever_the_address_says() -> None:
    with Server() as server:
        for _ in range(2):
            session = connect(Endpoint(f"{server.url}/;session_id=00112233-4455-4677-8899-aabbccddeeff"))
            assert session.version
            session.stop()

        assert len(server.sessions) == 2


def test_a_process_ends_at_once_when_its_server_is_gone() -> None:
    program = (
        "from destination_datalake.spark.connect.connection import connect\n"
        "from destination_datalake.spark.connect.endpoint import Endpoint\n"
        "from unit_tests.spark.connect.server import Server\n"
        "with Server() as server:\n"
        "    session = connect(Endpoint(server.url))\n"
        "    assert session.version\n"
    )

    done = subprocess.run([sys.executable, "-c", program], timeout=30, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "")
