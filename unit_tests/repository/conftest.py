"""What several of these tests read: the project, the platform's metadata, the connector's options."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from unit_tests.repository.files import text


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    parsed: dict[str, Any] = tomllib.loads(text("pyproject.toml"))["project"]
    return parsed


@pytest.fixture(scope="module")
def metadata() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(text("metadata.yaml"))["data"]
    return parsed


@pytest.fixture(scope="module")
def connection_specification() -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(text("destination_datalake/spec.json"))["connectionSpecification"]
    return parsed
