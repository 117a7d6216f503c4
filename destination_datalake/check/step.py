"""Steps of the check: each tried, timed and logged; those that need nothing of each other run concurrently."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field

from destination_datalake.aws.errors import explain
from destination_datalake.check.remedies import Remedies
from destination_datalake.check.trial import Trial
from destination_datalake.config.options import Config
from destination_datalake.errors import ErrorClass, Failure

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Attempt:
    succeeded: bool = False


@dataclass(slots=True)
class Findings:
    """What a step has found: the failures, and what the user should know without its being one.

    `blocked_by` is the id of the step that reports why this one could not be tried to its end. `remedies` are added to
    failures.
    """

    remedies: Remedies | None = None
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    blocked_by: str | None = None

    @contextmanager
    def attempt(self, doing: str, resource: str) -> Iterator[_Attempt]:
        """Add a failure if the block fails because of AWS; the value says whether it succeeded.

        `doing` completes "Cannot …", as in `explain`.
        """
        attempt = _Attempt()
        try:
            yield attempt
            attempt.succeeded = True
        except Exception as error:
            failure = explain(error, doing=doing, resource=resource)
            if failure is None:
                raise
            self.add(failure)

    def add(self, failure: Failure) -> None:
        """Add a failure, with the remedy if a permission is missing."""
        self.failures.append(failure if self.remedies is None else self.remedies.added_to(failure))

    def fail(self, message: str) -> None:
        """Add a failure that is due to the options. `message` says what is wrong and what to do."""
        self.failures.append(Failure(message, message, "config_error"))

    def warn(self, message: str) -> None:
        """Note and log what does not fail the check."""
        _logger.warning(message)
        self.notes.append(message)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `attempt` tries what `does` says, and adds what it finds.

    It is tried once the steps whose ids are in `needs` have succeeded, and those in `after` have ended; and only with
    options that it `applies` to.
    """

    id: str
    name: str
    does: str
    attempt: Callable[[Trial, Findings], None]
    needs: Sequence[str] = ()
    after: Sequence[str] = ()
    applies: Callable[[Config], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step; `raised` is an exception that AWS did not raise."""

    step: Step
    findings: Findings
    seconds: float
    raised: Exception | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the step was tried to its end and has no failure."""
        return self.raised is None and self.findings.blocked_by is None and not self.findings.failures

    def causes(self) -> set[object]:
        """Return why the step failed: the actions that were denied, otherwise the messages."""
        raised = set[object]() if self.raised is None else {self.step.id}
        return raised | {
            failure.missing.action if failure.missing else failure.message for failure in self.findings.failures
        }

    def log_line(self) -> str:
        """Return the outcome as one line of JSON. The class is that of the first failure."""
        failures, blocked_by = self.findings.failures, self.findings.blocked_by
        error: str | None = None
        error_class: ErrorClass | None = None
        if self.raised is not None:
            error, error_class = f"Step {self.step.id} failed: {type(self.raised).__name__}.", "internal"
        elif failures:
            error = "\n".join(failure.message for failure in failures)
            error_class = failures[0].error_class
        elif blocked_by is not None:
            error = f"Not tried to the end: step {blocked_by} failed."
        line = {
            "id": self.step.id,
            "name": self.step.name,
            "success": self.succeeded,
            "error": error,
            "error_class": error_class,
            "duration_ms": round(self.seconds * 1000),
        }
        return json.dumps(line, ensure_ascii=False)


def run_steps(steps: Sequence[Step], trial: Trial) -> list[Outcome]:
    """Try the steps, log each in their order, and return what became of them.

    The log has one error for each cause: a step that was not tried, or that failed of what was told, is an info.
    Raises what a step raised that AWS did not, after all steps have ended.
    """
    futures: dict[str, Future[Outcome]] = {}
    outcomes = []
    causes = set[object]()
    with ThreadPoolExecutor(len(steps), "check") as pool:
        for step in steps:
            needed, ended = ([futures[id] for id in ids if id in futures] for ids in (step.needs, step.after))
            futures[step.id] = pool.submit(_try, step, trial, needed, ended)
        for future in futures.values():
            outcome = future.result()
            new_causes = outcome.causes() - causes
            causes |= new_causes
            _logger.log(logging.ERROR if new_causes else logging.INFO, outcome.log_line())
            outcomes.append(outcome)
    for outcome in outcomes:
        if outcome.raised is not None:
            raise outcome.raised
    return outcomes


def _try(step: Step, trial: Trial, needed: Sequence[Future[Outcome]], ended: Sequence[Future[Outcome]]) -> Outcome:
    """Try the step on a thread of its own. Each step waits only for earlier ones, which have threads too."""
    wait(ended)
    findings = Findings()
    for future in needed:
        if not (earlier := future.result()).succeeded:
            findings.blocked_by = earlier.findings.blocked_by or earlier.step.id
            return Outcome(step, findings, 0)
    findings.remedies = trial.remedies
    began = time.monotonic()
    raised = None
    try:
        step.attempt(trial, findings)
    except Exception as error:
        raised = error
    return Outcome(step, findings, time.monotonic() - began, raised)
