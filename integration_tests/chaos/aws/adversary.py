"""Who stands between the connector and AWS, counts requests, and at the chosen one kills, cuts off or refuses."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal
from uuid import uuid4

import psutil

from integration_tests.chaos.aws.faults import COUNTED, REFUSALS, Fault, operation
from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.loopback import Answer, HungUp, Request
from integration_tests.harness.runs.launch import Process

PassOn = Callable[[Request], Answer]


@dataclass(frozen=True)
class Blow:
    """What happens at the `number`-th request (from 1; `scope`: all, those that change something, or uploads).

    "kill" is a SIGKILL, `pause` seconds later. A request that was not passed on `before` it never is; `after` it the
    answer is lost. "cut off" holds back that request, or its answer, and all that come later until the attempt is let
    go on: of the outside world it knows as much as if it were asleep, and all it asked for arrives late.
    """

    deed: Literal["kill", "cut off"]
    number: int
    scope: Literal["requests", "changes", "uploads"]
    moment: Literal["before", "after"]
    pause: float = 0.0

    def __str__(self) -> str:
        outcome = "killed" if self.deed == "kill" else "cut off"
        return f"{outcome} {self.moment} number {self.number} of its {self.scope}"


def kill_connector(connector: Process) -> bool:
    """Kill the connector's own process. False if it has ended."""
    if connector.returncode is not None:
        return False
    connector.kill()
    return True


def kill_spark(connector: Process, victim: Literal["JVM", "Python worker"]) -> bool:
    """Kill the JVM of a connector that has one of its own, or the newest of its workers. False if there is none."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(connector.pid).children(recursive=True)
        java = [child for child in children if child.name() == "java"]
        workers = [child for child in children if child.name() != "java" and child.ppid() != connector.pid]
        for process in (java if victim == "JVM" else workers)[-1:]:
            process.kill()
            return True
    return False


class Adversary:
    """What one attempt meets. `struck` is set when the blow has been dealt; `met` counts faults by their kind.

    Setting `restored` lets an attempt continue that was cut off. Requests are counted while `armed` is set.
    """

    def __init__(
        self,
        blow: Blow | None = None,
        kill: Callable[[Process], bool] = kill_connector,
        faults: Sequence[Fault] = (),
        armed: bool = True,
    ) -> None:
        """`kill` is given the connector's process; what it kills may be another one."""
        self.blow = blow
        self._kill = kill
        self._faults = faults
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._concerned: Counter[Fault] = Counter()
        self._connector: Process | None = None
        self._hit = False
        self._aimed = threading.Event()
        self.struck = threading.Event()
        self.restored = threading.Event()
        self.armed = threading.Event()
        if armed:
            self.armed.set()
        self.met: Counter[str] = Counter()

    @property
    def killed(self) -> bool:
        """Whether the blow has fallen and was deadly."""
        return self._hit

    def aim(self, connector: Process) -> None:
        """Say which process is the attempt's; blows wait until that is known."""
        self._connector = connector
        self._aimed.set()

    def answer(self, request: Request, pass_on: PassOn) -> Answer:
        """Answer a request of the attempt. Raises HungUp where the connection is to be closed without a word."""
        name = operation(request)
        if not self.armed.is_set():
            return pass_on(request)
        with self._lock:
            blow = self.blow if self._is_due(name) else None
            fault = self._next_fault(name)
        if blow is not None and blow.moment == "before":
            self._deal(blow)
        elif blow is None and self.blow is not None and self.blow.deed == "cut off" and self.struck.is_set():
            self.restored.wait()
        answer = self._with_fault(fault.kind, request, pass_on) if fault is not None else pass_on(request)
        if blow is not None and blow.moment == "after":
            self._deal(blow)
        return answer

    def _is_due(self, name: str) -> bool:
        """Count a request; tell whether it is the one."""
        counted = ["requests", *(kind for kind, names in COUNTED.items() if name in names)]
        self._counts.update(counted)
        blow = self.blow
        return (
            blow is not None
            and not self.struck.is_set()
            and blow.scope in counted
            and self._counts[blow.scope] == blow.number
        )

    def _deal(self, blow: Blow) -> None:
        if blow.deed == "cut off":
            self.struck.set()
            self.restored.wait()
            return
        self._aimed.wait()
        time.sleep(blow.pause)
        assert self._connector is not None
        self._hit = self._kill(self._connector)
        self.struck.set()
        raise HungUp

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

    def new_key(self) -> str:
        """Return an access key that no other attempt has."""
        return f"AKIA{uuid4().hex[:12].upper()}"  # Not the length of a user's, whom the account would have to know.

    def watch(self, access_key_id: str, adversary: Adversary) -> None:
        """Let the requests that are signed with this key meet the adversary."""
        self._adversaries[access_key_id] = adversary

    def answer(self, request: Request) -> Answer:
        signed_with = re.search(r"Credential=(\w+)/", request.header("Authorization"))
        adversary = self._adversaries.get(signed_with[1]) if signed_with else None
        return self.pass_on(request) if adversary is None else adversary.answer(request, self.pass_on)
