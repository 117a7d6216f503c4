"""What executors sign their requests with: sessions that end in the middle of a job, and hosts without a role."""

import re
import threading
from dataclasses import replace

from emulated_aws.server import ACCESS_KEY_ID

from integration_tests.cluster.doors import Cluster
from integration_tests.cluster.harness.aws import uploads_data
from integration_tests.conformance.airbyte.orders import COMPLETE, order, orders
from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.loopback import Answer, Request
from integration_tests.harness.messages import state
from integration_tests.harness.warehouse import Warehouse

SESSION = "ASIA"
"""What access key ids of sessions begin with."""

EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
"""S3 API: error code ExpiredToken."""


class ShortSessions(AwsProxy):
    """The account, whose first session ends when it uploads a data file. `uploaded`: all keys that have tried to.

    The emulated account begins sessions with the keys of its documentation; here each has keys of its own.
    """

    def __init__(self, endpoint_url: str) -> None:
        super().__init__(endpoint_url)
        self._lock = threading.Lock()
        self._begun = 0
        self._ended = ""
        self.uploaded: set[str] = set()

    def answer(self, request: Request) -> Answer:
        if b"Action=GetSessionToken" in request.body:
            return self._begin(request)
        signed = request.header("Authorization")
        key = "".join(re.findall(r"Credential=(\w+)/", signed))
        with self._lock:
            if uploads_data(request):
                self._ended = self._ended or key
                self.uploaded.add(key)
            if key.startswith(SESSION) and key == self._ended:
                return Answer(400, {}, EXPIRED)
        headers = {**request.headers, "Authorization": signed.replace(key, ACCESS_KEY_ID) if key else signed}
        return self.pass_on(replace(request, headers=headers))

    def _begin(self, request: Request) -> Answer:
        answer = self.pass_on(request)
        with self._lock:
            self._begun += 1
            key = f"{SESSION}{self._begun:012}".encode()
        return replace(answer, body=re.sub(rb"(?<=<AccessKeyId>)\w+", key, answer.body))


def test_a_sync_continues_after_one_whose_session_ended_in_the_middle_of_a_job(
    warehouse: Warehouse, cluster: Cluster
) -> None:
    """The user's own keys are with no executor."""
    spark = {**cluster.option, "executor_credentials": "session"}
    sent = [order(1), state("orders", 1), COMPLETE]

    with ShortSessions(warehouse.lake.endpoint_url) as aws:
        ended = warehouse.attempt([orders()], sent, endpoint_url=aws.endpoint_url, spark=spark)
        run = warehouse.sync([orders()], sent, endpoint_url=aws.endpoint_url, spark=spark)

    assert (ended.exit_code, len(ended.states), len(run.states)) == (1, 0, 1)
    assert warehouse.ids("orders") == [1]
    assert sorted(aws.uploaded) == ["ASIA000000000001", "ASIA000000000002"]
