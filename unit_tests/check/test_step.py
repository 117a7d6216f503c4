"""Steps: their order, what they wait for, and the line that each logs; how a missing permission is given."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence

import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address
from destination_datalake.check.connection import STEPS
from destination_datalake.check.step import CheckContext, Remedies, Step, StepFindings, run_steps
from destination_datalake.config.options import Config
from destination_datalake.errors import Failure, MissingPermission
from unit_tests.check.examples import a_context
from unit_tests.config.examples import options

TRIAL = a_context(AwsAccess("eu-west-1"))


def step(
    id: str, attempt: Callable[[StepFindings], object], needs: Sequence[str] = (), after: Sequence[str] = ()
) -> Step:
    def tried(_: CheckContext, findings: StepFindings) -> None:
        attempt(findings)

    return Step(id, id.title(), f"does {id}", tried, needs, after)


def succeed(_: StepFindings) -> None:
    pass


def fail(findings: StepFindings) -> None:
    findings.fail("It is wrong. Correct it.")
    findings.fail("That too.")


def deny(findings: StepFindings) -> None:
    with findings.attempt("write to", "s3://lake/"):
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": ""}}, "PutObject")


def throttle(findings: StepFindings) -> None:
    with findings.attempt("write to", "s3://lake/"):
        raise ClientError({"Error": {"Code": "SlowDown", "Message": ""}}, "PutObject")


def test_each_step_is_one_line_of_json_in_the_order_of_the_steps(caplog: pytest.LogCaptureFixture) -> None:
    second_ended = threading.Event()
    slow = step("slow", lambda _: second_ended.wait(10))
    quick = step("quick", lambda _: second_ended.set())

    with caplog.at_level(logging.INFO):
        outcomes = run_steps([slow, quick], TRIAL)

    assert [outcome.step.id for outcome in outcomes] == ["slow", "quick"]
    lines = [json.loads(message) for message in caplog.messages]
    assert [{**line, "duration_ms": 0} for line in lines] == [
        {"id": "slow", "name": "Slow", "success": True, "error": None, "error_class": None, "duration_ms": 0},
        {"id": "quick", "name": "Quick", "success": True, "error": None, "error_class": None, "duration_ms": 0},
    ]
    assert [isinstance(line["duration_ms"], int) for line in lines] == [True, True]


@pytest.mark.parametrize(
    ("attempt", "error", "error_class"),
    [
        (fail, "It is wrong. Correct it.\nThat too.", "invalid_settings"),
        (deny, "Cannot write to s3://lake/ (S3, PutObject): access denied.", "insufficient_permissions"),
        (throttle, "Cannot write to s3://lake/ (S3, PutObject): AWS throttled the request.", "internal"),
    ],
)
def test_a_failed_step_is_an_error_with_its_class(
    caplog: pytest.LogCaptureFixture, attempt: Callable[[StepFindings], object], error: str, error_class: str
) -> None:
    run_steps([step("one", attempt)], TRIAL)

    [record] = caplog.records
    line = json.loads(record.getMessage())
    assert record.levelname == "ERROR"
    assert line["success"] is False
    assert line["error"].startswith(error)
    assert line["error_class"] == error_class


def test_a_step_whose_need_failed_is_not_tried_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    steps = [step("one", fail), step("two", fail, ["one"]), step("three", fail, ["two"]), step("four", succeed)]

    outcomes = run_steps(steps, TRIAL)

    assert [len(outcome.findings.failures) for outcome in outcomes] == [2, 0, 0, 0]
    assert [json.loads(message)["error"] for message in caplog.messages[1:3]] == [
        "The check skipped this step because step one failed."
    ] * 2
    assert [outcome.succeeded for outcome in outcomes] == [False, False, False, True]


def test_the_log_has_one_error_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    steps = [
        step("one", deny),
        step("two", succeed, ["one"]),
        step("three", deny),
        step("four", fail),
        step("five", fail),
    ]

    with caplog.at_level(logging.INFO):
        run_steps(steps, TRIAL)

    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO", "INFO", "ERROR", "INFO"]
    assert not [message for message in caplog.messages if json.loads(message)["success"]]


def test_a_step_after_a_failed_one_is_tried() -> None:
    _, after = run_steps([step("one", fail), step("two", succeed, after=["one"])], TRIAL)

    assert after.succeeded


def test_needs_among_steps_that_do_not_apply_do_not_matter() -> None:
    [result] = run_steps([step("two", succeed, ["left out"], ["left out too"])], TRIAL)

    assert result.succeeded


def test_an_error_that_is_not_from_aws_is_internal_and_raised_after_all_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tried = list[str]()

    def divide(_: StepFindings) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), caplog.at_level(logging.INFO):
        run_steps([step("one", divide), step("two", lambda _: tried.append("two"))], TRIAL)

    assert tried == ["two"]
    first, second = (json.loads(message) for message in caplog.messages)
    assert (first["error"], first["error_class"]) == (
        "Step one failed with an unexpected error: ZeroDivisionError.",
        "internal",
    )
    assert second["success"] is True


def test_steps_wait_only_for_earlier_ones() -> None:
    """Later ones would wait for each other for ever."""
    ids = [check_step.id for check_step in STEPS]

    assert len(set(ids)) == len(ids)
    for position, check_step in enumerate(STEPS):
        assert {*check_step.needs, *check_step.after} <= {*ids[:position]}


ACCOUNT = "123456789012"
USER = f"arn:aws:iam::{ACCOUNT}:user/loader"


def remedy(missing: MissingPermission | None, detail: str = "") -> str:
    remedies = Remedies.for_caller(Config.parse(options()), ACCOUNT, USER).with_folders([S3Address("other", "orders/")])
    return remedies.with_remedy(Failure("Cannot.", detail, "config_error", missing)).message.removeprefix("Cannot.")


def test_nothing_is_added_where_no_permission_is_missing_or_none_would_help() -> None:
    assert remedy(None) == ""
    assert remedy(MissingPermission("s3:PutObject"), "AccessDenied: with an explicit deny in a policy") == ""


def test_a_statement_includes_folders_of_tables_elsewhere() -> None:
    assert '"Resource": ["arn:aws:s3:::lake/*", "arn:aws:s3:::other/orders/*"]' in remedy(
        MissingPermission("s3:GetObject")
    )


def test_an_action_that_the_policy_does_not_have_is_allowed_on_what_aws_named() -> None:
    assert '"Action": ["sts:TagSession"], "Resource": ["arn:x"]' in remedy(MissingPermission("sts:TagSession", "arn:x"))


def test_what_the_policy_of_a_resource_does_not_allow_is_added_to_that_policy() -> None:
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
    detail = "AccessDenied: … because no resource-based policy allows the {} action"
    key, bucket = MissingPermission("kms:Decrypt", "arn:key"), MissingPermission("s3:GetObject", "arn:object")

    for_key, for_bucket = (remedy(missing, detail.format(missing.action)) for missing in (key, bucket))

    assert for_key == (
        f' Add this statement to the key\'s policy: {{"Effect": "Allow", "Principal": {{"AWS": "{USER}"}}, '
        '"Action": ["kms:GenerateDataKey", "kms:Decrypt"], "Resource": ["*"]}'
    )
    assert for_bucket.startswith(
        f' Add this statement to the bucket\'s policy: {{"Effect": "Allow", "Principal": {{"AWS": "{USER}"}}, '
        '"Action": ["s3:GetObject"], "Resource": ["arn:aws:s3:::lake/*"'
    )


def test_a_permission_that_no_grant_has_is_granted_on_all_tables() -> None:
    assert "--permissions DROP " in remedy(MissingPermission("DROP", "orders"))
    assert '"TableWildcard": {}' in remedy(MissingPermission("DROP", "orders"))
