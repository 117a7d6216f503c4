"""The command `write` as platforms call it, which does without the CDK."""

from __future__ import annotations

import subprocess
import sys


def test_what_a_write_imports_is_without_the_cdk() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, destination_datalake.cli, destination_datalake.write, destination_datalake.sync.conductor,"
            " destination_datalake.tables.iceberg.table, destination_datalake.tables.hive.table;"
            " print({'airbyte_cdk'} & set(sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert loaded.stdout == "set()\n"
