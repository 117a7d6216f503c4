"""metadata.yaml against Airbyte's own schema for it, which lies beside Airbyte's messages in the data directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

METADATA = Path(__file__).parents[2] / "metadata.yaml"


def without_ids(schema: Any) -> Any:
    """The schema without the ids of its inlined parts: its references count from the root, whatever those ids say."""
    match schema:
        case dict():
            return {key: without_ids(value) for key, value in schema.items() if key not in ("$id", "$schema")}
        case list():
            return [without_ids(item) for item in schema]
        case _:
            return schema


def test_airbyte_accepts_the_metadata(request: pytest.FixtureRequest) -> None:
    data = Path(request.config.getoption("--airbyte-data"))
    schema = json.loads((data / "reference" / "ConnectorMetadataDefinitionV0.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(without_ids(schema), format_checker=jsonschema.FormatChecker())

    errors = validator.iter_errors(yaml.safe_load(METADATA.read_text(encoding="utf-8")))

    assert [f"{error.json_path}: {error.message}" for error in errors] == []
