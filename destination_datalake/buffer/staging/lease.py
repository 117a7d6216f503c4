"""The lease of a sync: an object that says that the segments beside it belong to a sync that is alive."""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING

from destination_datalake.aws.address import S3Address

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)

LEASE_NAME = "lease.json"

RENEWAL_SECONDS = 300.0

LEASE_SECONDS = 3600.0
"""A sync that has written neither its lease nor a segment for so long is dead, by S3's clock.

One that is only suspended, and wakes, finds its segments gone, fails, and is run again: no state has passed them.
"""


class Lease:
    """Written before the first segment, renewed as long as the sync lives, deleted after the last segment."""

    def __init__(self, folder: str, sync: str, access: AwsAccess) -> None:
        """Write nothing yet. `folder` is the S3 URI of the sync's folder."""
        self._address = S3Address.parse(f"{folder}/{LEASE_NAME}")
        self._content = content_of(sync)
        self._access = access
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._delete = False
        self._renewal: threading.Thread | None = None

    def begin(self) -> None:
        """Write the lease, unless it is written. Raises what S3's client raises."""
        if self._renewal is not None:
            return
        with self._lock:
            if self._renewal is None:
                self._write()
                self._renewal = threading.Thread(target=self._renew, name="lease", daemon=True)
                self._renewal.start()

    def end(self, *, delete: bool, seconds: float) -> None:
        """Renew the lease no more, and delete it if S3 answers within so many seconds; or leave it to expire."""
        self._delete = delete
        self._ended.set()
        if self._renewal is not None:
            self._renewal.join(seconds)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWAL_SECONDS):
            try:
                self._write()
            except Exception:
                _logger.warning("The lease %s could not be renewed.", self._address, exc_info=True)
        if not self._delete:
            return
        try:
            self._access.client("s3").delete_object(Bucket=self._address.bucket, Key=self._address.key)
        except Exception:
            _logger.warning("The lease %s could not be deleted.", self._address, exc_info=True)

    def _write(self) -> None:
        self._access.client("s3").put_object(Bucket=self._address.bucket, Key=self._address.key, Body=self._content)


def content_of(sync: str) -> bytes:
    """Return what the lease of a sync says."""
    return json.dumps({"connector": "destination-datalake", "sync": sync}).encode()
