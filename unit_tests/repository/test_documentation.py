"""The pages for users: where they are, that they lead to one another, and that what they tell to set can be set."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from destination_datalake.config.options import Config
from destination_datalake.config.tables import PartitioningUnits
from destination_datalake.iam_policy.command import run_iam_policy
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.names import AWS_DATALAKE
from destination_datalake.schema.types import NumericTypes
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation, TableNaming
from docs.generator import pages as generator
from docs.generator.layouts import table_level
from docs.generator.project import licence, packages
from integration_tests.documentation.blocks import blocks
from unit_tests.repository.files import PAGES, ROOT, text

# The layout of a page on docs.airbyte.com (Airbyte: connector documentation guide, and its linter).
SECTIONS = (
    "Prerequisites",
    "Setup guide",
    "Supported sync modes",
    "Data type map",
    "Limitations & Troubleshooting",
    "Changelog",
)

# Every option of AWS Datalake with a value other than its default, where there is one that is accepted.
AWS_DATALAKE_OPTIONS: dict[str, Any] = {
    "aws_account_id": "123456789012",
    "credentials": {
        "credentials_title": "IAM User",
        "aws_access_key_id": "an id",
        "aws_secret_access_key": "a secret",
    },
    "region": "eu-west-1",
    "bucket_name": "lake",
    "bucket_prefix": "raw/",
    "lakeformation_database_name": "Landing",
    "lakeformation_database_default_tag_key": "level",
    "lakeformation_database_default_tag_values": "private,public",
    "lakeformation_governed_tables": True,
    "format": {"format_type": "Parquet", "compression_codec": "GZIP"},
    "partitioning": "NO PARTITIONING",
    "glue_catalog_float_as_decimal": False,
}


def test_the_connector_s_page_has_airbyte_s_layout() -> None:
    page = text("docs/destination.md")
    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    title = yaml.safe_load(text("metadata.yaml"))["data"]["name"]

    assert page.startswith(f"# {title}\n")
    assert [heading for heading in headings if heading in SECTIONS] == [*SECTIONS]
    for section in ("Limitations & Troubleshooting", "Changelog"):
        body = page.partition(f"## {section}\n")[2].strip()
        assert body.startswith("<details>\n<summary>Expand to review</summary>")
    assert page.count("<details>") == page.count("</details>") == 2


def test_the_documentation_s_address_exists_without_an_entry_in_airbyte_s_registry() -> None:
    metadata = yaml.safe_load(text("metadata.yaml"))["data"]

    assert metadata["documentationUrl"] == "https://docs.airbyte.com/integrations/custom-connectors"


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", text("docs/index.md")))
    folder = ROOT / "docs"

    assert listed == {
        page.relative_to(folder).as_posix()
        for page in PAGES
        if page.is_relative_to(folder) and page.name != "index.md" and not page.name[0].isdigit()
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_s_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", ["README.md", "docs/code/rooms.md", "CONTRIBUTING.md"])
def test_every_file_of_the_connector_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`((?:\w+/)*(?:\w+\.py|spec\.json|[a-z]\w*/))`", text(page))
    package = ROOT / "destination_datalake"
    # A row about a room names the room's modules without it.
    homes = (ROOT, ROOT / "integration_tests", package, *(path for path in package.rglob("*") if path.is_dir()))

    assert [name for name in named if not any((home / name).exists() for home in homes)] == []


def test_every_log_line_on_the_page_of_log_lines_is_in_the_code() -> None:
    cells = re.findall(r"^\| (`.+?) \|", text("docs/operating/log.md"), re.MULTILINE)
    quoted = [part for cell in cells for line in re.findall(r"`([^`]+)`", cell) for part in line.split("…")]
    parts = [part.strip() for part in quoted if part.strip()]
    code = " ".join(string for path in (ROOT / "destination_datalake").rglob("*.py") for string in strings_in(path))

    assert len(parts) > 20
    assert [part for part in parts if part not in code] == []


def strings_in(path: Path) -> Iterator[str]:
    """Every string of a module, and every part of an f-string between what it inserts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_room_has_a_row_on_the_page_of_rooms() -> None:
    package = ROOT / "destination_datalake"
    rooms = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    rooms |= {path.name for path in package.glob("*.py") if path.name != "__init__.py"}
    rows = "".join(re.findall(r"^\| (`.+?) \|", text("docs/code/rooms.md"), re.MULTILINE))

    assert rooms - set(re.findall(r"`([\w.]+/?)`", rows)) == set()


def names_in(option: dict[str, Any]) -> Iterator[str]:
    """Every option inside an option."""
    for choice in option.get("oneOf", [option.get("items", option)]):
        for name, inner in choice.get("properties", {}).items():
            yield name
            yield from names_in(inner)


def test_options_are_explained_each_and_no_other(connection_specification: dict[str, Any]) -> None:
    options = text("docs/options.md").partition("`credentials` is one of:")[0]
    explained = re.findall(r"^\| `(\w+)` \|", options, re.MULTILINE)

    assert sorted(explained) == sorted(connection_specification["properties"])
    assert "Only the first four are required." in options
    nested = {name for option in connection_specification["properties"].values() for name in names_in(option)}
    assert nested - set(re.findall(r"\w+", text("docs/options.md"))) == set()
    assert set(explained[:4]) == set(connection_specification["required"])


def test_each_option_has_an_example_that_is_accepted(connection_specification: dict[str, Any]) -> None:
    examples = re.findall(r"^### `(\w+)`\n\n```json\n(.+?)\n```$", text("docs/options.md"), re.MULTILINE)
    required = {name: AWS_DATALAKE_OPTIONS[name] for name in connection_specification["required"] if name != "format"}

    assert sorted(name for name, _ in examples) == sorted(connection_specification["properties"])
    for name, example in examples:
        options = json.loads(example)
        assert name in options
        assert list(Config.parse({**required, **options}).unknown_options()) == []


def test_the_configuration_in_the_readme_is_one_that_the_platform_and_iam_policy_accept(
    connection_specification: dict[str, Any], tmp_path: Path
) -> None:
    [example] = re.findall(r"```json\n(.*?)```", text("README.md"), re.DOTALL)
    (tmp_path / "config.json").write_text(example)

    jsonschema.validate(json.loads(example), connection_specification)
    assert run_iam_policy(["--config", str(tmp_path / "config.json")]) == 0


def test_the_readme_uses_the_image_of_this_version(project: dict[str, Any]) -> None:
    versions = re.findall(r"destination-datalake:([\w.]+)", text("README.md"))

    assert set(versions) == {project["version"]}


def test_each_dependency_has_its_reason(project: dict[str, Any]) -> None:
    page = text("docs/code/dependencies.md").partition("\n## ")[0]
    explained = re.findall(r"^\| (\w[\w\[\]-]*) \| ", page, re.MULTILINE)
    needed = [re.split(r"[<>=]", dependency)[0] for dependency in project["dependencies"]]

    assert sorted(set(explained) - {"dependency"}) == sorted(needed)


def test_no_package_of_the_image_is_under_the_gpl() -> None:
    licences = {name: licence(name) for name in packages()}

    assert "airbyte-cdk" in licences
    assert [name for name, terms in licences.items() if re.search(r"GPL|General Public", terms)] == []


def test_the_readme_stays_short_enough_to_be_read() -> None:
    assert len(text("README.md").splitlines()) <= 120


def test_the_policy_to_copy_is_valid_json() -> None:
    policy = re.search(r"```json\n(.*?)```", text("docs/permissions.md"), re.DOTALL)

    assert policy is not None
    assert {statement["Effect"] for statement in json.loads(policy[1])["Statement"]} == {"Allow"}


def to_add() -> dict[str, Any]:
    """Return the options that docs/operating/migrating.md adds to a configuration of AWS Datalake."""
    [block, _] = blocks("docs/operating/migrating.md", language="json")
    added: dict[str, Any] = json.loads(block.body)
    return added


def test_what_the_page_on_migrating_adds_goes_on_with_aws_datalake_s_tables() -> None:
    config = Config.parse({**AWS_DATALAKE_OPTIONS, **to_add()})

    assert (config.table_type, config.numeric_types, config.format.compression_codec) == (
        "HIVE",
        "bigint/double",
        "GZIP",
    )
    assert TableNaming.from_config(config) == TableNaming("landing", "namespace", "", AWS_DATALAKE)


def test_the_page_on_migrating_has_the_keys_and_folders_that_the_options_mean() -> None:
    """With the options of the page, for a stream whose cursor is `updatedAt`, and a row of 29 February 2024."""
    section = text("docs/operating/migrating.md").partition("## Partitioned tables")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([A-Z/]+)` \| (.+?) \| `(.+?)/` \|$", section, re.MULTILINE)
    id, schema = StreamId(None, "orders"), {"properties": {"updatedAt": {"type": "string", "format": "date-time"}}}
    values = {"date": 19782, "year": 2024, "month": 2, "day": 29}

    for partitioning, keys, folder in rows:
        config = Config.parse({**AWS_DATALAKE_OPTIONS, **to_add(), "partitioning": partitioning})
        naming = TableNaming.from_config(config)
        location = TableLocation.for_stream(config, id, naming.table_of(id), naming.naming)
        layout = TableLayout(Stream(id, schema, False, None, None, None, ("updatedAt",)), config, location)
        folders = layout.hive_folders(stream_columns(schema, NumericTypes(config.numeric_types), naming.naming))
        assert folders is not None
        assert ", ".join(f"`{key.name}` {glue_type(key.type)}" for key in folders.keys) == keys
        assert folders.folder([values[str(key.field.transform)] for key in folders.keys]) == folder
    expected = set(get_args(PartitioningUnits)) - {"NO PARTITIONING", "YEAR/MONTH/DAY/HOUR", "DAY/HOUR"}
    assert {partitioning for partitioning, _, _ in rows} == expected


def test_with_decimals_the_page_on_migrating_leaves_an_option_out() -> None:
    added = {name: value for name, value in to_add().items() if name != "numeric_types"}

    assert (
        Config.parse({**AWS_DATALAKE_OPTIONS, **added, "glue_catalog_float_as_decimal": True}).numeric_types
        == "int/decimal"
    )


def test_the_page_on_migrating_tells_of_every_option() -> None:
    table = text("docs/operating/migrating.md").partition("## Option by option")[2].partition("\n## ")[0]
    shortened = table.replace("`…_tag_values`", "`lakeformation_database_default_tag_values`")

    assert [name for name in AWS_DATALAKE_OPTIONS if f"`{name}`" not in shortened] == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lakeformation_database_default_tag_values", ""),
        ("region", ""),
        ("bucket_prefix", ".."),
        ("lakeformation_database_name", "my.lake"),
    ],
)
def test_what_the_page_on_migrating_calls_refused_is_refused(option: str, value: object) -> None:
    with pytest.raises(Exception, match=option):
        Config.parse({**AWS_DATALAKE_OPTIONS, **to_add(), option: value})


@pytest.mark.parametrize("page", sorted(generator.PAGES.rglob("*.md")), ids=lambda page: page.name)
def test_a_page_has_the_tables_that_the_rules_make(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert generator.with_tables(text) == text, "run python -m docs.generator"


def test_every_table_stands_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in generator.PAGES.rglob("*.md"))

    assert [name for name in generator.TABLES if f"<!-- table: {name} -->" not in text] == []


@pytest.mark.parametrize(
    ("path_layout", "bucket_prefix", "level"),
    [
        # RudderStack's page on its S3 data lake: 5, and 4 without a prefix.
        ("rudderstack", "prefix", 5),
        ("rudderstack", "", 4),
        ("plain", "", 3),
        ("firehose", "a/b", 5),
        ("segment", "", 5),
    ],
)
def test_a_crawler_is_told_the_level_of_tables_counted_from_the_bucket(
    path_layout: str, bucket_prefix: str, level: int
) -> None:
    assert table_level(path_layout, bucket_prefix) == level
