"""The command `destination-datalake` for a shell."""

import shutil
from contextlib import suppress

from integration_tests.documentation.commands import Call, Command
from integration_tests.harness.runs.warm import WarmLaunch


def connector(launch: WarmLaunch) -> Command:
    """Return the command `destination-datalake`, started as in other tests: forked, with everything loaded."""

    def run(call: Call) -> int:
        started = launch.with_stdout(call.stdout.fileno()).in_folder(str(call.folder))
        with started(call.arguments, call.environment, call.stderr) as process:
            with suppress(BrokenPipeError):
                shutil.copyfileobj(call.stdin, process.stdin)
                process.stdin.close()
            return process.wait()

    return run
