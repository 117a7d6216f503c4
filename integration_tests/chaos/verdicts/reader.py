"""The table as a reader who is not the connector finds it, held against what was sent."""

import gzip
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping

from botocore.exceptions import ClientError

from integration_tests.chaos.attempts.source import STREAM, Sending, Sent
from integration_tests.harness.lake import PREFIX, Lake


class Broken(AssertionError):
    """A promise that was not kept, in a sentence."""


class Reader:
    """Reads one lake's only table."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def sendings(self, sent: Mapping[Sending, Sent]) -> frozenset[Sending]:
        """Return which sendings are in the table; none if there is no table yet.

        Raises Broken if it cannot be read, holds one twice, holds what was not sent, or a value is another one.
        """
        try:
            rows = self.lake.rows(self.lake.database, STREAM)
        except ClientError as error:
            if error.response["Error"]["Code"] == "EntityNotFoundException":
                return frozenset()
            raise Broken(f"the table cannot be read: {error}") from error
        except Exception as error:
            raise Broken(f"the table cannot be read: {type(error).__name__}: {error}") from error
        counts = Counter(Sending(row["position"], row["attempt"]) for row in rows)
        if twice := [tuple(sending) for sending, times in counts.items() if times > 1]:
            raise Broken(f"there more than once, although sent once (position, attempt): {sorted(twice)}")
        for row in rows:
            sending = Sending(row["position"], row["attempt"])
            expected = sent[sending].row if sending in sent else None
            if expected is None:
                raise Broken(f"a row that was not sent: {tuple(sending)}")
            if wrong := [name for name, value in expected.items() if row.get(name) != value]:
                values = {name: (expected[name], row.get(name)) for name in wrong}
                raise Broken(f"{tuple(sending)} has other values (sent, found): {values}")
        return frozenset(counts)

    def rejected(self) -> frozenset[Sending]:
        """Return the sendings that an object under `_errors/` keeps."""
        rejected = set()
        for key in self.lake.objects(f"{PREFIX}/_errors/"):
            body = gzip.decompress(self.lake.s3.get_object(Bucket=self.lake.bucket, Key=key)["Body"].read())
            for line in body.splitlines():
                raw = json.loads(line).get("rawData")
                if raw is not None:
                    data = json.loads(b64decode(raw))["record"]["data"]
                    rejected.add(Sending(data["position"], data["attempt"]))
        return frozenset(rejected)
