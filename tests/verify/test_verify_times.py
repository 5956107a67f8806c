"""A time that a script writes is no difference of a resume, however it is rounded."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from verify_records import attempt, step

from rankup.verify.attempts import STARTUP, AttemptFailed
from rankup.verify.files import Digests
from rankup.verify.scenario import Reference
from rankup.verify.times import without_times
from rankup.verify.trace_reader import AttemptTrace

CLOCKS = """
import threading, time
began = [time.time(), time.monotonic(), time.perf_counter_ns() / 1e9]
real = time.clock_gettime(time.CLOCK_MONOTONIC)
threading.Event().wait(0.2)
waited = time.clock_gettime(time.CLOCK_MONOTONIC) - real
now = [time.time(), time.monotonic(), time.perf_counter_ns() / 1e9]
assert waited >= 0.2, waited
print(*(round((b - a) / waited) for a, b in zip(began, now)))
"""


def test_the_scripts_clocks_run_faster_and_no_wait_is_shorter():
    env = {**os.environ, "PYTHONPATH": str(STARTUP), "RANKUP_CLOCK": "61"}
    done = subprocess.run([sys.executable, "-c", CLOCKS], env=env, capture_output=True, text=True, check=True)
    assert all(55 < int(word) < 70 for word in done.stdout.split()), done.stdout


class Trials:
    """Gives the training with the faster clock."""

    def __init__(self, faster: AttemptTrace | None, wrote: Digests) -> None:
        self.faster, self.wrote, self.files = faster, wrote, self
        self.asked: dict[str, str] = {}

    def uninterrupted(self, what: str, env: dict[str, str]) -> AttemptTrace:
        self.asked = env
        if self.faster is None:
            raise AttemptFailed("failed", "it does not stand faster clocks")
        return self.faster

    def after_training(self) -> Digests:
        return self.wrote

    def put_back(self) -> None: ...


def printed(line: str, weight: str = "a") -> AttemptTrace:
    return replace(attempt(step(1, state={"model/w": weight})), printed=(line,))


@pytest.mark.parametrize(
    ("resumed", "faster", "left"),
    [
        ("loss 0.5 in 0 s", printed("loss 0.5 in 61 s"), ["log.csv", "the line 'loss 0.5 in 1 s'"]),
        ("best 0.1", None, []),  # it failed: nothing is known
        ("loss 0.4 in 1 s", printed("loss 0.5 in 1 s"), ["log.csv"]),  # a loss that is another one stays
        ("loss 0.5 in 0 s", printed("loss 0.5 in 61 s", weight="b"), []),  # it trains by its clock
    ],
    ids=["a time", "it fails", "no time", "steps by a clock"],
)
def test_what_changes_with_the_clock_is_a_time(resumed: str, faster: AttemptTrace | None, left: list[str]):
    first = printed("loss 0.5 in 1 s")
    reference = Reference(first, first, ({"log.csv": "1"}, {"log.csv": "1"}), frozenset())
    trial: Any = Trials(faster, {"log.csv": "61"})
    timed, said = without_times(trial, reference, printed(resumed), {"log.csv": "0"})
    assert list(said) == left and float(trial.asked["RANKUP_CLOCK"]) > 10
    assert (timed is not reference) == bool(left)


def test_what_already_differed_stays_left_out():
    """A number that the second training has and the third has not is not compared, as before."""
    first = printed("loss 0.5 in 1 s")
    reference = Reference(
        first, printed("loss 0.5 in 2 s"), ({"tag": "1", "log": "1"}, {"tag": "2", "log": "1"}), frozenset()
    )
    trial: Any = Trials(first, {"tag": "1", "log": "61"})
    timed, said = without_times(trial, reference, printed("loss 0.5 in 3 s"), {"tag": "3", "log": "0"})
    assert list(said) == ["log"] and timed.files[1] == {"tag": "2", "log": "61"}
    assert timed.again.printed == ("loss 0.5 in 2 s",)


def test_where_nothing_differs_nothing_is_repeated():
    first = printed("loss 0.5")
    reference = Reference(first, first, ({"log.csv": "1"}, {"log.csv": "1"}), frozenset())
    trial: Any = Trials(None, {})
    assert without_times(trial, reference, first, {"log.csv": "1"}) == (reference, ()) and not trial.asked
