"""awswrangler's imports, Python's environment variables, and moto's UpdateTable."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

IMPORT = "import sys, awswrangler; print('pandas' in sys.modules)"


def test_awswrangler_imports_pandas() -> None:
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORT], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "True\n", ended.stderr


def test_iterating_over_the_environment_fails_when_a_variable_is_removed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAST_OF_ALL", "1")
    variables = iter(os.environ.items())
    next(variables)

    monkeypatch.delenv("LAST_OF_ALL")

    with pytest.raises(KeyError):
        list(variables)


UPDATES = """
import boto3
from moto import mock_aws

with mock_aws():
    glue = boto3.client("glue", "eu-west-1", aws_access_key_id="key", aws_secret_access_key="secret")
    glue.create_database(DatabaseInput={"Name": "shop"})
    glue.create_table(DatabaseName="shop", TableInput={"Name": "orders"})
    version = glue.get_table(DatabaseName="shop", Name="orders")["Table"]["VersionId"]
    for owner in ("one", "other"):
        glue.update_table(DatabaseName="shop", TableInput={"Name": "orders", "Owner": owner}, VersionId=version)
    print(glue.get_table(DatabaseName="shop", Name="orders")["Table"]["Owner"])
"""


def test_moto_updates_a_table_whose_version_is_not_the_one_given() -> None:
    # In a process of its own, as other tests mend moto in theirs.
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", UPDATES], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "other\n", ended.stderr
