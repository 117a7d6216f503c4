"""The AWS CLI for a shell: `aws` in a process of its own each time, forked from one that has loaded it.

What it is asked about CloudFormation goes to another command, `aws-cloudformation`.
"""

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration_tests.documentation.commands import Call, listen, put, serve

_AWS = """#!/bin/sh
case "$1" in
cloudformation) shift; exec aws-cloudformation "$@" ;;
*) exec aws-cli "$@" ;;
esac
"""


@contextmanager
def aws_cli(folder: Path) -> Iterator[None]:
    """Put the command into `folder`, and answer it as long as this lasts."""
    with tempfile.TemporaryDirectory() as home:
        address = f"{home}/aws"
        process = subprocess.Popen(
            [sys.executable, "-m", "integration_tests.documentation.aws_cli", address],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline(), "the AWS CLI did not load"
            put(folder, "aws-cli", address)
            script = folder / "aws"
            script.write_text(_AWS)
            script.chmod(0o755)
            yield
        finally:
            process.kill()
            process.communicate()


def _run(call: Call) -> int:
    """Be the AWS CLI in a fork."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 255
    try:
        for descriptor, stream in enumerate((call.stdin, call.stdout, call.stderr)):
            os.dup2(stream.fileno(), descriptor)
        os.chdir(call.folder)
        # Where it keeps its own data it has said in its environment when it was loaded.
        variables = {**call.environment, "AWS_DATA_PATH": os.environ["AWS_DATA_PATH"]}
        os.environ.clear()
        os.environ.update(variables)
        sys.argv = ["aws", *call.arguments]

        from awscli.clidriver import main  # type: ignore[import-untyped]

        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(address: str) -> None:
    from awscli.clidriver import create_clidriver

    # What loads with the first command of a service.
    for service in ("glue", "iam", "lakeformation", "s3"):
        create_clidriver().session.create_client(service, "us-east-1")
    listener = listen(address)
    print("ready", flush=True)  # noqa: T201
    serve(listener, {"aws-cli": _run})


if __name__ == "__main__":
    _serve(*sys.argv[1:])
