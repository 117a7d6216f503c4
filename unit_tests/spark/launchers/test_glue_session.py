"""Interactive sessions of AWS Glue, in the shapes of the service's API model."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import ANY, Stubber

from destination_datalake.config.groups.spark import GlueSession
from destination_datalake.spark.failure import SparkFailed
from destination_datalake.spark.launchers import aws_session
from destination_datalake.spark.launchers.glue_session import GlueSessions
from destination_datalake.spark.launchers.launcher import SessionEnded
from unit_tests.spark.launchers.answers import STOPPING, client_of, headers_of, stubbed

ROLE = "arn:aws:iam::123456789012:role/spark"
PYTHON = (3, 11)
OPTIONS = GlueSession(role_arn=ROLE, worker_type="G.2X", number_of_workers=4)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_session, "POLL_SECONDS", 0.001)


def creation(arguments: dict[str, str], version: str = "5.1") -> dict[str, Any]:
    return {
        "Id": ANY,
        "Role": ROLE,
        "Command": {"Name": "glueetl", "PythonVersion": "3"},
        "GlueVersion": version,
        "SessionType": "SPARK_CONNECT",
        "WorkerType": "G.2X",
        "NumberOfWorkers": 4,
        "IdleTimeout": 20,
        "DefaultArguments": arguments,
    }


def ready(stubber: Stubber, status: str = "READY", message: str | None = None) -> None:
    session = {"Status": status, **({"ErrorMessage": message} if message else {})}
    stubber.add_response("get_session", {"Session": session}, {"Id": ANY})


def endpoint(stubber: Stubber, token: str, lasts: timedelta = timedelta(hours=1)) -> None:
    access = {"Url": "sc://host.glue.aws", "AuthToken": token, "AuthTokenExpirationTime": datetime.now(UTC) + lasts}
    stubber.add_response("get_session_endpoint", {"SparkConnect": access}, {"SessionId": ANY})


@pytest.mark.parametrize(
    ("conf", "arguments"),
    [
        ({}, {}),
        ({"spark.a": "1", "spark.b": "2"}, {"--conf": "spark.a=1 --conf spark.b=2"}),
    ],
)
def test_a_session_is_created_waited_for_and_stopped(conf: dict[str, str], arguments: dict[str, str]) -> None:
    client = client_of("glue")
    stubber = stubbed(client)
    launcher = GlueSessions(OPTIONS, conf, lambda: client, PYTHON)
    stubber.add_response("create_session", {"Session": {"Status": "PROVISIONING"}}, creation(arguments))
    ready(stubber, "PROVISIONING")
    ready(stubber)
    endpoint(stubber, "token-one-of-aws")

    reached = launcher.launch(STOPPING)

    assert reached.url == "sc://host.glue.aws:443/;use_ssl=true"
    assert headers_of(reached) == (("x-aws-proxy-auth", "token-one-of-aws"),)
    stubber.add_response("stop_session", {}, {"Id": ANY})
    launcher.end()
    launcher.end()
    stubber.assert_no_pending_responses()


def test_a_session_whose_creation_was_answered_too_late_is_ours() -> None:
    client = client_of("glue")
    stubber = stubbed(client)
    stubber.add_client_error("create_session", "AlreadyExistsException", http_status_code=400)
    ready(stubber)
    endpoint(stubber, "token-one-of-aws")

    assert GlueSessions(OPTIONS, {}, lambda: client, PYTHON).launch(STOPPING).url.startswith("sc://host.glue.aws:443")


def test_ids_of_sessions_tell_whose_they_are_and_are_never_the_same() -> None:
    client = client_of("glue")
    ids: list[str] = []
    client.meta.events.register(
        "before-parameter-build.glue.CreateSession", lambda params, **_: ids.append(params["Id"])
    )
    stubber = stubbed(client)
    for _ in range(2):
        stubber.add_response("create_session", {}, creation({}))
        ready(stubber)
        endpoint(stubber, "token-one-of-aws")
        GlueSessions(OPTIONS, {}, lambda: client, PYTHON).launch(STOPPING)

    assert all(re.fullmatch("destination-datalake-[0-9a-f]{32}", id) for id in ids)
    assert len(set(ids)) == 2


def test_what_may_have_been_created_is_stopped_when_the_answer_was_lost() -> None:
    client = client_of("glue")
    stubber = stubbed(client)
    launcher = GlueSessions(OPTIONS, {}, lambda: client, PYTHON)
    stubber.add_client_error("create_session", "InternalServiceException", http_status_code=400)
    stubber.add_response("stop_session", {}, {"Id": ANY})

    with pytest.raises(SparkFailed):
        launcher.launch(STOPPING)
    launcher.end()

    stubber.assert_no_pending_responses()


@pytest.mark.parametrize("status", ["FAILED", "TIMEOUT", "STOPPED"])
def test_a_session_that_does_not_start_is_told_with_aws_s_words(status: str) -> None:
    client = client_of("glue")
    stubber = stubbed(client)
    stubber.add_response("create_session", {}, creation({}))
    ready(stubber, status, "no capacity")

    with pytest.raises(SparkFailed, match="A session of AWS Glue did not start: no capacity"):
        GlueSessions(OPTIONS, {}, lambda: client, PYTHON).launch(STOPPING)


def test_a_session_that_aws_has_ended_is_found_when_its_token_is_renewed() -> None:
    client = client_of("glue")
    stubber = stubbed(client)
    stubber.add_response("create_session", {}, creation({}))
    ready(stubber)
    endpoint(stubber, "token-one-of-aws", timedelta(minutes=-1))
    reached = GlueSessions(OPTIONS, {}, lambda: client, PYTHON).launch(STOPPING)

    stubber.add_client_error("get_session_endpoint", "IllegalSessionStateException", "STOPPED")

    with pytest.raises(SessionEnded):
        headers_of(reached)


def test_glue_has_the_version_whose_python_is_the_driver_s() -> None:
    client = client_of("glue")
    stubber = stubbed(client)
    stubber.add_response("create_session", {}, creation({}, "6.0"))
    ready(stubber)
    endpoint(stubber, "token-one-of-aws")

    GlueSessions(OPTIONS, {}, lambda: client, (3, 13)).launch(STOPPING)

    stubber.assert_no_pending_responses()


def test_a_python_that_no_glue_has_is_refused_before_a_session_is_created() -> None:
    with pytest.raises(SparkFailed, match=r"has Python 3.12, which this is. .* 3.11 \(5.1\), 3.13 \(6.0\)") as refused:
        GlueSessions(OPTIONS, {}, lambda: client_of("glue"), (3, 12)).launch(STOPPING)

    assert refused.value.failure.type == "config_error"
