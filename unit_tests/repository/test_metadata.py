"""One version, one name, one licence, and what the platform reads."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from unit_tests.repository.files import text

ENTRYPOINT = "/opt/destination-datalake/bin/destination-datalake"


def test_every_file_that_names_the_version_names_the_same(project: dict[str, Any], metadata: dict[str, Any]) -> None:
    newest_in_changelog = re.search(r"^## \[([^]]+)]", text("CHANGELOG.md"), re.MULTILINE)
    image_label = re.search(r'^LABEL io\.airbyte\.version="([^"]+)"', text("Dockerfile"), re.MULTILINE)

    assert newest_in_changelog is not None
    assert image_label is not None
    assert {
        "metadata.yaml": metadata["dockerImageTag"],
        "CHANGELOG.md": newest_in_changelog[1],
        "Dockerfile": image_label[1],
    } == dict.fromkeys(("metadata.yaml", "CHANGELOG.md", "Dockerfile"), project["version"])


def test_the_licence_is_the_same_for_python_and_for_airbyte(project: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert project["license"] == metadata["license"] == "MIT"
    assert text("LICENSE").startswith("MIT License")


def test_the_console_script_has_the_name_of_the_image(project: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert project["name"] == metadata["dockerRepository"].rpartition("/")[2] == Path(ENTRYPOINT).name
    assert project["name"] in project["scripts"]


def test_the_documentation_has_one_address(metadata: dict[str, Any]) -> None:
    spec = json.loads(text("destination_datalake/spec.json"))

    assert spec["documentationUrl"] == metadata["documentationUrl"]
    assert spec["documentationUrl"].startswith("https://")


def test_the_platform_sees_an_alpha_data_lake_destination_that_supports_refreshes(metadata: dict[str, Any]) -> None:
    expected = {
        "connectorType": "destination",
        "connectorSubtype": "datalake",
        "releaseStage": "alpha",
        "supportsRefreshes": True,
    }

    assert {key: metadata[key] for key in expected} == expected
    assert {"language:python", "cdk:python"} <= set(metadata["tags"])
    assert all(re.fullmatch(r"[a-z]+:[a-z]+", tag) for tag in metadata["tags"])


@pytest.mark.parametrize("key", ["name", "githubIssueLabel", "documentationUrl", "dockerRepository", "supportLevel"])
def test_metadata_has_every_text_that_the_registry_asks_for(metadata: dict[str, Any], key: str) -> None:
    assert metadata[key]


def test_the_definition_id_is_a_uuid_and_never_changes(metadata: dict[str, Any]) -> None:
    assert uuid.UUID(metadata["definitionId"]) == uuid.UUID("acf5d236-bf20-4f77-86ce-f25a3fca208b")


@pytest.mark.parametrize("job", ["check_connection", "sync"])
def test_a_job_asks_for_memory_within_its_limit(metadata: dict[str, Any], job: str) -> None:
    requirements = {
        entry["jobType"]: entry["resourceRequirements"] for entry in metadata["resourceRequirements"]["jobSpecific"]
    }[job]

    assert 0 < mebibytes(requirements["memory_request"]) <= mebibytes(requirements["memory_limit"])


def mebibytes(quantity: str) -> int:
    units = {"Mi": 1, "Gi": 1024}
    return int(quantity[:-2]) * units[quantity[-2:]]


def test_the_platform_lets_the_connector_reach_aws_and_the_configured_endpoint(metadata: dict[str, Any]) -> None:
    assert {"*.amazonaws.com", "${endpoint_url}"} <= set(metadata["allowedHosts"]["hosts"])


def test_the_icon_is_a_square_drawing(metadata: dict[str, Any]) -> None:
    icon = ElementTree.fromstring(text(metadata["icon"]))
    _, _, width, height = icon.attrib["viewBox"].split()

    assert icon.tag == "{http://www.w3.org/2000/svg}svg"
    assert width == height
    assert icon.attrib["width"] == icon.attrib["height"]
