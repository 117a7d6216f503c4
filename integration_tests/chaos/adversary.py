"""Who stands between the connector and AWS, counts requests, and at the chosen one kills, freezes or refuses."""

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import psutil

from integration_tests.chaos.faults import CHANGES, REFUSALS, Fault, operation
from integration_tests.conformance.aws_proxy import Answer, AwsProxy, HungUp, Request

PassOn = Callable[[Request], Answer]


@dataclass(frozen=True)
class Blow:
    """A signal at the `number`-th request (from 1; `of` all or of those that change something).

    `stop` is SIGKILL, or SIGSTOP for a sync that is thawed later; `pause` is in seconds, before the signal. What was
    not passed on `before` the signal never is if the sync is killed, and is as soon as it is thawed.
    """

    stop: signal.Signals
    number: int
    of: Literal["requests", "changes"]
    moment: Literal["before", "after"]
    pause: float = 0.0

    def __str__(self) -> str:
        what = "killed" if self.stop is signal.SIGKILL else "frozen"
        return f"{what} {self.moment} number {self.number} of its {self.of}" + (
            f" + {self.pause:.3f} s" * bool(self.pause)
        )


def strike_connector(pid: int, stop: signal.Signals) -> bool:
    """Signal the connector's own process. False if it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, stop)
        return True
    return False


def strike_spark(pid: int, stop: signal.Signals, victim: Literal["JVM", "Python worker"]) -> bool:
    """Signal the JVM of a connector that has one of its own, or the newest of its workers. False if there is none."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(pid).children(recursive=True)
        java = [child for child in children if child.name() == "java"]
        workers = [child for child in children if child.name() != "java" and child.ppid() != pid]
        for process in (java if victim == "JVM" else workers)[-1:]:
            process.send_signal(stop)
            return True
    return False


class Adversary:
    """What one attempt meets. `struck` is set when the blow has been dealt; `met` counts faults by their kind.

    Whoever thaws a frozen sync sets `thawed`. Requests are counted while `armed` is set.
    """

    def __init__(
        self,
        blow: Blow | None = None,
        strike: Callable[[int, signal.Signals], bool] = strike_connector,
        faults: Sequence[Fault] = (),
        armed: bool = True,
    ) -> None:
        """`strike` brings the signal to what the blow is for, by the connector's process id."""
        self.blow = blow
        self._strike = strike
        self._faults = faults
        self._lock = threading.Lock()
        self._requests = 0
        self._changes = 0
        self._concerned: Counter[Fault] = Counter()
        self._pid = 0
        self._hit = False
        self._aimed = threading.Event()
        self.struck = threading.Event()
        self.thawed = threading.Event()
        self.armed = threading.Event()
        if armed:
            self.armed.set()
        self.met: Counter[str] = Counter()

    @property
    def killed(self) -> bool:
        """Whether the blow has fallen and was deadly."""
        return self._hit and self.blow is not None and self.blow.stop is signal.SIGKILL

    def aim(self, pid: int) -> None:
        """Say which process is the attempt's; blows wait until that is known."""
        self._pid = pid
        self._aimed.set()

    def answer(self, request: Request, pass_on: PassOn) -> Answer:
        """Answer a request of the attempt. Raises HungUp where the connection is to be closed without a word."""
        name = operation(request)
        if not self.armed.is_set():
            return pass_on(request)
        with self._lock:
            self._requests += 1
            self._changes += name in CHANGES
            blow = self.blow if self._is_due(name) else None
            fault = self._next_fault(name)
        if blow is not None and blow.moment == "before":
            self._deal(blow)
            if blow.stop is signal.SIGKILL:
                raise HungUp
            self.thawed.wait()
        answer = self._with_fault(fault.kind, request, pass_on) if fault is not None else pass_on(request)
        if blow is not None and blow.moment == "after":
            self._deal(blow)
        return answer

    def _is_due(self, name: str) -> bool:
        if self.blow is None or self.struck.is_set():
            return False
        if self.blow.of == "changes":
            return name in CHANGES and self._changes == self.blow.number
        return self._requests == self.blow.number

    def _deal(self, blow: Blow) -> None:
        self._aimed.wait()
        time.sleep(blow.pause)
        self._hit = self._strike(self._pid, blow.stop)
        self.struck.set()

    def _next_fault(self, name: str) -> Fault | None:
        for fault in self._faults:
            if fault.concerns(name):
                self._concerned[fault] += 1
                if fault.first <= self._concerned[fault] < fault.first + fault.times:
                    self.met[fault.kind] += 1
                    return fault
        return None

    def _with_fault(self, kind: str, request: Request, pass_on: PassOn) -> Answer:
        match kind:
            case "connection reset":
                raise HungUp
            case "lost answer":
                pass_on(request)
                raise HungUp
            case "slow answer":
                time.sleep(2)
                return pass_on(request)
            case _:
                return REFUSALS[kind].answer(request)


class HostileAws(AwsProxy):
    """The account with an adversary for each attempt, which is known by the access key that it was given."""

    def __init__(self, endpoint_url: str) -> None:
        super().__init__(endpoint_url)
        self._adversaries: dict[str, Adversary] = {}

    def watch(self, access_key_id: str, adversary: Adversary) -> None:
        """Let the requests that are signed with this key meet the adversary."""
        self._adversaries[access_key_id] = adversary

    def answer(self, request: Request) -> Answer:
        signed_with = re.search(r"Credential=(\w+)/", request.header("Authorization"))
        adversary = self._adversaries.get(signed_with[1]) if signed_with else None
        return self.pass_on(request) if adversary is None else adversary.answer(request, self.pass_on)
