"""IAM's decisions follow the rules in the IAM user guide."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from emulated_aws.policies.patterns import action_matches, resource_matches
from emulated_aws.policies.policy import Decision, Policy, Principal, decide, delegates, parse_policy
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.share(3)

ALLOWED, IMPLICIT, EXPLICIT = Decision.ALLOWED, Decision.IMPLICITLY_DENIED, Decision.EXPLICITLY_DENIED
OBJECT = "arn:aws:s3:::lake/raw/orders"
CALLER = Principal("arn:aws:sts::123456789012:assumed-role/r/s", "arn:aws:iam::123456789012:role/r", "123456789012")


def policy(*statements: Mapping[str, Any]) -> Policy:
    return parse_policy(json.dumps({"Version": "2012-10-17", "Statement": list(statements)}))


def allow(**elements: object) -> Mapping[str, Any]:
    return {"Effect": "Allow", "Action": "s3:*", "Resource": "*", **elements}


def deny(**elements: object) -> Mapping[str, Any]:
    return {**allow(**elements), "Effect": "Deny"}


@pytest.mark.parametrize(
    ("pattern", "action", "matches"),
    [
        ("s3:PutObject", "s3:PutObject", True),
        ("S3:putobject", "s3:PutObject", True),
        ("s3:Put*", "s3:PutObject", True),
        ("s3:Put?bject", "s3:PutObject", True),
        ("*", "glue:GetTable", True),
        ("s3:Put", "s3:PutObject", False),
        ("glue:*", "s3:PutObject", False),
        ("s3:Put[O]bject", "s3:PutObject", False),
    ],
)
def test_an_action_is_matched_without_regard_to_case(pattern: str, action: str, matches: bool) -> None:
    assert action_matches(pattern, action) is matches


@pytest.mark.parametrize(
    ("pattern", "resource", "matches"),
    [
        ("*", OBJECT, True),
        (OBJECT, OBJECT, True),
        ("arn:aws:s3:::lake/*", OBJECT, True),
        ("arn:aws:s3:::lake/raw/order?", OBJECT, True),
        ("arn:aws:s3:::lake/*/orders", "arn:aws:s3:::lake/a/b/orders", True),
        ("arn:aws:s3:::lake*", "arn:aws:s3:::lake", True),
        ("arn:*:s3:::lake/*", OBJECT, True),
        ("arn:aws:s3:::lake", OBJECT, False),
        ("arn:aws:s3:::lake/*", "arn:aws:s3:::lake", False),
        ("arn:aws:s3:::lake/RAW/*", OBJECT, False),
        ("arn:aws:*", OBJECT, False),
        ("arn:aws:glue:*:*:table/shop/*", "arn:aws:glue:us-east-1:123456789012:table/shop/*", True),
        ("arn:aws:glue:*:*:table/shop/orders", "arn:aws:glue:us-east-1:123456789012:table/shop/*", False),
        ("arn:aws:s3:::lake/*", "arn:aws:s3:::lake/a:b:c\nd", True),
    ],
)
def test_a_resource_is_matched_segment_by_segment(pattern: str, resource: str, matches: bool) -> None:
    assert resource_matches(pattern, resource) is matches


@pytest.mark.parametrize(
    ("statements", "decision"),
    [
        ([], IMPLICIT),
        ([allow()], ALLOWED),
        ([allow(Action=["glue:*", "s3:PutObject"])], ALLOWED),
        ([allow(Action="s3:GetObject")], IMPLICIT),
        ([allow(Resource="arn:aws:s3:::other/*")], IMPLICIT),
        ([allow(), deny()], EXPLICIT),
        ([deny(), allow()], EXPLICIT),
        ([allow(), deny(Resource="arn:aws:s3:::other/*")], ALLOWED),
        ([{"Effect": "Allow", "NotAction": "s3:Delete*", "Resource": "*"}], ALLOWED),
        ([{"Effect": "Allow", "NotAction": "s3:Put*", "Resource": "*"}], IMPLICIT),
        ([{"Effect": "Deny", "NotAction": "glue:*", "Resource": "*"}, allow()], EXPLICIT),
        ([{"Effect": "Allow", "Action": "*", "NotResource": OBJECT}], IMPLICIT),
        ([{"Effect": "Allow", "Action": "*", "NotResource": "arn:aws:s3:::other/*"}], ALLOWED),
    ],
)
def test_a_deny_outweighs_every_allow_and_nothing_is_allowed_unsaid(
    statements: list[Mapping[str, Any]], decision: Decision
) -> None:
    assert decide([policy(*statements)], "s3:PutObject", OBJECT, {}) is decision


@pytest.mark.parametrize(
    ("condition", "context", "met"),
    [
        ({"StringEquals": {"s3:prefix": "raw/"}}, {"s3:prefix": ["raw/"]}, True),
        ({"StringEquals": {"S3:Prefix": ["", "raw/"]}}, {"s3:prefix": ["raw/"]}, True),
        ({"StringEquals": {"s3:prefix": "raw/*"}}, {"s3:prefix": ["raw/a"]}, False),
        ({"StringEquals": {"s3:prefix": "raw/"}}, {}, False),
        ({"StringEqualsIfExists": {"s3:prefix": "raw/"}}, {}, True),
        ({"StringNotEquals": {"s3:prefix": "raw/"}}, {}, True),
        ({"StringNotEquals": {"s3:prefix": ["raw/", "x"]}}, {"s3:prefix": ["x"]}, False),
        ({"StringNotEquals": {"s3:prefix": ["raw/", "x"]}}, {"s3:prefix": ["y"]}, True),
        ({"StringEqualsIgnoreCase": {"k": "AWS:kms"}}, {"k": ["aws:KMS"]}, True),
        ({"StringLike": {"s3:prefix": ["raw/*", "raw"]}}, {"s3:prefix": ["raw/a/b"]}, True),
        ({"StringNotLike": {"s3:prefix": "raw/*"}}, {"s3:prefix": ["raw/a"]}, False),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:securetransport": ["true"]}, False),
        ({"Bool": {"aws:SecureTransport": False}}, {"aws:securetransport": ["false"]}, True),
        ({"Null": {"s3:x-amz-server-side-encryption": "true"}}, {}, True),
        ({"Null": {"s3:x-amz-server-side-encryption": "true"}}, {"s3:x-amz-server-side-encryption": ["x"]}, False),
        ({"Null": {"s3:x-amz-server-side-encryption": False}}, {"s3:x-amz-server-side-encryption": ["x"]}, True),
        (
            {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/x-*"}},
            {"aws:principalarn": ["arn:aws:iam::1:role/x-1"]},
            True,
        ),
        (
            {"ArnNotLike": {"aws:PrincipalArn": "arn:aws:iam::1:role/*"}},
            {"aws:principalarn": ["arn:aws:iam::1:role/a"]},
            False,
        ),
        ({"NumericLessThan": {"s3:TlsVersion": "1.2"}}, {"s3:tlsversion": ["1.3"]}, False),
        ({"ForAllValues:StringEquals": {"k": ["a", "b"]}}, {"k": ["a", "b"]}, True),
        ({"ForAllValues:StringEquals": {"k": ["a", "b"]}}, {"k": ["a", "c"]}, False),
        ({"ForAllValues:StringEquals": {"k": ["a"]}}, {}, True),
        ({"ForAnyValue:StringEquals": {"k": ["a"]}}, {"k": ["a", "c"]}, True),
        ({"ForAnyValue:StringEquals": {"k": ["a"]}}, {}, False),
        ({"StringEquals": {"a": "1", "b": "2"}}, {"a": ["1"], "b": ["3"]}, False),
        ({"StringEquals": {"a": "1"}, "StringLike": {"b": "2*"}}, {"a": ["1"], "b": ["23"]}, True),
    ],
)
def test_conditions_hold_together_and_their_values_one_by_one(
    condition: Mapping[str, Any], context: Mapping[str, list[str]], met: bool
) -> None:
    decision = decide([policy(allow(Condition=condition))], "s3:ListBucket", "arn:aws:s3:::lake", context)

    assert decision is (ALLOWED if met else IMPLICIT)


@pytest.mark.parametrize(
    ("principal", "named"),
    [
        ("*", True),
        ({"AWS": "*"}, True),
        ({"AWS": "123456789012"}, False),
        ({"AWS": "arn:aws:iam::123456789012:root"}, False),
        ({"AWS": ["arn:aws:iam::123456789012:user/u", CALLER.role_arn]}, True),
        ({"AWS": CALLER.arn}, True),
        ({"AWS": "arn:aws:iam::123456789012:user/u"}, False),
        ({"AWS": "arn:aws:iam::999999999999:root"}, False),
        ({"Service": "glue.amazonaws.com"}, False),
    ],
)
def test_a_resource_s_policy_allows_the_caller_or_its_role_by_name(principal: object, named: bool) -> None:
    decision = decide([policy(allow(Principal=principal))], "s3:GetObject", OBJECT, {}, CALLER)

    assert decision is (ALLOWED if named else IMPLICIT)


@pytest.mark.parametrize("account", ["123456789012", "arn:aws:iam::123456789012:root"])
def test_to_allow_an_account_is_to_leave_the_decision_to_its_policies_and_to_deny_it_is_to_deny_all(
    account: str,
) -> None:
    allowing = policy(allow(Principal={"AWS": account}))
    denying = policy(deny(Principal={"AWS": account}))

    assert decide([allowing], "s3:GetObject", OBJECT, {}, CALLER) is IMPLICIT
    assert delegates(allowing, "s3:GetObject", OBJECT, {}, "123456789012")
    assert not delegates(allowing, "s3:GetObject", OBJECT, {}, "999999999999")
    assert decide([denying], "s3:GetObject", OBJECT, {}, CALLER) is EXPLICIT


def test_a_deny_for_everybody_but_some_spares_them() -> None:
    rule = policy({"Effect": "Deny", "NotPrincipal": {"AWS": CALLER.role_arn}, "Action": "*", "Resource": "*"})

    assert decide([rule], "s3:GetObject", OBJECT, {}, CALLER) is IMPLICIT
    assert decide([rule], "s3:GetObject", OBJECT, {}, Principal("arn:aws:iam::1:user/u", "", "1")) is EXPLICIT


@pytest.mark.parametrize(
    "document",
    [
        "{",
        '{"Statement": {"Effect": "Allow", "Resource": "*"}}',
        '{"Statement": {"Effect": "Permit", "Action": "*", "Resource": "*"}}',
        '{"Statement": {"Effect": "Allow", "Actions": "*", "Resource": "*"}}',
        '{"Statement": {"Effect": "Allow", "Action": "*", "Condition": {"DateLessThan": {"aws:x": "2020-01-01"}}}}',
        '{"Statement": {"Effect": "Allow", "Action": "*", "Condition": {"StringEquals": {"a": "${aws:username}"}}}}',
    ],
)
def test_what_is_not_understood_is_an_error_and_not_a_permission(document: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_policy(document)


ACTIONS = st.sampled_from(["s3:PutObject", "s3:GetObject", "glue:GetTable"])
STATEMENTS = st.builds(
    lambda effect, action, resource: {"Effect": effect, "Action": action, "Resource": resource},
    st.sampled_from(["Allow", "Deny"]),
    st.one_of(ACTIONS, st.sampled_from(["*", "s3:*", "s3:Put*"])),
    st.sampled_from(["*", OBJECT, "arn:aws:s3:::lake/*", "arn:aws:s3:::other/*"]),
)


@given(st.lists(STATEMENTS, max_size=5), ACTIONS, st.randoms())
def test_order_and_number_of_policies_do_not_matter(
    statements: list[Mapping[str, Any]], action: str, random: Any
) -> None:
    shuffled = random.sample(statements, len(statements))

    together = decide([policy(*statements)], action, OBJECT, {})

    assert decide([policy(statement) for statement in shuffled], action, OBJECT, {}) is together


@given(st.lists(STATEMENTS, max_size=5), STATEMENTS, ACTIONS)
def test_one_more_statement_never_undoes_a_deny(
    statements: list[Mapping[str, Any]], another: Mapping[str, Any], action: str
) -> None:
    before = decide([policy(*statements)], action, OBJECT, {})
    after = decide([policy(*statements, another)], action, OBJECT, {})

    assert before is not EXPLICIT or after is EXPLICIT
    assert another["Effect"] == "Deny" or before is not ALLOWED or after is ALLOWED


@given(st.text(alphabet="ab/*?:.[", max_size=8))
def test_a_text_without_wildcards_matches_itself_alone(text: str) -> None:
    literal = text.replace("*", "x").replace("?", "y")

    assert resource_matches(f"arn:aws:s3:::{literal}", f"arn:aws:s3:::{literal}")
    assert not resource_matches(f"arn:aws:s3:::{literal}", f"arn:aws:s3:::{literal}z")
