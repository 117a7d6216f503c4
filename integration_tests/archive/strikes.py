"""Syncs that something strikes: a kill in a function or at a request, or a PUT in the archive that S3 refuses."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import assert_never

from emulated_aws.server import ACCESS_KEY_ID

from integration_tests.chaos.aws.adversary import Adversary, Blow, HostileAws
from integration_tests.chaos.aws.faults import REFUSALS
from integration_tests.harness.faulty_aws import Fault, FaultyAws
from integration_tests.harness.lake import Lake
from integration_tests.harness.loopback import Request
from integration_tests.harness.messages import Json, configured_catalog
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.running import Running
from integration_tests.harness.runs.warm import WarmLaunch


@dataclass(frozen=True)
class RefusedPut:
    """S3 refuses the `number`-th PUT (from 1) under `_raw/`, for this reason. Clients send it again after a 500."""

    number: int
    reason: str = "403"

    def fault(self) -> Fault:
        numbers = count(1)

        def is_it(request: Request) -> bool:
            return request.method == "PUT" and "/_raw/" in request.path and next(numbers) == self.number

        status, code, message = REFUSALS[self.reason].s3
        body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        return Fault(is_it, status, body.encode(), 1)


Strike = KillPoint | Blow | RefusedPut


@contextmanager
def started(
    lake: Lake, launch: WarmLaunch, folder: Path, config: Mapping[str, object], stream: Json, strike: Strike | None
) -> Iterator[Running]:
    """Start a sync of one stream, which is struck."""
    with ExitStack() as stack:
        adversary = Adversary()
        match strike:
            case None:
                url = lake.endpoint_url
            case KillPoint():
                url, launch = lake.endpoint_url, launch.killed_at(strike)
            case Blow():
                adversary = Adversary(strike)
                hostile = stack.enter_context(HostileAws(lake.endpoint_url))
                hostile.watch(ACCESS_KEY_ID, adversary)
                url = hostile.endpoint_url
            case RefusedPut():
                url = stack.enter_context(FaultyAws(lake.endpoint_url, strike.fault())).endpoint_url
            case _:
                assert_never(strike)
        catalog = configured_catalog(stream)
        running = stack.enter_context(Platform(folder, launch).start({**config, "endpoint_url": url}, catalog))
        adversary.aim(running.process)
        yield running
