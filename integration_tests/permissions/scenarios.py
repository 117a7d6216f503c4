"""What is done with one configuration: check, syncs of every kind, a killed one, and the next."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from emulated_aws.account import Account, Member
from emulated_aws.requests.log import Record

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.protocol.catalog import StreamId
from integration_tests.archive.replays import Replays
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.launch import with_variables
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, object_schema
from integration_tests.permissions.modes import Accident, Mode, Site

APPENDED, REPLACED = "appended", "replaced"
PUBLICATION = KillPoint("before", "destination_datalake.sync.landing:Landing.publish")
"""When everything is written, and the overwrite is not visible yet."""

SCHEMA = object_schema(id=INTEGER, up=INTEGER, more=NUMBER, fill=STRING)
FILL = "x" * 1_200_000
"""Makes a record a batch of its own where batch_size_mb is 1."""

BATCHES: Sequence[Json] = (
    {"id": 1, "up": 1, "more": 0.5, "fill": FILL},
    {"id": 2, "up": 2**40, "more": 1 / 3, "fill": FILL},
    {"id": 3, "up": "a value that its column cannot hold", "more": 0.5, "fill": FILL},
)
"""Columns become wider from one batch to the next, and a value is rejected."""


@dataclass(frozen=True)
class Requests:
    """What was asked of AWS by `check`, and by syncs."""

    of_check: list[Record]
    of_syncs: list[Record]


@dataclass(frozen=True)
class Tenant:
    """A role that has exactly the policy that `iam-policy` prints for a configuration; `workers` assume it."""

    lake: Lake
    account: Account
    member: Member
    workers: Member
    config: Mapping[str, object]
    document: Mapping[str, Any]
    namespace: str

    @classmethod
    def create(cls, mode: Mode, lake: Lake, workers: Member, folder: Path, *arguments: str) -> "Tenant":
        """Create the role, and attach what the command prints for the options, the streams and these arguments."""
        account = Account(lake.endpoint_url)
        site = Site(lake, account, account.role(trusted=workers.arn))
        member, namespace = site.member, lake.name("shop")
        config = lake.config(credentials=member.credentials, batch_size_mb=1, **mode.options(site))
        catalog = configured_catalog(*streams(namespace, 1))
        document = json.loads(iam_policy(folder, config, catalog, *arguments))
        account.permit_role(member.name, *document["Statement"])
        parsed = Config.parse(config)
        mode.prepare(site, parsed, Scope.for_config(parsed, [StreamId(None, APPENDED), StreamId(namespace, REPLACED)]))
        return cls(lake, account, member, workers, config, document, namespace)

    def lives(self, accident: Accident, folder: Path, launch: WarmLaunch) -> Requests:
        """Check, sync, have an accident in a sync, and sync again; return the requests."""
        log = self.account.log()
        platform = Platform(folder, with_variables(launch, **self.workers.environment))
        checked = platform.check(self.config)
        assert checked.connection_status["status"] == "SUCCEEDED", checked.report()
        of_check = log.read(caller=self._session)
        log.restart()
        succeeded(platform.write(self.config, self.catalog(1), self.messages()))
        match accident:
            case "killed":
                dying = with_variables(launch.killed_at(PUBLICATION), **self.workers.environment)
                with Platform(folder, dying).start(self.config, self.catalog(2)) as running:
                    running.send(self.messages())
                    killed = running.perish()
                assert killed.exit_code == -9, killed.report()
            case "too many rejects":
                strict = {**self.config, "rejects": {"max_count": 0}}
                stopped = platform.write(strict, self.catalog(2), self.messages())
                assert "The connector did not commit the batch" in str(stopped.errors), stopped.report()
        succeeded(platform.write(self.config, self.catalog(2), self.messages()))
        return Requests(of_check, log.read(caller=self._session))

    def replays(self, folder: Path, launch: WarmLaunch) -> Sequence[Record]:
        """Replay the tables in their places; return the requests."""
        log = self.account.log()
        replays = Replays(cast("WarmLaunch", with_variables(launch, **self.workers.environment)), folder)
        for stream in (APPENDED, f"{self.namespace}.{REPLACED}"):
            run = replays.run(self.config, "--stream", stream, "--replace")
            assert run.exit_code == 0, run
        return log.read(caller=self._session)

    @property
    def _session(self) -> str:
        """Part of the ARN of the role's sessions."""
        return f"assumed-role/{self.member.name}/"

    def catalog(self, generation: int) -> dict[str, object]:
        """Return a stream that is appended to, and one in a database of its own that is replaced."""
        return configured_catalog(*streams(self.namespace, generation))

    def messages(self) -> list[bytes]:
        """Return every batch of both streams, each followed by a state."""
        return messages(self.namespace)


def streams(namespace: str, generation: int) -> list[dict[str, object]]:
    """Return the streams of a catalog."""
    return [
        configured_stream(APPENDED, SCHEMA, generation=generation),
        configured_stream(REPLACED, SCHEMA, namespace=namespace, generation=generation, minimum=generation),
    ]


def messages(shop: str) -> list[bytes]:
    """Return every batch of both streams, each followed by a state; one stream is in the namespace `shop`."""
    names = ((APPENDED, None), (REPLACED, shop))
    batches = [
        line
        for number, data in enumerate(BATCHES)
        for name, namespace in names
        for line in (record(name, data, namespace=namespace), state(name, number, namespace=namespace))
    ]
    return [*batches, *(status(name, "COMPLETE", namespace=namespace) for name, namespace in names)]


def succeeded(run: Run) -> None:
    """Expect that the run has ended well, and that AWS has refused it nothing that it warned of."""
    assert run.exit_code == 0, run.report()
    assert run.errors == []


def iam_policy(folder: Path, config: Mapping[str, object], catalog: Mapping[str, object], *arguments: str) -> str:
    """Return what the console script prints to standard output."""
    command = [sys.executable, "-m", "destination_datalake.cli", "iam-policy", *arguments]
    for name, content in (("config", config), ("catalog", catalog)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(content))
        command += [f"--{name}", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
