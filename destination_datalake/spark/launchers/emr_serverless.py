"""Sessions of EMR Serverless, a new one for each sync.

Written against the service's API model; not run on AWS yet.
https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/spark-connect.html
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from destination_datalake.spark.failure import SparkFailed
from destination_datalake.spark.launchers.aws_session import IDLE_MINUTES, Access, endpoint, failed, is_gone, wait
from destination_datalake.spark.launchers.launcher import Endpoint, SessionEnded

if TYPE_CHECKING:
    from mypy_boto3_emr_serverless import EMRServerlessClient

    from destination_datalake.config.groups.spark import EmrServerless

_logger = logging.getLogger(__name__)

_READY = frozenset({"STARTED", "IDLE", "BUSY"})
_ENDED = frozenset({"FAILED", "TERMINATING", "TERMINATED"})


class EmrServerlessSessions:
    """Starts sessions on an application, which must have sessions enabled, and ends them."""

    is_fresh = True

    def __init__(
        self, options: EmrServerless, conf: Mapping[str, str], client: Callable[[], EMRServerlessClient]
    ) -> None:
        """`client` makes the client when it is needed: Spark starts in the background."""
        self._application = options.application_id
        self._role_arn = options.execution_role_arn
        self._conf = conf
        self._client = client
        self._session: str | None = None

    @property
    def name(self) -> str:
        """The application."""
        return f"the EMR Serverless application {self._application}"

    def launch(self, stopping: threading.Event) -> Endpoint:
        """Start a session, wait until it is ready, and return its endpoint. Raises SparkFailed."""
        try:
            self._session = self._start()
            _logger.info("Session %s of %s is starting.", self._session, self.name)
            wait(self._is_ready, stopping, f"Session {self._session} of {self.name}")
        except (ClientError, BotoCoreError) as error:
            raise failed(error, "start a session of", self.name) from error
        session = self._session
        return endpoint(lambda: self._access(session))

    def end(self) -> None:
        """Terminate the session: `SparkSession.stop` leaves it running, and billed."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._client().terminate_session(applicationId=self._application, sessionId=session)
        except (ClientError, BotoCoreError) as error:
            _logger.warning(
                "Session %s of %s was not terminated; AWS ends it when it has been idle for %d minutes: %s",
                session,
                self.name,
                IDLE_MINUTES,
                error,
            )

    def _start(self) -> str:
        answer = self._client().start_session(
            applicationId=self._application,
            # The same for all attempts of one request, so that an answer that is lost starts no second session.
            clientToken=uuid.uuid4().hex,
            executionRoleArn=self._role_arn,
            idleTimeoutMinutes=IDLE_MINUTES,
            name="destination-datalake",
            configurationOverrides={
                "runtimeConfiguration": [{"classification": "spark-defaults", "properties": dict(self._conf)}]
            }
            if self._conf
            else {},
        )
        return answer["sessionId"]

    def _is_ready(self) -> bool:
        assert self._session is not None
        session = self._client().get_session(applicationId=self._application, sessionId=self._session)["session"]
        if session["state"] in _ENDED:
            raise SparkFailed(f"A session of {self.name} did not start: {session['stateDetails']}")
        return session["state"] in _READY

    def _access(self, session: str) -> Access:
        try:
            answer = self._client().get_session_endpoint(applicationId=self._application, sessionId=session)
        except ClientError as error:
            if is_gone(error):
                raise SessionEnded(str(error)) from error
            raise failed(error, "connect to a session of", self.name) from error
        except BotoCoreError as error:
            raise failed(error, "connect to a session of", self.name) from error
        return Access(answer["endpoint"], answer["authToken"], answer["authTokenExpiresAt"])
