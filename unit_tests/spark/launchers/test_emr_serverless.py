"""Sessions of EMR Serverless, in the shapes of the service's API model."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.stub import ANY, Stubber

from destination_datalake.config.groups.spark import EmrServerless
from destination_datalake.spark.failure import SparkFailed
from destination_datalake.spark.launchers import aws_session
from destination_datalake.spark.launchers.emr_serverless import EmrServerlessSessions
from destination_datalake.spark.launchers.launcher import SessionEnded
from unit_tests.spark.launchers.answers import STOPPING, client_of, headers_of, stubbed

APPLICATION, SESSION = "00f1example", "00s1example"
ROLE = "arn:aws:iam::123456789012:role/spark"
OPTIONS = EmrServerless(application_id=APPLICATION, execution_role_arn=ROLE)
BOTH = {"applicationId": APPLICATION, "sessionId": SESSION}
ARN = f"arn:aws:emr-serverless:eu-west-1:123456789012:/applications/{APPLICATION}/sessions/{SESSION}"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_session, "POLL_SECONDS", 0.001)


def started(stubber: Stubber, conf: Mapping[str, str]) -> None:
    overrides: dict[str, Any] = {}
    if conf:
        overrides = {"runtimeConfiguration": [{"classification": "spark-defaults", "properties": dict(conf)}]}
    expected = {
        "applicationId": APPLICATION,
        "executionRoleArn": ROLE,
        "clientToken": ANY,
        "idleTimeoutMinutes": 20,
        "name": "destination-datalake",
        "configurationOverrides": overrides,
    }
    stubber.add_response("start_session", {**BOTH, "arn": ARN}, expected)


def state(stubber: Stubber, name: str, details: str = "-") -> None:
    now = datetime.now(UTC)
    session = {
        **BOTH,
        "arn": ARN,
        "state": name,
        "stateDetails": details,
        "releaseLabel": "emr-7.13.0",
        "executionRoleArn": ROLE,
        "createdBy": ROLE,
        "createdAt": now,
        "updatedAt": now,
    }
    stubber.add_response("get_session", {"session": session}, BOTH)


def endpoint(stubber: Stubber, token: str, lasts: timedelta = timedelta(hours=1)) -> None:
    answer = {
        **BOTH,
        "endpoint": "https://host.emr-serverless.eu-west-1.amazonaws.com",
        "authToken": token,
        "authTokenExpiresAt": datetime.now(UTC) + lasts,
    }
    stubber.add_response("get_session_endpoint", answer, BOTH)


@pytest.mark.parametrize("conf", [{}, {"spark.executor.memory": "4g"}])
def test_a_session_is_started_waited_for_and_terminated(conf: dict[str, str]) -> None:
    client = client_of("emr-serverless")
    stubber = stubbed(client)
    launcher = EmrServerlessSessions(OPTIONS, conf, lambda: client)
    started(stubber, conf)
    for name in ("SUBMITTED", "STARTING", "IDLE"):
        state(stubber, name)
    endpoint(stubber, "token-one-of-aws")

    reached = launcher.launch(STOPPING)

    assert reached.url == "sc://host.emr-serverless.eu-west-1.amazonaws.com:443/;use_ssl=true"
    assert headers_of(reached) == (("x-aws-proxy-auth", "token-one-of-aws"),)
    assert "token-one-of-aws" not in repr(reached)
    stubber.add_response("terminate_session", BOTH, BOTH)
    launcher.end()
    launcher.end()
    stubber.assert_no_pending_responses()


def test_a_token_is_renewed_five_minutes_before_it_expires() -> None:
    client = client_of("emr-serverless")
    stubber = stubbed(client)
    started(stubber, {})
    state(stubber, "STARTED")
    endpoint(stubber, "token-one-of-aws", timedelta(minutes=4))
    reached = EmrServerlessSessions(OPTIONS, {}, lambda: client).launch(STOPPING)

    endpoint(stubber, "token-two-of-aws", timedelta(minutes=6))

    assert headers_of(reached) == (("x-aws-proxy-auth", "token-two-of-aws"),)
    assert headers_of(reached) == (("x-aws-proxy-auth", "token-two-of-aws"),)
    stubber.assert_no_pending_responses()


def test_a_token_is_used_to_its_end_if_aws_has_no_new_one_yet() -> None:
    client = client_of("emr-serverless")
    stubber = stubbed(client)
    started(stubber, {})
    state(stubber, "STARTED")
    endpoint(stubber, "token-one-of-aws", timedelta(minutes=4))
    reached = EmrServerlessSessions(OPTIONS, {}, lambda: client).launch(STOPPING)

    stubber.add_client_error("get_session_endpoint", "InternalServerException", http_status_code=500)

    assert headers_of(reached) == (("x-aws-proxy-auth", "token-one-of-aws"),)


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "ValidationException"])
def test_a_session_that_aws_has_ended_is_found_when_its_token_is_renewed(code: str) -> None:
    client = client_of("emr-serverless")
    stubber = stubbed(client)
    started(stubber, {})
    state(stubber, "STARTED")
    endpoint(stubber, "token-one-of-aws", timedelta(minutes=-1))
    reached = EmrServerlessSessions(OPTIONS, {}, lambda: client).launch(STOPPING)

    stubber.add_client_error("get_session_endpoint", code, "the session is in state TERMINATED")

    with pytest.raises(SessionEnded, match="TERMINATED"):
        headers_of(reached)


@pytest.mark.parametrize("name", ["FAILED", "TERMINATED"])
def test_a_session_that_does_not_start_is_told_with_aws_s_words(name: str) -> None:
    client = client_of("emr-serverless")
    stubber = stubbed(client)
    started(stubber, {})
    state(stubber, name, "Exceeded maximum capacity")

    with pytest.raises(SparkFailed, match=f"application {APPLICATION} did not start: Exceeded maximum capacity"):
        EmrServerlessSessions(OPTIONS, {}, lambda: client).launch(STOPPING)


def test_a_session_that_is_never_ready_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_session.wait, "__defaults__", (0.003,))
    client = client_of("emr-serverless")
    stubber = stubbed(client)
    started(stubber, {})
    for _ in range(3):
        state(stubber, "STARTING")

    with pytest.raises(SparkFailed, match="was not ready within"):
        EmrServerlessSessions(OPTIONS, {}, lambda: client).launch(STOPPING)


def test_a_missing_permission_is_named() -> None:
    client = client_of("emr-serverless")
    text = (
        "User: arn:aws:iam::123456789012:user/airbyte is not authorized to perform: emr-serverless:StartSession on "
        f"resource: arn:aws:emr-serverless:eu-west-1:123456789012:/applications/{APPLICATION}"
    )
    stubbed(client).add_client_error("start_session", "AccessDeniedException", text, http_status_code=403)

    with pytest.raises(SparkFailed, match="emr-serverless:StartSession") as refused:
        EmrServerlessSessions(OPTIONS, {}, lambda: client).launch(STOPPING)

    assert refused.value.failure.type == "config_error"


def test_a_session_that_cannot_be_terminated_is_told_of_and_left_to_aws(caplog: pytest.LogCaptureFixture) -> None:
    client = client_of("emr-serverless")
    stubber = stubbed(client)
    launcher = EmrServerlessSessions(OPTIONS, {}, lambda: client)
    started(stubber, {})
    state(stubber, "STARTED")
    endpoint(stubber, "token-one-of-aws")
    launcher.launch(STOPPING)
    stubber.add_client_error("terminate_session", "InternalServerException", http_status_code=400)

    launcher.end()

    assert "AWS ends it when it has been idle for 20 minutes" in caplog.text
