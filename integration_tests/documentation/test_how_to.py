"""The how-to pages, followed by a user with a lake: their commands are run, and what they promise is there."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer
from pyiceberg.catalog import load_catalog

from integration_tests.documentation.aws_cli import aws_cli
from integration_tests.documentation.blocks import Block, block, blocks
from integration_tests.documentation.commands import answered
from integration_tests.documentation.connector import connector
from integration_tests.documentation.shell import Shell, StepFailed
from integration_tests.documentation.shop import CREDENTIALS, NAMESPACE, STREAM, NamedLake, Shop, environment
from integration_tests.harness.engines.duck import downloaded, scan
from integration_tests.harness.messages import Json, configured_catalog, configured_stream
from integration_tests.harness.rollback import SNAPSHOT
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.warehouse import INSTANT, INTEGER, NUMBER, STRING, object_schema

ALERTS = "docs/how-to/alerts.md"
CHANGE_TYPE = "docs/how-to/change-type.md"
DEDUPLICATE = "docs/how-to/deduplicate.md"
LEAST_PRIVILEGE = "docs/how-to/least-privilege.md"
PARTITION = "docs/how-to/partition-by-date.md"
RESTORE = "docs/how-to/restore-table.md"
ROLL_BACK = "docs/how-to/roll-back.md"
ERASURE = "docs/erasure.md"
CONFIG_FILE = "docs/how-to/config-file.md"
KUBERNETES = "docs/how-to/kubernetes.md"
TUTORIAL = "docs/tutorial/first-query.md"

ARCHIVE: Json = {"enabled": True}


@pytest.fixture(scope="module")
def account(launch: WarmLaunch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AwsServer, Path]]:
    """An account for this module, and a folder with the commands that reach it."""
    path = tmp_path_factory.mktemp("bin")
    commands = {"destination-datalake": connector(launch)}
    with AwsServer() as aws, answered(path, commands):
        yield aws, path


@pytest.fixture(scope="module")
def cli(account: tuple[AwsServer, Path]) -> Iterator[None]:
    """The command `aws`, which takes seconds to load."""
    with aws_cli(account[1]):
        yield


@pytest.fixture
def shop(account: tuple[AwsServer, Path], platform: Platform, tmp_path: Path) -> Shop:
    """An empty account but for the bucket, and a shell."""
    aws, path = account
    home = tmp_path / "home"
    home.mkdir()
    shell = Shell(home, path, environment(aws.endpoint_url))
    shell.save(".aws/credentials", CREDENTIALS)
    shop = Shop(NamedLake(aws.endpoint_url), platform, shell)
    shop.configure()
    return shop


def options(page: str, section: str) -> dict[str, Any]:
    """Return the options that a section says to set."""
    values: dict[str, Any] = json.loads(block(page, section, "json").body)
    return values


ORDER_1, ORDER_2, ORDER_3 = {"id": 1}, {"id": 2}, {"id": 3}


@pytest.mark.slow
@pytest.mark.usefixtures("cli")
def test_a_dropped_table_is_registered_again_and_the_next_sync_continues_it(shop: Shop) -> None:
    shop.configure(raw_archive=ARCHIVE)
    shop.sync({"id": INTEGER}, ORDER_1)
    shop.sync({"id": INTEGER}, ORDER_2)
    snapshot = shop.lake.iceberg_table(NAMESPACE, STREAM).metadata.current_snapshot_id
    shop.drop()

    before = block(RESTORE, "Before you start", "sh")
    listed, files, current, _ = shop.follow(before, *blocks(RESTORE, "Register the last metadata file")[:3])

    assert "metadata.json" in listed
    assert "PRE " in listed, "the archive"
    assert files.count("metadata.json") == 3
    assert current.strip().endswith(str(snapshot))
    assert shop.rows() == [ORDER_1, ORDER_2]
    assert len(shop.lake.iceberg_table(NAMESPACE, STREAM).metadata.snapshots) == 2
    shop.sync({"id": INTEGER}, ORDER_3)
    assert shop.rows() == [ORDER_1, ORDER_2, ORDER_3]


@pytest.mark.slow
def test_a_dropped_table_is_replayed_from_the_archive(shop: Shop) -> None:
    shop.configure(raw_archive=ARCHIVE)
    shop.sync({"id": INTEGER}, ORDER_1)
    shop.sync({"id": INTEGER}, ORDER_2)
    shop.drop()
    beside, instead = blocks(RESTORE, "Replay the archive", "sh")

    shop.follow(beside)

    assert shop.rows("orders__replay") == [ORDER_1, ORDER_2]
    shop.sync({"id": INTEGER}, ORDER_3)
    shop.follow(instead, block(RESTORE, "Check the result", "sh"))
    assert shop.rows() == [ORDER_1, ORDER_2, ORDER_3]


NUMBERS = {"id": INTEGER, "quantity": INTEGER, "price": NUMBER}


@pytest.mark.slow
def test_numbers_are_wide_from_the_next_sync_on(shop: Shop) -> None:
    shop.sync(NUMBERS, {"id": 1, "quantity": 7, "price": 0.5})
    assert [shop.columns()[name] for name in ("quantity", "price")] == ["int", "float"]

    shop.configure(**options(CHANGE_TYPE, "Make numbers wide from the start"))
    shop.sync(NUMBERS, {"id": 2, "quantity": 2**40, "price": 0.1})

    assert [shop.columns()[name] for name in ("quantity", "price")] == ["bigint", "double"]
    assert [(row["quantity"], row["price"]) for row in shop.rows()] == [(7, 0.5), (2**40, 0.1)]


@pytest.mark.slow
def test_a_column_of_another_type_and_the_old_one_are_queried_as_one(shop: Shop) -> None:
    shop.sync({"id": INTEGER, "amount": STRING}, {"id": 1, "amount": "1.5"}, {"id": 2, "amount": "none"})
    shop.sync({"id": INTEGER, "amount": NUMBER}, {"id": 3, "amount": 2.5})

    with shop.duckdb("orders") as engine:
        engine.execute(block(CHANGE_TYPE, "Change to another kind of type", "sql").body)
        rows = engine.execute("FROM shop.orders_typed ORDER BY id").fetchall()

    assert rows == [(1, 1.5), (2, None), (3, 2.5)]


@pytest.mark.slow
def test_the_archive_gives_a_table_with_the_types_of_other_options(shop: Shop) -> None:
    shop.configure(raw_archive=ARCHIVE)
    shop.sync(NUMBERS, {"id": 1, "quantity": 7, "price": 0.5})
    beside, instead = blocks(CHANGE_TYPE, "Change to another kind of type", "sh")
    shop.configure(numeric_types="int/decimal")

    shop.follow(beside)

    assert shop.columns("orders__replay")["price"] == "decimal(38,18)"
    assert shop.columns()["price"] == "float"
    shop.drop()
    shop.sync(NUMBERS, {"id": 2, "quantity": 8, "price": 0.1})
    shop.follow(instead)
    assert shop.columns()["price"] == "decimal(38,18)"
    assert [str(row["price"]).rstrip("0") for row in shop.rows()] == ["0.5", "0.1"]


DAYS = ("2026-10-15", "2026-10-20", "2026-11-02", "2026-11-03")
ORDERS = [{"id": number, "created_at": f"{day}T12:00:00Z"} for number, day in enumerate(DAYS)]
DATED = {"id": INTEGER, "created_at": INSTANT}


def test_a_query_of_days_reads_the_files_of_new_partitions_of_an_iceberg_table(shop: Shop) -> None:
    shop.sync(DATED, ORDERS[0])
    shop.configure(**options(PARTITION, "An Iceberg table"))
    shop.sync(DATED, *ORDERS[1:])

    with shop.duckdb("orders") as engine:
        rows = engine.execute(block(PARTITION, "An Iceberg table", "sql").body).fetchall()

    assert rows == [(2,)]
    table = shop.lake.iceberg_table(NAMESPACE, STREAM)
    pruned = table.scan(row_filter="created_at >= '2026-11-01T00:00:00+00:00'").plan_files()
    assert [task.file.record_count for task in pruned] == [2]
    assert len([*table.scan().plan_files()]) == 3
    assert shop.rows()[0]["id"] == 0


def test_a_query_of_days_opens_the_folders_of_a_hive_table_alone(shop: Shop) -> None:
    shop.configure(**options(PARTITION, "A Hive table"))
    shop.sync(DATED, *ORDERS, {"id": 4, "created_at": None})
    statement = block(PARTITION, "A Hive table", "sql").body
    location = shop.lake.glue_table(NAMESPACE, STREAM)["StorageDescriptor"]["Location"]

    with downloaded(shop.lake, location.removeprefix(f"s3://{shop.lake.bucket}/")) as folder, shop.duckdb() as engine:
        read = scan(folder, statement.partition(" WHERE ")[2], {"created_at_date": "DATE"})
        files = (
            f"read_parquet('{folder}/**/*.parquet', hive_partitioning = true, hive_types = {{created_at_date: DATE}})"
        )
        engine.execute(f"CREATE VIEW shop.orders AS FROM {files}")
        rows = engine.execute(statement).fetchall()
        [without] = engine.execute("SELECT id FROM shop.orders WHERE created_at IS NULL").fetchall()

    assert rows == [(2,)]
    assert (read.files, read.total_files) == (2, 5)
    assert without == (4,)


@pytest.mark.slow
def test_a_stream_that_was_appended_gets_one_row_for_each_key(shop: Shop) -> None:
    fields = {"id": INTEGER, "name": STRING}
    query = block(DEDUPLICATE, "Check the result", "sql").body
    shop.sync(fields, {"id": 1, "name": "old"}, {"id": 1, "name": "newer"}, {"id": 2, "name": "old"})
    with shop.duckdb("orders") as engine:
        assert engine.execute(query).fetchall() == [(1, 2)]

    shop.configure(**options(DEDUPLICATE, "Enable the mode"))
    shop.sync(fields, {"id": 2, "name": "new"}, key="id")

    with shop.duckdb("orders") as engine:
        assert engine.execute(query).fetchall() == []
    assert shop.rows() == [{"id": 1, "name": "newer"}, {"id": 2, "name": "new"}]


@pytest.mark.slow
@pytest.mark.usefixtures("cli")
def test_the_printed_policy_is_attached_and_the_role_is_checked(shop: Shop) -> None:
    session = boto3.Session(ACCESS_KEY_ID, SECRET_ACCESS_KEY, region_name=REGION)
    iam = session.client("iam", endpoint_url=shop.lake.endpoint_url)
    iam.create_role(RoleName="airbyte", AssumeRolePolicyDocument="{}")
    stream = configured_stream(STREAM, object_schema(id=INTEGER), namespace=NAMESPACE)
    shop.shell.save("catalog.json", json.dumps(configured_catalog(stream)))

    *_, checked = shop.follow(*blocks(LEAST_PRIVILEGE, language="sh"))

    policy = iam.get_role_policy(RoleName="airbyte", PolicyName="data-lake")["PolicyDocument"]
    assert policy == json.loads((shop.shell.folder / "policy.json").read_text())
    assert any(f"table/{NAMESPACE}/*" in arn for statement in policy["Statement"] for arn in statement["Resource"])
    assert "role/airbyte" in (shop.shell.folder / "grants.sh").read_text()
    assert "SUCCEEDED" in checked


@pytest.mark.slow
def test_commands_find_the_sync_to_roll_back_and_report_the_rollback(shop: Shop) -> None:
    shop.sync({"id": INTEGER}, ORDER_1)
    snapshot = shop.lake.iceberg_table(NAMESPACE, STREAM).metadata.current_snapshot_id
    shop.sync({"id": INTEGER}, ORDER_2)
    script = block(ROLL_BACK, "Roll the table back to a snapshot", "python")

    history, health, _ = shop.follow(
        block(ROLL_BACK, "Find the sync", "sh"),
        block(ROLL_BACK, "Roll the table back to a snapshot", "sh"),
        replace(script, body=script.body.replace(SNAPSHOT, str(snapshot))),
    )

    assert history.count("finished") == 2
    assert "orders" in health
    assert shop.rows() == [ORDER_1]
    with pytest.raises(StepFailed, match=r"exit code 1(.|\n)*was rolled back by another writer"):
        shop.follow(block(ROLL_BACK, "Check the result", "sh"))


@pytest.mark.slow
def test_people_are_erased_after_a_dry_run(shop: Shop) -> None:
    fields = {"id": INTEGER, "user_id": INTEGER}
    shop.sync(fields, {"id": 1, "user_id": 735}, {"id": 2, "user_id": 736})
    shop.sync(fields, {"id": 3, "user_id": 735}, {"id": 4, "user_id": None})
    shop.shell.save("ids.txt", "735\n")

    [printed] = shop.follow(block(ERASURE, "Erase people: delete-rows", "sh"))

    assert "Complete: a second search found no object with these rows" in printed
    assert [row["id"] for row in shop.rows()] == [2, 4]
    assert "shop.orders" in (shop.shell.folder / "erased.html").read_text()


@pytest.mark.slow
def test_a_configuration_from_airbyte_s_api_is_one_for_commands(shop: Shop) -> None:
    shop.sync({"id": INTEGER}, ORDER_1)
    masked = {
        "credentials_title": "IAM User",
        "aws_access_key_id": "**********",
        "aws_secret_access_key": "**********",
    }
    shop.shell.save("destination.json", json.dumps({**shop.config, "credentials": masked}))
    labels = blocks(CONFIG_FILE, "Read the configuration from Airbyte's API", "sh")[1]

    printed, _, checked = shop.follow(
        labels, block(CONFIG_FILE, "Set the credentials", "sh"), block(CONFIG_FILE, "Check the file", "sh")
    )

    assert "S3 Bucket Name: bucket_name" in printed
    assert "SUCCEEDED" in checked
    assert "finished" in checked


@pytest.mark.slow
@pytest.mark.usefixtures("cli")
def test_the_script_of_alerts_publishes_findings_of_an_unhealthy_lake(shop: Shop) -> None:
    script = block(ALERTS, "On a host, with cron", "sh")
    region = "eu-central-1"
    session = boto3.Session(ACCESS_KEY_ID, SECRET_ACCESS_KEY, region_name=region)
    sns = session.client("sns", endpoint_url=shop.lake.endpoint_url)
    sqs = session.client("sqs", endpoint_url=shop.lake.endpoint_url)
    topic = sns.create_topic(Name="lake-alerts")["TopicArn"]
    queue = sqs.create_queue(QueueName="alerts")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    shop.shell.save("health.sh", script.body)
    run = Block("", "sh", "bash ./health.sh\n", 1)

    shop.sync({"id": INTEGER}, ORDER_1)
    [healthy] = shop.follow(run)
    shop.configure(bucket_prefix="elsewhere")
    [unhealthy] = shop.follow(run)

    assert topic in script.body
    assert healthy == ""
    assert "MessageId" in unhealthy
    [message] = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    assert "elsewhere" in json.loads(message["Body"])["Message"]


@pytest.mark.slow
def test_the_policy_of_executors_is_printed_and_the_setup_is_checked(shop: Shop) -> None:
    first = blocks(KUBERNETES, "Before you start", "sh")[0]

    policy, checked = shop.follow(first, block(KUBERNETES, "Check the setup", "sh"))

    assert '"Sid": "Objects"' in policy
    assert "SUCCEEDED" in checked


@pytest.mark.slow
def test_the_tutorial_writes_a_record_to_a_bucket(shop: Shop) -> None:
    home = shop.shell.folder
    config = block(TUTORIAL, "7. Write to your own bucket", "json")
    region = json.loads(config.body)["region"]
    shop.lake.s3.delete_bucket(Bucket=shop.lake.bucket)
    shop.lake.s3.create_bucket(Bucket=shop.lake.bucket, CreateBucketConfiguration={"LocationConstraint": region})
    shop.shell.save("config.json", config.body)
    (home / ".venv").mkdir()
    (home / ".venv" / "bin").symlink_to(shop.shell.path)
    path = blocks(TUTORIAL, "6. Get the command `destination-datalake`", "sh")[0]
    lookup = Block("", "sh", "command -v destination-datalake\n", 1)

    _, command, checked, written = shop.follow(path, lookup, *blocks(TUTORIAL, "7. Write to your own bucket", "sh"))

    assert command.strip() == f"{home}/.venv/bin/destination-datalake"
    assert '"Statement"' in checked
    assert "SUCCEEDED" in checked
    assert '"page": 1' in written or '"page":1' in written
    table = load_catalog(
        "tutorial",
        **{"type": "glue", "glue.endpoint": shop.lake.endpoint_url, "glue.region": region},
        **{name.replace("s3.", "glue."): value for name, value in shop.lake.s3_properties.items() if "key" in name},
        **shop.lake.s3_properties,
    ).load_table("landing.users")
    [row] = table.scan().to_arrow().to_pylist()
    assert (row["id"], row["signed_up_at"]) == (1, datetime(2025, 11, 21, 9, 30, tzinfo=UTC))
