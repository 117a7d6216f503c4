"""The templates, with every combination of their switches: what is always true of what they would create."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import jsonschema
import pytest

from destination_datalake.config.options import Config
from destination_datalake.config.tables import TAKEN_FOLDERS
from destination_datalake.iam_policy.policy import lake_formation_grants, statements
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.lake_formation.state import Catalog, to_request
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation
from integration_tests.infra.template import RuleBroken, Template, TemplateError, accepts
from unit_tests.infra.resolved import KEY_ARN, READER, Resolved, every_combination, without_catalog
from unit_tests.infra.rules import RULES, Rule, not_retained
from unit_tests.repository.files import ROOT, text

pytestmark = pytest.mark.share(45)

PATH = "infra/cloudformation/datalake.yaml"
PATHS = [PATH, "infra/cloudformation/namespace.yaml"]
TEMPLATE, NAMESPACE = (Template.read(ROOT / path) for path in PATHS)


@pytest.fixture(scope="module")
def combinations() -> list[Resolved]:
    return [*every_combination(TEMPLATE)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_holds_for_every_combination_of_switches(rule: Rule, combinations: list[Resolved]) -> None:
    assert {problem for stack in (*combinations, *every_combination(NAMESPACE)) for problem in rule(stack)} == set()


def test_nothing_that_holds_data_goes_with_its_stack() -> None:
    assert [*not_retained(TEMPLATE.resources), *not_retained(NAMESPACE.resources)] == []


EVERYTHING = {
    "LakeFormationMode": "managed",
    "ReaderPrincipalArn": READER,
    "CreateAthenaWorkGroup": "true",
    "CreateEventStream": "true",
}


@pytest.mark.parametrize(
    ("rule", "original", "mistaken"),
    [
        ("nothing_is_public", "BlockPublicPolicy: true", "BlockPublicPolicy: false"),
        ("nothing_is_public", "BucketOwnerEnforced", "ObjectWriter"),
        ("nothing_is_public", "Principal: {AWS: !Ref TrustedPrincipalArn}", 'Principal: {AWS: "*"}'),
        ("only_tls", 'Action: s3:*\n            Resource: [!GetAtt DataBucket.Arn, !Sub "${DataBucket.Arn}/*"]',
         "Action: s3:*\n            Resource: [!GetAtt DataBucket.Arn]"),
        ("data_never_expires", "Prefix: !Sub ${BucketPrefix}/_staging/", "Prefix: !Sub ${BucketPrefix}/"),
        ("data_never_expires", "            Prefix: !Sub ${BucketPrefix}/_errors/\n", ""),
        ("data_never_expires", "ExpirationInDays: 90", "ExpirationInDays: 9"),
        ("data_never_expires", "Prefix: !Sub ${BucketPrefix}/_raw/", "Prefix: !Sub ${BucketPrefix}/"),
        ("data_never_expires", "DaysAfterInitiation: 7", "DaysAfterInitiation: 70"),
        ("keys_rotate_and_encrypt", "EnableKeyRotation: true", "EnableKeyRotation: false"),
        ("keys_rotate_and_encrypt", "BucketKeyEnabled: true", "BucketKeyEnabled: false"),
        ("keys_rotate_and_encrypt", "EncryptionOption: SSE_KMS", "EncryptionOption: SSE_S3"),
        ("policies_name_resources", "Action: glue:DeleteTable", "Action: glue:*"),
        ("policies_name_resources", "Resource: !GetAtt EventStream.Arn", 'Resource: "*"'),
        ("grants_are_narrow", "Permissions: [CREATE_TABLE, DESCRIBE]", "Permissions: [ALL]"),
        ("grants_are_narrow", "PermissionsWithGrantOption: []", "PermissionsWithGrantOption: [DESCRIBE]"),
        ("roles_know_who_assumes_them", "            Condition: {StringEquals: {\"sts:ExternalId\": !Ref Ext", "#"),
        ("times_are_of_the_calendar", "timestamp:yyyy-MM-dd", "timestamp:YYYY-MM-dd"),
        ("roles_know_who_assumes_them", "            Condition: {StringEquals: {\"aws:SourceAccount\": !Ref AWS", "#"),
        ("deliveries_touch_nothing_of_others", "Action: [s3:AbortMultipartUpload, s3:GetObject, s3:PutObject]",
         "Action: [s3:AbortMultipartUpload, s3:DeleteObject, s3:GetObject, s3:PutObject]"),
        ("errors_lie_apart", "${BucketPrefix}/_errors/!{firehose", "${BucketPrefix}/errors/!{firehose"),
    ],
)  # fmt: skip
def test_a_rule_sees_a_mistake_that_cfn_lint_accepts(rule: str, original: str, mistaken: str) -> None:
    assert original in text(PATH)
    (broken,) = [candidate for candidate in RULES if candidate.__name__ == rule]

    stack = Resolved(Template.parse(text(PATH).replace(original, mistaken, 1)), EVERYTHING)

    assert [*broken(stack)] != []


def test_the_archive_is_kept_for_the_days_of_its_parameter() -> None:
    stack = Resolved(TEMPLATE, {"RawArchiveDays": "90"})

    (bucket,) = stack.of_type("AWS::S3::Bucket").values()
    days = {rule["Id"]: rule.get("ExpirationInDays") for rule in bucket["LifecycleConfiguration"]["Rules"]}
    assert (days["archive"], days["rejects"]) == ("90", 90)


def test_a_resource_that_is_not_retained_is_seen() -> None:
    template = Template.parse(text(PATH).replace("    DeletionPolicy: Retain\n", "", 1))

    assert [*not_retained(template.resources)] == ["DataKey"]


@pytest.mark.parametrize("mode", ["none", "hybrid", "managed"])
@pytest.mark.parametrize("key", ["", KEY_ARN], ids=["new key", "existing key"])
def test_the_role_s_policy_is_what_iam_policy_prints_for_the_configuration(mode: str, key: str) -> None:
    stack = Resolved(TEMPLATE, {"LakeFormationMode": mode, "ExistingKeyArn": key})
    config = Config.parse(json.loads(stack.outputs["Configuration"]))

    printed = [statement.document() for statement in statements(config, Scope.for_config(config))]

    document = stack.properties["ConnectorPolicy"]["PolicyDocument"]
    assert comparable(document["Statement"]) == comparable(printed)


def comparable(policy: Any) -> Any:
    """A policy in one of its forms: a single value is a list of one, and lists have no order."""
    match policy:
        case dict():
            return {key: comparable([value] if isinstance(value, str) else value) for key, value in policy.items()}
        case list() if all(isinstance(element, str) for element in policy):
            return sorted(policy)
        case list():
            return [comparable(element) for element in policy]
        case _:
            return policy


@pytest.mark.parametrize("mode", ["hybrid", "managed"])
def test_the_role_has_the_grants_that_iam_policy_prints_but_for_new_databases(mode: str) -> None:
    stack = Resolved(TEMPLATE, {"LakeFormationMode": mode})

    assert granted(stack) == printed_grants(Config.parse(json.loads(stack.outputs["Configuration"])))


@pytest.mark.parametrize("mode", ["none", "hybrid", "managed"])
def test_the_policies_of_lake_and_namespace_are_what_iam_policy_prints_for_a_stream_of_it(mode: str) -> None:
    lake, namespace, config = stacks(mode)

    printed = [statement.document() for statement in statements(config, Scope.for_config(config, [ORDERS]))]

    documents = [lake.properties["ConnectorPolicy"], namespace.properties["NamespacePolicy"]]
    template_statements = [statement for document in documents for statement in document["PolicyDocument"]["Statement"]]
    assert allowed(template_statements) == allowed(printed)
    assert namespace.properties["NamespacePolicy"]["RoleName"] == "lake-ConnectorRole"


@pytest.mark.parametrize("mode", ["hybrid", "managed"])
def test_lake_and_namespace_grant_what_iam_policy_prints_but_for_new_databases(mode: str) -> None:
    lake, namespace, config = stacks(mode)

    assert granted(lake) | granted(namespace, lake.outputs["RoleArn"]) == printed_grants(config, ORDERS)


ORDERS = StreamId("shop", "orders")


def stacks(mode: str) -> tuple[Resolved, Resolved, Config]:
    """The lake's stack, that of a namespace with the other's outputs as parameters, and the configuration of both."""
    lake = Resolved(TEMPLATE, {"LakeFormationMode": mode})
    outputs = {name: value for name, value in lake.outputs.items() if name in NAMESPACE.sections["Parameters"]}
    config = Config.parse({**json.loads(lake.outputs["Configuration"]), "database_strategy": "namespace"})
    return lake, Resolved(NAMESPACE, {**outputs, "DatabaseName": "shop"}), config


def allowed(policy_statements: Iterable[Mapping[str, Any]]) -> set[tuple[str, str, str]]:
    """Each action on each resource with its condition, however statements group them."""
    return {
        (action, resource, json.dumps(statement.get("Condition", {}), sort_keys=True))
        for statement in map(comparable, policy_statements)
        for action in statement["Action"]
        for resource in statement["Resource"]
    }


def granted(stack: Resolved, role: str | None = None) -> set[tuple[str, ...]]:
    """The grants of a stack, all of them to the connector's role: resources without their catalog, and permissions."""
    grants = stack.of_type("AWS::LakeFormation::PrincipalPermissions").values()
    assert {grant["Principal"]["DataLakePrincipalIdentifier"] for grant in grants} == {role or stack.outputs["RoleArn"]}
    return {(json.dumps(without_catalog(grant["Resource"])), *sorted(grant["Permissions"])) for grant in grants}


def printed_grants(config: Config, *streams: StreamId) -> set[tuple[str, ...]]:
    """The same, as `iam-policy` prints them. The databases exist, and the role has no other."""
    grants = lake_formation_grants(config, Scope.for_config(config, streams))
    return {
        (json.dumps(to_request(grant.resource)), *sorted(grant.permissions))
        for grant in grants
        if not isinstance(grant.resource, Catalog)
    }


@pytest.mark.parametrize("mode", ["hybrid", "managed"])
def test_the_location_is_hybrid_in_that_mode_alone_and_the_database_has_the_first_value_of_the_tag(mode: str) -> None:
    stack = Resolved(TEMPLATE, {"LakeFormationMode": mode, "LFTagKey": "team", "LFTagValues": "internal, public"})

    assert stack.properties["Location"]["HybridAccessEnabled"] is (mode == "hybrid")
    assert stack.properties["Location"]["RoleArn"] == stack.outputs["LocationRoleArn"]
    (tag,) = stack.of_type("AWS::LakeFormation::Tag").values()
    assert tag["TagValues"] == ["internal", "public"]
    (association,) = stack.of_type("AWS::LakeFormation::TagAssociation").values()
    assert [lf_tag["TagValues"] for lf_tag in association["LFTags"]] == [["internal"]]


def test_the_configuration_is_accepted_and_each_of_its_options_is_an_output(combinations: list[Resolved]) -> None:
    spec = json.loads(text("destination_datalake/spec.json"))["connectionSpecification"]
    for stack in {combination.outputs["Configuration"]: combination for combination in combinations}.values():
        configuration = json.loads(stack.outputs["Configuration"])
        jsonschema.validate(configuration, spec)
        assert Config.parse(configuration).unknown_options() == ()

        options = {
            TEMPLATE.sections["Outputs"][name]["Description"]: value
            for name, value in stack.outputs.items()
            if name != "Configuration"
        }
        given = dict(flat(configuration))
        assert {name: options[name] for name in given if name in options} == {
            name: value for name, value in given.items() if name in options
        }
        assert given.keys() - options.keys() == {"credentials.credentials_title", "encryption.encryption_type"}


def flat(configuration: dict[str, object], path: str = "") -> list[tuple[str, object]]:
    """The options by path, such as credentials.role_arn."""
    options: list[tuple[str, object]] = []
    for name, value in configuration.items():
        options += flat(value, f"{path}{name}.") if isinstance(value, dict) else [(f"{path}{name}", value)]
    return options


def test_errors_of_events_lie_in_folders_named_as_those_of_rejects() -> None:
    stack = Resolved(TEMPLATE, {"CreateEventStream": "true"})
    reject_uri = RejectLocation("lake/_errors", "sync", "2026-12-31", "landing", "events").uri("reason", "unit")

    (delivery,) = stack.of_type("AWS::KinesisFirehose::DeliveryStream").values()
    error_prefix = delivery["IcebergDestinationConfiguration"]["S3Configuration"]["ErrorOutputPrefix"]

    assert reject_uri.rpartition("/")[0] + "/" == error_prefix.replace(
        "!{firehose:error-output-type}", "reason"
    ).replace("!{timestamp:yyyy-MM-dd}", "2026-12-31")


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"LFTagKey": "team"}, "LFTagKey"),
        ({"ReaderPrincipalArn": READER}, "ReaderPrincipalArn"),
        ({"RequireEncryptionHeader": "true", "CreateEventStream": "true"}, "RequireEncryptionHeader"),
    ],
)
def test_parameters_that_contradict_each_other_are_refused(parameters: dict[str, str], named: str) -> None:
    with pytest.raises(RuleBroken, match=named):
        Resolved(TEMPLATE, parameters)


RESERVED = {name for name in TAKEN_FOLDERS if re.fullmatch(r"[a-z0-9_]+", name)}
"""The databases whose folders would be others' under bucket_prefix."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("name", "accepted"), [*((folder, False) for folder in sorted(RESERVED)), ("_errors2", True), ("e", True)]
)
def test_no_database_is_made_in_a_folder_in_which_rules_delete(path: str, name: str, accepted: bool) -> None:
    assert accepts(Template.read(ROOT / path).sections["Parameters"]["DatabaseName"], name) is accepted


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("BucketName", "Lake"),
        ("BucketPrefix", "lake/"),
        ("BucketPrefix", "_staging"),
        ("BucketPrefix", "athena-results"),
        ("BucketPrefix", "athena-results/lake"),
        ("DatabaseName", "Landing"),
        ("ExistingKeyArn", "arn:aws:kms:us-east-1:123456789012:alias/lake"),
        ("TrustedPrincipalArn", "*"),
        ("ExternalId", "x"),
        ("LakeFormationMode", "MANAGED"),
        ("RawArchiveDays", "0"),
    ],
)
def test_a_value_that_the_connector_or_aws_would_refuse_is_refused(parameter: str, value: str) -> None:
    with pytest.raises(TemplateError, match=parameter):
        Resolved(TEMPLATE, {parameter: value})


def test_every_parameter_is_in_the_console_s_groups_and_on_the_page() -> None:
    groups = TEMPLATE.sections["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    parameters = TEMPLATE.sections["Parameters"]

    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(parameters)
    page = text("infra/README.md")
    assert [name for name in parameters if f"`{name}`" not in page] == []


@pytest.mark.parametrize("path", PATHS)
def test_the_page_s_command_deploys_the_template(path: str) -> None:
    commands = re.findall(r"```sh\n(aws cloudformation deploy .*?)```", text("infra/README.md"), re.DOTALL)
    (words,) = [shlex.split(command.replace("\\\n", "")) for command in commands if path in command]

    given = dict(word.split("=", 1) for word in words[words.index("--parameter-overrides") + 1 :])
    stack = Resolved(Template.read(ROOT / path), given)

    # Names of one's own would take CAPABILITY_NAMED_IAM.
    assert words[words.index("--capabilities") + 1] == "CAPABILITY_IAM"
    assert [name for name, role in stack.of_type("AWS::IAM::Role").items() if "RoleName" in role] == []


def test_the_template_is_short_enough_to_be_sent_without_a_bucket() -> None:
    """https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html: Template body size."""
    assert len(text(PATH).encode()) <= 51_200
    assert len(TEMPLATE.sections["Description"]) <= 1024


def test_the_terraform_module_deploys_the_templates_that_are_there() -> None:
    module = text("infra/terraform/main.tf")
    choices = re.findall(r'"(\w+)"', re.findall(r"contains\((\[.*?\])", module)[0])

    assert 'template_body = file("${path.module}/../cloudformation/${var.template}.yaml")' in module
    assert sorted(choices) == sorted(path.stem for path in (ROOT / "infra/cloudformation").iterdir())


def test_the_page_s_terraform_has_parameters_that_the_template_accepts() -> None:
    (example,) = re.findall(r"```hcl\n(.*?)```", text("infra/README.md"), re.DOTALL)
    (block,) = re.findall(r"parameters = \{(.*?)\}", example, re.DOTALL)

    Resolved(TEMPLATE, dict(re.findall(r'(\w+) += "(.*)"', block)))


def unusable_defaults(template: str) -> list[str]:
    """The parameters whose Default CloudFormation refuses; cfn-lint does not compare it with their types."""
    parameters = Template.parse(template).sections["Parameters"]
    return [
        name
        for name, parameter in parameters.items()
        if "Default" in parameter and not accepts(parameter, parameter["Default"])
    ]


@pytest.mark.parametrize("template", PATHS)
def test_every_default_of_a_parameter_is_a_value_that_the_parameter_accepts(template: str) -> None:
    assert unusable_defaults(text(template)) == []


@pytest.mark.parametrize(
    ("parameter", "original", "mistaken"),
    [
        ("MaxSessionDuration", "    Default: 3600\n", "    Default: an hour\n"),
        ("MaxSessionDuration", "    Default: 3600\n", "    Default: 360\n"),
        ("BucketPrefix", "    Default: lake\n", "    Default: lake/\n"),
        ("LakeFormationMode", "    Default: none\n", "    Default: off_\n"),
    ],
)
def test_a_default_that_cannot_be_used_is_seen(parameter: str, original: str, mistaken: str) -> None:
    assert unusable_defaults(text(PATH).replace(original, mistaken)) == [parameter]
