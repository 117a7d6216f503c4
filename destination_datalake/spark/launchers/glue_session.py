"""Interactive sessions of AWS Glue, a new one for each sync.

Written against the service's API model; not run on AWS yet.
https://docs.aws.amazon.com/glue/latest/dg/interactive-sessions-spark-connect.html
"""

from __future__ import annotations

import logging
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from destination_datalake.spark.failure import SparkFailed
from destination_datalake.spark.launchers.aws_session import IDLE_MINUTES, Access, endpoint, failed, is_gone, wait
from destination_datalake.spark.launchers.launcher import Endpoint, SessionEnded

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient

    from destination_datalake.config.groups.spark import GlueSession

_logger = logging.getLogger(__name__)

SESSIONS = "destination-datalake-*"
"""The ids of our sessions: ours to stop."""

_VERSIONS: Mapping[tuple[int, int], str] = {(3, 11): "5.1", (3, 13): "6.0"}
"""The version of Glue that has a minor version of Python, which executors must share with the driver.

https://docs.aws.amazon.com/glue/latest/dg/release-notes.html
"""

_READY = "READY"
_PROVISIONING = "PROVISIONING"


class GlueSessions:
    """Creates interactive sessions, stops them, and deletes them."""

    is_fresh = True
    name = "AWS Glue"

    def __init__(
        self,
        options: GlueSession,
        conf: Mapping[str, str],
        client: Callable[[], GlueClient],
        python: tuple[int, int] = sys.version_info[:2],
    ) -> None:
        """`client` makes the client when it is needed: Spark starts in the background."""
        self._python = python
        self._options = options
        self._conf = conf
        self._client = client
        self._session: str | None = None

    def launch(self, stopping: threading.Event) -> Endpoint:
        """Create a session, wait until it is ready, and return its endpoint. Raises SparkFailed."""
        version = _VERSIONS.get(self._python)
        if version is None:
            ours = ".".join(map(str, self._python))
            offered = ", ".join(f"{major}.{minor} ({glue})" for (major, minor), glue in _VERSIONS.items())
            raise SparkFailed(
                f"No version of Glue that the connector knows has Python {ours}, which this is. Run the connector with "
                f"one of these (and Glue's version): {offered}.",
                "config_error",
            )
        session = SESSIONS.replace("*", uuid.uuid4().hex)
        # Known before it is created: an answer that is lost leaves nothing behind.
        self._session = session
        try:
            self._create(session, version)
            _logger.info("Session %s of AWS Glue is starting.", session)
            wait(lambda: self._is_ready(session), stopping, f"Session {session} of AWS Glue")
        except (ClientError, BotoCoreError) as error:
            raise failed(error, "create an interactive session of", self.name) from error
        return endpoint(lambda: self._access(session))

    def end(self) -> None:
        """Stop the session, which is billed until then."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._client().stop_session(Id=session)
        except (ClientError, BotoCoreError) as error:
            _logger.warning(
                "Session %s of AWS Glue was not stopped; AWS ends it when it has been idle for %d minutes: %s",
                session,
                IDLE_MINUTES,
                error,
            )

    def _create(self, session: str, version: str) -> None:
        client = self._client()
        arguments = {"--conf": " --conf ".join(f"{name}={value}" for name, value in self._conf.items())}
        try:
            client.create_session(
                Id=session,
                Role=self._options.role_arn,
                Command={"Name": "glueetl", "PythonVersion": "3"},
                GlueVersion=version,
                SessionType="SPARK_CONNECT",
                WorkerType=self._options.worker_type,  # type: ignore[arg-type]  # what types there are is Glue's to say
                NumberOfWorkers=self._options.number_of_workers,
                IdleTimeout=IDLE_MINUTES,
                DefaultArguments=arguments if self._conf else {},
            )
        except client.exceptions.AlreadyExistsException:
            # A retry of the request, the first answer to which was lost: nobody else has this id.
            return

    def _is_ready(self, session: str) -> bool:
        found = self._client().get_session(Id=session)["Session"]
        status = found.get("Status")
        if status not in (_READY, _PROVISIONING):
            raise SparkFailed(f"A session of AWS Glue did not start: {found.get('ErrorMessage') or status}")
        return status == _READY

    def _access(self, session: str) -> Access:
        try:
            answer = self._client().get_session_endpoint(SessionId=session)["SparkConnect"]
        except ClientError as error:
            if is_gone(error):
                raise SessionEnded(str(error)) from error
            raise failed(error, "connect to a session of", self.name) from error
        except BotoCoreError as error:
            raise failed(error, "connect to a session of", self.name) from error
        return Access(answer["Url"], answer["AuthToken"], answer["AuthTokenExpirationTime"])
