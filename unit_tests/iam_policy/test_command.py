"""The command line of `iam-policy`: what goes to standard output, what beside it, and the exit code."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from destination_datalake.iam_policy.command import run_iam_policy
from unit_tests.config.examples import ROLE, options
from unit_tests.iam_policy.examples import ACCOUNT, ANALYST, LOCATION_ROLE

GOVERNED = {
    "mode": "hybrid",
    "registration_role_arn": LOCATION_ROLE,
    "tags": {"domain": ["sales", "support"]},
    "grants": [{"principal": ANALYST, "permissions": ["SELECT"], "table": "*"}],
}
ALL_TABLES = {"Table": {"DatabaseName": "raw", "TableWildcard": {}}}
CATALOG = {
    "streams": [
        {
            "stream": {"name": "orders", "namespace": "shop", "json_schema": {}},
            "sync_mode": "full_refresh",
            "destination_sync_mode": "append",
        }
    ]
}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command with options and arguments; return the exit code, standard output and standard error."""

    def run(*arguments: str, **changes: Any) -> tuple[int, str, str]:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(options(**{"aws_account_id": ACCOUNT, "bucket_prefix": "airbyte"} | changes)))
        code = run_iam_policy(["--config", str(path), *arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    path = tmp_path / "catalog.json"
    path.write_text(json.dumps(CATALOG))
    return str(path)


def test_standard_output_is_a_policy_document_and_nothing_else(run: Run) -> None:
    code, out, _ = run(lake_formation=GOVERNED, credentials=ROLE)

    document = json.loads(out)
    assert (code, document["Version"]) == (0, "2012-10-17")
    assert {statement["Effect"] for statement in document["Statement"]} == {"Allow"}


@pytest.mark.parametrize(
    ("changes", "resource", "has_note"),
    [
        ({"aws_account_id": None}, "arn:aws:glue:eu-west-1:*:database/raw", True),
        ({"aws_account_id": None, "glue_catalog_id": ACCOUNT}, f"arn:aws:glue:eu-west-1:{ACCOUNT}:catalog", False),
        ({"aws_account_id": None, "catalog": {"type": "rest", "uri": "https://x"}}, "arn:aws:s3:::lake", False),
    ],
)
def test_an_account_that_no_option_names_is_any_in_the_policy_and_a_note(
    run: Run, changes: dict[str, Any], resource: str, has_note: bool
) -> None:
    code, out, err = run(**changes)

    assert code == 0
    assert resource in {arn for statement in json.loads(out)["Statement"] for arn in statement["Resource"]}
    assert ("the account of the Glue Data Catalog is unknown" in err) == has_note


def test_the_grants_are_printed_beside_the_policy_where_lake_formation_governs(run: Run) -> None:
    _, _, ungoverned = run(credentials=ROLE)
    _, _, governed = run(credentials=ROLE, lake_formation=GOVERNED)
    _, grants, _ = run("--grants", credentials=ROLE, lake_formation=GOVERNED)

    assert "grant-permissions" not in ungoverned
    assert governed.endswith(f"must grant these Lake Formation permissions:\n{grants}")


def test_grants_are_commands_for_a_shell(run: Run) -> None:
    _, out, _ = run("--grants", credentials=ROLE, lake_formation=GOVERNED, glue_catalog_id="210987654321")

    granted = [_parsed(line) for line in out.splitlines()]
    option = "--permissions-with-grant-option"
    tagging = ["ALTER", "CREATE_TABLE", "DESCRIBE", "DROP"]
    assert [
        (json.loads(command["--resource"][0]), command["--permissions"], command.get(option)) for command in granted
    ] == [
        ({"Catalog": {}}, ["CREATE_DATABASE"], None),
        ({"Catalog": {}}, ["CREATE_LF_TAG"], None),
        ({"DataLocation": {"ResourceArn": "arn:aws:s3:::lake/airbyte"}}, ["DATA_LOCATION_ACCESS"], None),
        ({"Database": {"Name": "raw"}}, ["CREATE_TABLE", "DESCRIBE"], None),
        ({"Database": {"Name": "raw"}}, tagging, tagging),
        (ALL_TABLES, ["ALTER", "DELETE", "DESCRIBE", "INSERT"], None),
        (ALL_TABLES, ["SELECT"], ["SELECT"]),
        ({"LFTag": {"TagKey": "domain", "TagValues": ["*"]}}, ["ALTER", "ASSOCIATE", "DESCRIBE"], None),
    ]
    for command in granted:
        assert command["--catalog-id"] == ["210987654321"]
        assert command["--principal"] == [f"DataLakePrincipalIdentifier={ROLE['role_arn']}"]


def _parsed(line: str) -> dict[str, list[str]]:
    """The values of each option in a command of the AWS CLI."""
    words = shlex.split(line)
    assert words[:3] == ["aws", "lakeformation", "grant-permissions"]
    options: dict[str, list[str]] = {}
    for word in words[3:]:
        if word.startswith("--"):
            option = options[word] = []
        else:
            option.append(word)
    return options


def test_a_principal_may_be_named_and_must_be_where_no_option_tells_it(run: Run) -> None:
    user = f"arn:aws:iam::{ACCOUNT}:user/airbyte"

    code, out, err = run("--grants")
    assert (code, out) == (1, "")
    assert "The connector's user or role is unknown. Set --principal to the ARN of the user or role." in err

    assert f"DataLakePrincipalIdentifier={user}" in run("--grants", "--principal", user)[1]
    assert "Use --principal" in run(lake_formation=GOVERNED)[2]


def test_databases_of_namespaces_come_from_the_catalog_and_without_it_a_note_says_so(run: Run, catalog: str) -> None:
    _, without_catalog, note = run()
    _, with_catalog, no_note = run("--catalog", catalog)

    assert "database/shop" not in without_catalog
    assert "Use --catalog with the configured catalog" in note
    assert f"arn:aws:glue:eu-west-1:{ACCOUNT}:database/shop" in with_catalog
    assert "--catalog" not in no_note


def test_names_that_policies_cannot_hold_are_said_to_widen_it(run: Run) -> None:
    # IAM API: policyDocumentType has characters up to ÿ.
    _, out, note = run(bucket_prefix="été/京都")

    assert "arn:aws:s3:::lake/été/*/*" in out
    assert "replaces characters of été/京都" in note


def test_data_locations_are_granted_by_their_names_not_by_wildcards(run: Run) -> None:
    _, out, _ = run("--grants", credentials=ROLE, lake_formation={"mode": "managed"}, bucket_prefix="été/京都")

    assert '"ResourceArn": "arn:aws:s3:::lake/été/京都"' in out


def test_a_policy_that_exceeds_the_limit_is_printed_in_parts(run: Run, tmp_path: Path) -> None:
    streams = [
        {**CATALOG["streams"][0], "stream": {"name": "orders", "namespace": f"namespace_{number}", "json_schema": {}}}
        for number in range(40)
    ]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"streams": streams}))

    _, whole, note = run("--catalog", str(path))
    first, second = (json.loads(run("--catalog", str(path), "--part", str(part))[1]) for part in (1, 2))

    assert "Use --part 1 to --part 2 to print policies within the limit." in note
    assert len(whole) > 6_144
    assert _resources(first) | _resources(second) == _resources(json.loads(whole))
    assert run("--catalog", str(path), "--part", "3")[0] == 1


def _resources(document: dict[str, Any]) -> set[str]:
    return {resource for statement in document["Statement"] for resource in statement["Resource"]}


@pytest.mark.parametrize(
    ("arguments", "changes", "sentence"),
    [
        ((), {"region": "nowhere"}, "region"),
        (("--catalog", "/nowhere/catalog.json"), {}, "The configured catalog file /nowhere/catalog.json cannot be"),
        (("--grants", "--principal", "airbyte"), {}, "arn:aws:iam::123456789012:role/airbyte"),
        (
            ("--grants", "--principal", f"arn:aws:sts::{ACCOUNT}:assumed-role/airbyte/session"),
            {},
            "arn:aws:iam::123456789012:role/airbyte",
        ),
        (("--location", "s3://other/lake"), {}, "--location requires follow_table_location true"),
        (("--location", "other/lake"), {"follow_table_location": True}, "such as s3://bucket/folder"),
        (("--location", "s3://other/*"), {"follow_table_location": True}, "which have a special meaning"),
    ],
)
def test_what_is_wrong_is_said_on_standard_error_and_no_policy_is_printed(
    run: Run, arguments: tuple[str, ...], changes: dict[str, Any], sentence: str
) -> None:
    code, out, err = run(*arguments, **changes)

    assert (code, out) == (1, "")
    assert sentence in err


def test_a_configuration_that_is_nested_too_deeply_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a":' * 900 + "1" + "}" * 900)

    assert run_iam_policy(["--config", str(path)]) == 1
    assert "nested too deeply" in capsys.readouterr().err


def test_text_is_in_utf_8_in_any_locale(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(options(aws_account_id=ACCOUNT, bucket_prefix="été")))
    command = [sys.executable, "-m", "destination_datalake.cli", "iam-policy", "--config", str(path)]

    done = subprocess.run(command, env={"PYTHONIOENCODING": "ascii"}, capture_output=True, check=True, timeout=60)

    assert "arn:aws:s3:::lake/été/*" in done.stdout.decode()


def test_a_wrong_command_line_exits_with_2(run: Run) -> None:
    with pytest.raises(SystemExit) as exited:
        run("--frobnicate")

    assert exited.value.code == 2


def test_no_secret_is_printed(run: Run) -> None:
    _, out, err = run(lake_formation=GOVERNED)

    assert "s3cr3t" not in out + err


def test_the_console_script_answers_in_plain_text_without_cdk_or_spark(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(options(aws_account_id=ACCOUNT)))
    program = (
        "import sys; from destination_datalake.cli import run; code = run(); "
        "assert not {'airbyte_cdk', 'pyspark', 'pyiceberg', 'boto3'} & set(sys.modules); sys.exit(code)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "iam-policy", "--config", str(path)],
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["Version"] == "2012-10-17"
