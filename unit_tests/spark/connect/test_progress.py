"""What is told of running jobs, and of tasks that no executor takes."""

from __future__ import annotations

import logging

import pytest
from pyspark.sql.connect.shell.progress import StageInfo

from destination_datalake.spark.backend import JobsProgress
from destination_datalake.spark.connect.progress import JobsWatch, NoExecutors


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def stage(tasks: int, completed: int) -> StageInfo:
    return StageInfo(1, tasks, completed, 0, False)


def test_the_progress_is_the_sum_over_the_jobs_that_run() -> None:
    watch = JobsWatch()

    watch([stage(10, 4)], 2, "one", False)
    watch([stage(3, 3), stage(5, 0)], 1, "two", False)

    assert watch.progress() == JobsProgress(running=3, waiting=4 + 4, ended=7)
    assert watch.most_running == 3
    watch([stage(10, 10)], 0, "one", True)
    assert watch.progress() == JobsProgress(running=1, waiting=4, ended=3)


def test_tasks_that_no_executor_takes_end_their_job_after_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    watch = JobsWatch(clock, patience_seconds=300)
    watch([stage(4, 0)], 0, "job", False)

    clock.now = 61
    with caplog.at_level(logging.WARNING):
        watch([stage(4, 0)], 0, "job", False)
    clock.now = 299
    watch([stage(4, 0)], 0, "job", False)

    assert [record.message for record in caplog.records] == ["Spark has tasks, and no executor has taken one for 61 s."]
    clock.now = 301
    with pytest.raises(NoExecutors, match="4 tasks have waited for 301 s"):
        watch([stage(4, 0)], 0, "job", False)


def test_a_job_waits_as_long_as_another_one_is_at_work() -> None:
    clock = Clock()
    watch = JobsWatch(clock, patience_seconds=300)

    for clock.now in (0, 200, 400, 600):
        watch([stage(4, 0)], 4, "busy", False)
        watch([stage(4, 0)], 0, "waits", False)

    assert watch.progress() == JobsProgress(running=4, waiting=4)


def test_a_job_that_comes_after_a_pause_is_not_thought_to_have_waited_since() -> None:
    clock = Clock()
    watch = JobsWatch(clock, patience_seconds=300)
    watch([stage(1, 1)], 0, "early", True)

    clock.now = 1000
    watch([stage(4, 0)], 0, "late", False)

    assert watch.progress() == JobsProgress(waiting=4)
