"""The pages for users: where they are, that they lead to one another, and that what they tell to set can be set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from destination_datalake.config.options import Config
from destination_datalake.schema.names import AWS_DATALAKE
from destination_datalake.tables.naming import TableNaming

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))

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
THEIRS: dict[str, Any] = {
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
    "lakeformation_database_default_tag_key": None,
    "lakeformation_database_default_tag_values": "",
    "lakeformation_governed_tables": False,
    "format": {"format_type": "Parquet", "compression_codec": "GZIP"},
    "partitioning": "NO PARTITIONING",
    "glue_catalog_float_as_decimal": False,
}


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


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


def test_the_documentation_s_address_is_airbyte_s_for_this_connector() -> None:
    metadata = yaml.safe_load(text("metadata.yaml"))["data"]
    name = metadata["dockerRepository"].rpartition("/")[2].removeprefix("destination-")

    assert metadata["documentationUrl"] == f"https://docs.airbyte.com/integrations/destinations/{name}"


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\[(\w+\.md)\]\(\1\)", text("docs/index.md")))

    assert listed == {page.name for page in PAGES} - {"index.md"}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_a_page_s_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


def to_add() -> dict[str, Any]:
    """What docs/migrating.md tells to add to a configuration."""
    [block] = re.findall(r"```json\n(.+?)```", text("docs/migrating.md"), re.DOTALL)
    added: dict[str, Any] = json.loads(block)
    return added


def test_what_the_page_on_migrating_adds_goes_on_with_aws_datalake_s_tables() -> None:
    config = Config.parse({**THEIRS, **to_add()})

    assert (config.table_type, config.numeric_types, config.format.compression_codec) == (
        "HIVE",
        "bigint/double",
        "GZIP",
    )
    assert TableNaming.of(config) == TableNaming("landing", "namespace", "", AWS_DATALAKE)


def test_with_decimals_the_page_on_migrating_leaves_an_option_out() -> None:
    added = {name: value for name, value in to_add().items() if name != "numeric_types"}

    assert Config.parse({**THEIRS, **added, "glue_catalog_float_as_decimal": True}).numeric_types == "decimal"


def test_the_page_on_migrating_tells_of_every_option() -> None:
    table = text("docs/migrating.md").partition("## Option by option")[2].partition("\n## ")[0]
    shortened = table.replace("`…_tag_values`", "`lakeformation_database_default_tag_values`")

    assert [name for name in THEIRS if f"`{name}`" not in shortened] == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lakeformation_database_default_tag_key", "level"),
        ("lakeformation_governed_tables", True),
        ("partitioning", "DATE"),
        ("region", ""),
        ("bucket_prefix", ".."),
        ("lakeformation_database_name", "my.lake"),
    ],
)
def test_what_the_page_on_migrating_calls_refused_is_refused(option: str, value: object) -> None:
    with pytest.raises(Exception, match=option):
        Config.parse({**THEIRS, **to_add(), option: value})
