"""The suite that Airbyte's Python CDK ships for destinations, on this connector's class.

Its tests of the image need Docker and the network and stay out.
"""

import json
import tempfile
from pathlib import Path

import pytest
from airbyte_cdk.test.models import ConnectorTestScenario
from airbyte_cdk.test.standard_tests import DestinationTestSuiteBase

from destination_datalake.destination import DestinationDatalake
from integration_tests.harness.lake import Lake


class TestStandardSuite(DestinationTestSuiteBase):
    """One configuration that works and one that does not, checked and compared with the spec."""

    connector = DestinationDatalake

    @classmethod
    def get_connector_root_dir(cls) -> Path:
        return Path(__file__).parents[3]

    @pytest.fixture(autouse=True)
    def _own_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The suite leaves its files where temporary files go."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    @pytest.fixture(params=["succeed", "failed"])
    def scenario(self, request: pytest.FixtureRequest, lake: Lake, tmp_path: Path) -> ConnectorTestScenario:
        config = lake.config()
        if request.param == "failed":
            config["bucket_name"] = "a-bucket-that-nobody-has"
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return ConnectorTestScenario(config_path=path, status=request.param)


for name in dir(DestinationTestSuiteBase):
    if name.startswith("test_docker"):
        setattr(TestStandardSuite, name, None)
