"""`spec` through the command line."""

import os
import subprocess
import sys

from integration_tests.harness.runs.launch import COMMAND
from integration_tests.harness.runs.platform import Platform


def test_spec_answers_with_exactly_one_message(container: Platform) -> None:
    run = container.spec()

    assert run.exit_code == 0
    assert [message.type for message in run.messages] == ["SPEC"]
    assert set(run.spec["supported_destination_sync_modes"]) == {"overwrite", "append", "append_dedup"}


def test_spec_loads_neither_the_cdk_nor_spark_nor_aws() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", COMMAND, "spec"], capture_output=True, text=True, check=True
    )
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}

    assert loaded.isdisjoint({"airbyte_cdk", "pydantic", "pyspark", "boto3", "pandas", "pyarrow", "pyiceberg"})


def test_a_command_line_that_makes_no_sense_says_nothing_on_stdout_and_explains_itself_on_stderr() -> None:
    done = subprocess.run([COMMAND, "frobnicate"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert "invalid choice: 'frobnicate'" in done.stderr
    assert "iam-policy" in done.stderr, "the parser of the CDK does not know this command"


def test_no_command_at_all_is_a_failure_in_the_protocol_s_terms() -> None:
    done = subprocess.run([COMMAND], capture_output=True, text=True, check=False, env={**os.environ})

    assert done.returncode == 1
    assert '"type":"TRACE"' in done.stdout
    assert "No command entered" in done.stdout
