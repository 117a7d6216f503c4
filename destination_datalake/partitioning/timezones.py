"""Local times of time zones, for whole arrays.

Arrow's own `local_timestamp` knows no daylight saving time after 2037.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from numpy.typing import NDArray

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = 86_400
_MICROSECONDS = 1_000_000
# The second day of the year 1 and the last but one of 9999: on these Python can represent the local times as well.
_FIRST, _LAST = -719_161, 2_932_895


def local_times(moments: NDArray[np.datetime64], zone: str) -> NDArray[np.datetime64]:
    """Return what clocks in `zone` show at moments in UTC; both are in microseconds.

    Python's zoneinfo is asked once for each day, not for each row. Raises ZoneInfoNotFoundError for an unknown zone.
    """
    times = moments.view(np.int64)
    days = pa.array((times // (_DAY * _MICROSECONDS)).clip(_FIRST, _LAST)).dictionary_encode()
    changes = [_change(zone, day) for day in days.dictionary.to_numpy().tolist()]
    before, at, after = np.array(changes, np.int64).reshape(-1, 3).T
    day_of = days.indices.to_numpy()
    local: NDArray[np.int64] = times + np.where(times < at[day_of], before[day_of], after[day_of])
    return local.view("datetime64[us]")


def is_offset_constant(bounds: NDArray[np.datetime64], zone: str) -> bool:
    """Return whether a zone's offset from UTC is the same from the first moment to the second; False after 400 days."""
    first, last = (bounds.view(np.int64) // (_DAY * _MICROSECONDS)).clip(_FIRST, _LAST).tolist()
    if last - first > 400:
        return False
    offsets = {offset for day in range(first, last + 1) for offset in _change(zone, day)[::2]}
    return len(offsets) == 1


@lru_cache(maxsize=65_536)
def _change(zone: str, day: int) -> tuple[int, int, int]:
    """Return a zone's offset from UTC before and after the moment of a UTC day at which it changes, and the moment.

    No zone of the database has ever changed its offset twice in a day. All are in microseconds.
    """
    rules = ZoneInfo(zone)
    first, last = day * _DAY, (day + 1) * _DAY - 1
    before, after = _offset(rules, first), _offset(rules, last)
    if before != after:
        while last - first > 1:
            middle = (first + last) // 2
            if _offset(rules, middle) == before:
                first = middle
            else:
                last = middle
    return before * _MICROSECONDS, last * _MICROSECONDS, after * _MICROSECONDS


def _offset(rules: ZoneInfo, second: int) -> int:
    offset = (_EPOCH + timedelta(seconds=second)).astimezone(rules).utcoffset()
    return int((offset or timedelta()).total_seconds())
