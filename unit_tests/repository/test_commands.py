"""The commands and statements of the tutorial and the how-to guides: each is run by a test, or listed with a reason.

What another system has to run is at least parsed: SQL in the dialect of its engine, and commands by bash.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import sqlglot
import yaml
from mkdocs.config import load_config
from sqlglot import exp

from destination_datalake.config.options import Config
from destination_datalake.reports.command import run_health
from integration_tests.documentation.blocks import Block, block, blocks
from unit_tests.repository.files import text
from unit_tests.repository.test_documentation import AWS_DATALAKE_OPTIONS
from unit_tests.repository.test_site import SITE, pages_in

Json = dict[str, Any]

LANGUAGES = ("sh", "sql", "spark-sql", "python", "duckdb", "spark")


@dataclass(frozen=True)
class NotRun:
    """Why no test runs a block. `dialects` are those in which its SQL must parse."""

    reason: str
    dialects: Sequence[str] = ()


DOCKER = NotRun("needs a Docker engine; `make image-test` follows the Dockerfile in a chroot")
EXTENSIONS = NotRun("DuckDB downloads the extensions, and Glue's REST endpoint is AWS's")
ICEBERG_SCAN = NotRun("DuckDB downloads the extension; `make test-all` reads tables with it", ["duckdb"])
AIRBYTE = NotRun("needs Airbyte")
KUBERNETES = NotRun("needs a cluster; the manifests are checked below")
STACK = NotRun("CloudFormation; integration_tests/infra and the page on Lake Formation deploy the same templates")

HOW_TO = "integration_tests/documentation/test_how_to.py"
DEMO = "integration_tests/test_demo.py"
ENGINES = "integration_tests/engines/test_how_to.py"
ROLLBACK = "integration_tests/engines/test_rollback.py"
QUERIES = "integration_tests/test_queries.py"
CLIENTS = "integration_tests/clients/test_orchestrators.py"

_PRUNED = f"{QUERIES}::test_a_condition_on_partition_keys_opens_the_files_of_their_partitions_alone"
_FOUND = f"{QUERIES}::test_the_statements_of_the_page_find_the_rows"
_TUTORIAL = f"{DEMO}::test_the_tutorial_s_statements_print_its_tables"
_CONFIG_FILE = f"{HOW_TO}::test_a_configuration_from_airbyte_s_api_is_one_for_commands"
_OWN_BUCKET = f"{HOW_TO}::test_the_tutorial_writes_a_record_to_a_bucket"
_REGISTERED = f"{HOW_TO}::test_a_dropped_table_is_registered_again_and_the_next_sync_continues_it"
_REPLAYED = f"{HOW_TO}::test_a_dropped_table_is_replayed_from_the_archive"
_RETYPED = f"{HOW_TO}::test_the_archive_gives_a_table_with_the_types_of_other_options"
_ROLLBACK_COMMANDS = f"{HOW_TO}::test_commands_find_the_sync_to_roll_back_and_report_the_rollback"
_POLICY = f"{HOW_TO}::test_the_printed_policy_is_attached_and_the_role_is_checked"
_CLUSTER = f"{HOW_TO}::test_the_policy_of_executors_is_printed_and_the_setup_is_checked"

Row = tuple[str, str, str | NotRun]

TABLE: Mapping[str, Sequence[Row]] = {
    "docs/tutorial/first-query.md": [
        ("2. Run the demo", "sh", _TUTORIAL),
        ("4. Query the tables", "sql", _TUTORIAL),
        ("4. Query the tables", "sql", _TUTORIAL),
        ("4. Query the tables", "sql", _TUTORIAL),
        ("5. Change something", "sh", f"{DEMO}::test_the_tutorial_s_other_demos_succeed"),
        ("6. Get the command `destination-datalake`", "sh", _OWN_BUCKET),
        ("6. Get the command `destination-datalake`", "sh", DOCKER),
        ("7. Write to your own bucket", "sh", _OWN_BUCKET),
        ("7. Write to your own bucket", "sh", _OWN_BUCKET),
        ("8. Query it with Athena", "sh", NotRun("Athena runs the query")),
        ("9. Query it with DuckDB", "sql", EXTENSIONS),
    ],
    "docs/how-to/alerts.md": [
        ("On a host, with cron", "sh", f"{HOW_TO}::test_the_script_of_alerts_publishes_findings_of_an_unhealthy_lake"),
        ("On Kubernetes, beside Airbyte", "sh", KUBERNETES),
        ("On Kubernetes, beside Airbyte", "sh", KUBERNETES),
    ],
    "docs/how-to/change-type.md": [
        (
            "Widen one column of an Iceberg table",
            "spark-sql",
            f"{ENGINES}::test_a_column_is_widened_and_the_next_sync_continues",
        ),
        ("Widen one column of an Iceberg table", "sql", NotRun("Athena", ["athena"])),
        (
            "Change to another kind of type",
            "sql",
            f"{HOW_TO}::test_a_column_of_another_type_and_the_old_one_are_queried_as_one",
        ),
        ("Change to another kind of type", "sh", _RETYPED),
        ("Change to another kind of type", "sh", _RETYPED),
    ],
    "docs/how-to/config-file.md": [
        ("Read the configuration from Airbyte's API", "sh", AIRBYTE),
        ("Read the configuration from Airbyte's API", "sh", _CONFIG_FILE),
        ("Set the credentials", "sh", _CONFIG_FILE),
        ("Check the file", "sh", _CONFIG_FILE),
    ],
    "docs/how-to/deduplicate.md": [
        ("Check the result", "sql", f"{HOW_TO}::test_a_stream_that_was_appended_gets_one_row_for_each_key"),
    ],
    "docs/how-to/kubernetes.md": [
        ("Before you start", "sh", _CLUSTER),
        ("Before you start", "sh", DOCKER),
        ("B1. On a cluster that exists", "sh", NotRun("needs a cluster; `make test-cluster` starts servers itself")),
        ("B2. On EKS, with a manifest", "sh", KUBERNETES),
        ("B2. On EKS, with a manifest", "sh", KUBERNETES),
        ("Check the setup", "sh", _CLUSTER),
    ],
    "docs/how-to/least-privilege.md": [
        ("Print and attach the policy", "sh", _POLICY),
        ("Print and attach the policy", "sh", _POLICY),
        ("Test the role", "sh", _POLICY),
    ],
    "docs/how-to/partition-by-date.md": [
        (
            "An Iceberg table",
            "spark-sql",
            f"{ENGINES}::test_files_are_rewritten_into_new_partitions_and_a_query_opens_theirs_alone",
        ),
        (
            "An Iceberg table",
            "sql",
            f"{HOW_TO}::test_a_query_of_days_reads_the_files_of_new_partitions_of_an_iceberg_table",
        ),
        ("A Hive table", "sql", f"{HOW_TO}::test_a_query_of_days_opens_the_folders_of_a_hive_table_alone"),
    ],
    "docs/how-to/restore-table.md": [
        ("Before you start", "sh", _REGISTERED),
        ("Register the last metadata file", "sh", _REGISTERED),
        ("Register the last metadata file", "sh", _REGISTERED),
        ("Register the last metadata file", "python", _REGISTERED),
        ("Register the last metadata file", "spark-sql", f"{ENGINES}::test_a_dropped_table_is_registered_again"),
        ("Replay the archive", "sh", _REPLAYED),
        ("Replay the archive", "sh", _REPLAYED),
        ("Check the result", "sh", _REPLAYED),
    ],
    "docs/how-to/roll-back.md": [
        ("Find the sync", "sh", _ROLLBACK_COMMANDS),
        (
            "Find the sync",
            "sql",
            "integration_tests/test_rollback.py"
            "::test_syncs_continue_a_table_from_the_snapshot_that_it_was_rolled_back_to",
        ),
        ("Delete the rows of one sync", "sql", f"{ROLLBACK}::test_rows_of_one_sync_are_counted_and_deleted"),
        ("Roll the table back to a snapshot", "sh", _ROLLBACK_COMMANDS),
        (
            "Roll the table back to a snapshot",
            "spark-sql",
            f"{ROLLBACK}::test_syncs_continue_a_table_that_spark_has_rolled_back",
        ),
        (
            "Roll the table back to a snapshot",
            "spark-sql",
            f"{ROLLBACK}::test_syncs_continue_a_table_that_spark_has_rolled_back",
        ),
        ("Roll the table back to a snapshot", "python", _ROLLBACK_COMMANDS),
        ("Check the result", "sh", _ROLLBACK_COMMANDS),
    ],
    "docs/query.md": [
        ("Through the Glue Data Catalog", "sql", _PRUNED),
        ("Through the Glue Data Catalog", "sql", _PRUNED),
        ("Through the Glue Data Catalog", "sql", _PRUNED),
        ("Through the Glue Data Catalog", "sql", NotRun("Redshift", ["redshift"])),
        ("DuckDB with Glue", "sql", EXTENSIONS),
        ("DuckDB with Glue", "sql", ICEBERG_SCAN),
        (
            "The latest row of each key",
            "sql",
            f"{QUERIES}::test_the_statement_for_the_latest_rows_finds_one_for_each_key",
        ),
        ("DuckDB", "duckdb", _FOUND),
        ("DuckDB", "duckdb", _FOUND),
        ("Spark", "spark", _FOUND),
        ("Spark", "spark", _FOUND),
        ("Hive, and Athena with a table of your own", "sql", NotRun("Hive and Athena", ["hive", "athena"])),
        ("Trino", "sql", NotRun("Trino", ["trino"])),
        ("Snowflake", "sql", NotRun("Snowflake", ["snowflake"])),
        ("ClickHouse", "sql", _PRUNED),
    ],
    "docs/erasure.md": [
        ("Erase people: delete-rows", "sh", f"{HOW_TO}::test_people_are_erased_after_a_dry_run"),
    ],
    "docs/operating/orchestrators.md": [
        ("Exit codes", "sh", f"{CLIENTS}::test_the_script_keeps_what_is_acknowledged_and_fails_as_the_connector_does"),
        ("One sync", "sh", f"{CLIENTS}::test_the_script_keeps_what_is_acknowledged_and_fails_as_the_connector_does"),
        ("Dagster", "python", f"{CLIENTS}::test_dagster_materializes_the_asset_and_checks_it"),
        ("Airflow", "python", f"{CLIENTS}::test_airflow_runs_the_sync_and_fails_if_a_table_is_unhealthy"),
    ],
    "infra/README.md": [
        ("Deploy", "sh", STACK),
        ("Configure", "sh", STACK),
        ("Namespaces", "sh", STACK),
        ("Events beside syncs", "sql", NotRun("Firehose writes one of the tables", ["athena", "spark", "duckdb"])),
    ],
}
"""The blocks of each page, in order, and the test that runs each; a page that has none is not listed."""

FOLLOWED = {"docs/lake-formation.md": "integration_tests/documentation/test_lake_formation.py::test_the_page"}
"""Pages of which a test runs every block of commands."""

NOT_OPTIONS = {
    ("docs/query.md", "Glue crawlers"),
    ("docs/lake-formation.md", "2. Bucket, key, database, role"),
    ("docs/how-to/alerts.md", "Health on a schedule"),
    ("docs/lake-formation.md", "4. Check and first sync"),
}
"""Sections whose blocks of JSON are not options of the connector."""

NOT_SQLGLOT_S = ("CALL ", "CREATE EXTERNAL SCHEMA ", "MSCK REPAIR TABLE ")
"""Statements that sqlglot does not parse: how each begins."""


def guides() -> Iterator[str]:
    """Every path in the repository of the tutorial and the how-to guides."""
    navigation = {name: entry for item in load_config(SITE)["nav"] for name, entry in item.items()}
    for page in pages_in([entry for name, entry in navigation.items() if name in ("Tutorial", "How-to guides")]):
        yield page.removeprefix("repository/") if page.startswith("repository/") else f"docs/{page}"


GUIDES = [*guides()]


def commands(page: str) -> Sequence[Block]:
    return [block for block in blocks(page) if block.language in LANGUAGES]


@pytest.mark.parametrize("page", GUIDES)
def test_every_block_is_run_by_a_test_or_listed(page: str) -> None:
    present = [(block.section, block.language) for block in commands(page)]

    if page in FOLLOWED:
        assert {language for _, language in present} == {"sh"}
    else:
        assert present == [(section, language) for section, language, _ in TABLE.get(page, ())]


@pytest.mark.parametrize(
    ("page", "test"),
    sorted({(page, test) for page, rows in TABLE.items() for *_, test in rows if isinstance(test, str)})
    + sorted(FOLLOWED.items()),
)
def test_a_test_that_is_named_exists_and_reads_the_page(page: str, test: str) -> None:
    file, _, name = test.partition("::")

    assert re.search(rf"^def {name}\(", text(file), re.MULTILINE)
    assert page.rpartition("/")[2] in text(file)


NOT_RUN = [
    pytest.param(block, row[2], id=f"{page.rpartition('/')[2]}-{block.line}")
    for page, rows in TABLE.items()
    for block, row in zip(commands(page), rows, strict=False)
    if isinstance(row[2], NotRun)
]


@pytest.mark.parametrize(("block", "listed"), NOT_RUN)
def test_what_no_test_runs_is_correct_in_its_language(
    block: Block, listed: NotRun, caplog: pytest.LogCaptureFixture
) -> None:
    if block.language == "sh":
        subprocess.run(["bash", "-n"], input=block.body, text=True, check=True)
        return
    # It logs what it does not parse.
    caplog.set_level(logging.ERROR, logger="sqlglot")
    for dialect in listed.dialects:
        for statement in block.statements:
            parsed = sqlglot.parse_one(statement, dialect=dialect)
            assert isinstance(parsed, exp.Command) == statement.startswith(NOT_SQLGLOT_S), statement


OPTIONS = [
    pytest.param(block, id=f"{page.rpartition('/')[2]}-{block.line}")
    for page in GUIDES
    for block in blocks(page, language="json")
    if (page, block.section) not in NOT_OPTIONS
]


@pytest.mark.parametrize("block", OPTIONS)
def test_options_of_a_guide_are_accepted(block: Block) -> None:
    options = json.loads(block.body)

    config = Config.parse({**AWS_DATALAKE_OPTIONS, **options})

    for name in options:
        assert name in config.model_fields_set


MANIFESTS = {
    "docs/how-to/alerts.md": "On Kubernetes, beside Airbyte",
    "docs/how-to/kubernetes.md": "B2. On EKS, with a manifest",
}
"""The section of a page that has a manifest for Kubernetes, and the commands that apply it."""


@dataclass(frozen=True)
class Manifest:
    """The objects of a manifest, the template of its pods, and the commands beside it."""

    objects: Sequence[Json]
    pod: Json
    commands: str

    @property
    def container(self) -> Json:
        """The only container of a pod."""
        container: Json
        [container] = self.pod["containers"]
        return container

    def named(self, kind: str) -> set[str]:
        """Return the names of the objects of a kind."""
        return {item["metadata"]["name"] for item in self.objects if item["kind"] == kind}

    def secrets(self) -> set[str]:
        """Return the names of the secrets that the commands create."""
        return set(re.findall(r"create secret generic (\S+)", self.commands))


def manifest(page: str) -> Manifest:
    section = MANIFESTS[page]
    objects: list[Json] = [*yaml.safe_load_all(block(page, section, "yaml").body)]
    [workload] = [item["spec"] for item in objects if item["kind"] in ("CronJob", "Deployment")]
    pod = workload.get("jobTemplate", {"spec": workload})["spec"]["template"]["spec"]
    return Manifest(objects, pod, "".join(step.body for step in blocks(page, section, "sh")))


@pytest.mark.parametrize("page", MANIFESTS)
def test_the_names_of_a_manifest_agree(page: str) -> None:
    checked = manifest(page)

    assert len({item["metadata"]["namespace"] for item in checked.objects}) == 1
    assert checked.pod["serviceAccountName"] in checked.named("ServiceAccount")
    used = {volume["secret"]["secretName"] for volume in checked.pod.get("volumes", [])}
    sources = [variable.get("valueFrom", {}) for variable in checked.container.get("env", [])]
    used |= {source["secretKeyRef"]["name"] for source in sources if "secretKeyRef" in source}
    assert used == checked.secrets()
    filename = re.findall(r"apply --filename (\S+)", checked.commands)
    assert [f"`{name}`" in text(page) for name in filename] == [True]


def test_the_manifest_of_alerts_runs_a_command_of_the_connector(
    project: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    checked = manifest("docs/how-to/alerts.md")
    name, *options = checked.container["args"]
    [mount] = checked.container["volumeMounts"]
    [volume] = checked.pod["volumes"]
    [job] = checked.named("CronJob")

    # 2 would mean that the command line is not valid.
    assert (name, run_health(options)) == ("health", 1)
    assert f"{mount['mountPath']}/config.json" in capsys.readouterr().err
    assert mount["name"] == volume["name"]
    assert checked.container["image"].endswith(f"destination-datalake:{project['version']}")
    assert f"cronjob/{job}" in checked.commands
    assert f'job_name=~"{job}-' in text("docs/how-to/alerts.md")


def test_the_manifest_of_spark_connect_starts_a_server_for_the_options_of_its_page() -> None:
    page = "docs/how-to/kubernetes.md"
    checked = manifest(page)
    by_kind = {item["kind"]: item for item in checked.objects}
    conf = dict(re.findall(r"^--conf=([\w.]+)=(.*)$", "\n".join(checked.container["args"]), re.MULTILINE))
    variables = {variable["name"] for variable in checked.container["env"]}
    [port] = by_kind["Service"]["spec"]["ports"]
    remote = json.loads(block(page, "B1. On a cluster that exists", "json").body)["spark"]["remote"]

    assert by_kind["RoleBinding"]["roleRef"]["name"] in checked.named("Role")
    assert {subject["name"] for subject in by_kind["RoleBinding"]["subjects"]} == {checked.pod["serviceAccountName"]}
    assert {value for key, value in conf.items() if key.endswith("serviceAccountName")} == checked.named(
        "ServiceAccount"
    )
    assert conf["spark.kubernetes.namespace"] == by_kind["Deployment"]["metadata"]["namespace"]
    assert conf["spark.kubernetes.container.image"] == checked.container["image"]
    assert set(re.findall(r"\$\((\w+)\)", " ".join(conf.values()))) == variables - {"SPARK_CONNECT_AUTHENTICATE_TOKEN"}
    labels = by_kind["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert labels == by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == by_kind["Service"]["spec"]["selector"]
    assert port["targetPort"] == int(conf["spark.connect.grpc.binding.port"])
    assert f":{port['port']}/" in remote


def test_every_page_of_the_table_is_a_guide() -> None:
    assert {*TABLE, *FOLLOWED} - {*GUIDES} == set()
