"""`make chaos`: rounds of stress, several at a time, until the time is over or enough have been played."""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator

from integration_tests.chaos.histories import play as histories
from integration_tests.chaos.play import verdicts_of
from integration_tests.chaos.subjects import subject_of
from integration_tests.chaos.verdicts.report import summary


def _numbers(arguments: argparse.Namespace) -> Iterator[int]:
    """Yield the numbers of the rounds to play, until it is enough."""
    if arguments.round or arguments.history:
        yield from arguments.round or arguments.history
        return
    ended_by = time.monotonic() + arguments.seconds
    subject = (lambda number: histories.drawn(arguments.seed, number)) if arguments.histories else subject_of
    numbers = (number for number in itertools.count(1) if arguments.about in str(subject(number)))
    for number in itertools.islice(numbers, arguments.histories or arguments.rounds):
        if time.monotonic() > ended_by:
            return
        yield number


def main() -> int:
    """Play rounds and report; the exit code is 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="default: another one each time")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after so many seconds")
    parser.add_argument("--rounds", type=int, default=96, help="play so many rounds (96)")
    parser.add_argument("--about", default="", help="play only those whose subject has this word, such as dedup")
    parser.add_argument("--round", type=int, action="append", help="play this one; can be given several times")
    parser.add_argument("--histories", type=int, default=0, help="play so many histories, and no rounds")
    parser.add_argument("--history", type=int, action="append", help="play this one; can be given several times")
    parser.add_argument("--jobs", type=int, default=2, help="rounds or histories at a time (2)")
    arguments = parser.parse_args()
    say(f"seed {arguments.seed}")
    started = time.monotonic()
    verdicts = []
    play = histories.verdicts_of if arguments.histories or arguments.history else verdicts_of
    for verdict in play(arguments.seed, _numbers(arguments), arguments.jobs):
        verdicts.append(verdict)
        say(str(verdict))
        if verdict.violation:
            say(verdict.details(arguments.seed))
        elif arguments.round or arguments.history:
            say(*verdict.log)
    broken = [verdict for verdict in verdicts if verdict.violation]
    say("", summary(verdicts), f"seed {arguments.seed}, {time.monotonic() - started:.0f} s")
    if broken:
        say(f"BROKEN: {', '.join(str(verdict.number) for verdict in broken)}")
    return 1 if broken else 0


def say(*lines: str) -> None:
    """Print, at once."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
