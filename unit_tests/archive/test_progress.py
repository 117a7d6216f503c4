"""How far a replay is, kept beside the archive: one that was killed goes on, and of two the older one stops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from destination_datalake.archive.plan import CompletedSteps, CompletedSyncSteps, ReplayProgress, Step, StepKind
from destination_datalake.errors import ConnectorError
from unit_tests.cloud import BUCKET, Cloud, another_client, at_the_next

URI = f"s3://{BUCKET}/lake/_raw/shop.orders/replay/orders__replay.json"
STEPS = (
    Step(1, "a", StepKind.BEGIN),
    Step(2, "a", StepKind.BATCH, 7),
    Step(3, "a", StepKind.END),
    Step(4, "b", StepKind.BEGIN),
)


def progress(cloud: Cloud) -> ReplayProgress:
    return ReplayProgress(URI, cloud.access)


@pytest.mark.parametrize("steps", [STEPS[:count] for count in range(len(STEPS) + 1)])
def test_steps_that_were_noted_are_done_and_no_others(cloud: Cloud, steps: Sequence[Step]) -> None:
    first = progress(cloud)
    done = first.claim("run-1", 10.0)
    done.add(steps)
    first.save(done)

    later = progress(cloud).claim("run-2", 20.0)

    assert [step for step in STEPS if later.includes(step)] == [*steps]
    assert not later.includes(Step(2, "a", StepKind.BATCH, 8))
    assert (later.run, later.started, later.state) == ("run-2", 10.0, "claimed")


def test_the_first_replay_has_done_nothing(cloud: Cloud) -> None:
    assert progress(cloud).claim("run-1", 10.0) == CompletedSteps("run-1", 10.0, state="claimed")
    assert [*cloud.objects()] == [URI.removeprefix(f"s3://{BUCKET}/")]


def test_everything_that_is_done_is_read_back(cloud: Cloud) -> None:
    first = progress(cloud)
    done = first.claim("run-1", 10.0)
    done.syncs, done.state = (
        {"a": CompletedSyncSteps(begun=True, batches={1, 3}, ended=True), "b": CompletedSyncSteps()},
        "taking over",
    )
    first.save(done)

    assert progress(cloud).claim("run-1", 20.0) == done


def test_a_replay_whose_progress_another_one_has_claimed_stops(cloud: Cloud) -> None:
    older, newer = progress(cloud), progress(cloud)
    done = older.claim("run-1", 10.0)
    done.add(STEPS[:1])
    older.save(done)

    newer.claim("run-2", 20.0)

    with pytest.raises(ConnectorError, match="This replay stopped") as raised:
        older.save(done)
    assert raised.value.failure.type == "config_error"
    with pytest.raises(ConnectorError):
        older.require("run-1")
    newer.require("run-2")
    assert progress(cloud).claim("run-3", 30.0).includes(STEPS[0])


@pytest.mark.parametrize("call", ["claim", "save"])
def test_a_replay_goes_on_although_a_response_was_lost(cloud: Cloud, call: str) -> None:
    access = another_client()
    only = ReplayProgress(URI, access)
    if call == "claim":
        at_the_next(access, "s3.PutObject", lambda: None, response_lost=True)
    done = only.claim("run-1", 10.0)
    if call == "save":
        at_the_next(access, "s3.PutObject", lambda: None, response_lost=True)
    for step in STEPS:
        done.add([step])
        only.save(done)

    assert progress(cloud).claim("run-2", 20.0).syncs == done.syncs


def test_of_two_that_begin_at_once_one_goes_on(cloud: Cloud) -> None:
    first, second = progress(cloud), progress(cloud)
    events = cloud.access.client("s3").meta.events
    claimed: list[CompletedSteps] = []

    def meanwhile(**_: object) -> None:
        events.unregister("before-call.s3.PutObject", meanwhile)
        claimed.append(second.claim("run-2", 20.0))

    events.register("before-call.s3.PutObject", meanwhile)
    done = first.claim("run-1", 10.0)

    assert claimed == [CompletedSteps("run-2", 20.0, state="claimed")]
    assert done == CompletedSteps("run-1", 20.0, state="claimed")
    first.require("run-1")
    with pytest.raises(ConnectorError, match="This replay stopped"):
        second.save(claimed[0])


def test_the_first_replay_does_not_ask_whether_there_was_one(cloud: Cloud) -> None:
    """Who may not list the folder is not told that there is no object, but that it may not be read."""
    with cloud.refusing("GetObject"):
        assert progress(cloud).claim("run-1", 10.0) == CompletedSteps("run-1", 10.0, state="claimed")


def test_a_refusal_is_what_s3_says_of_it(cloud: Cloud) -> None:
    with cloud.refusing("PutObject"), pytest.raises(cloud.access.client("s3").exceptions.ClientError):
        progress(cloud).claim("run-1", 10.0)
