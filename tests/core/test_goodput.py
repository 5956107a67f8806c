"""What the devices of a run did: device-hours, goodput, and the wait in the queue."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rankup.core.goodput import Goodput, goodput_of

BEGAN = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))  # the time of submission, by the name of the run


class Week:
    """A run on disk: attempts of two devices; each is told by what its records say of the time spent."""

    def __init__(self, root: Path, job: str = "4711") -> None:
        self.path = root / "20260301-120000-abcd"
        (self.path / "records").mkdir(parents=True)
        self._job = job
        self._number = 0

    def attempt(self, at: float) -> None:
        self._number += 1
        with (self.path / "attempts").open("a") as file:
            file.write(f"{self._number} {self._job} {int(BEGAN + at)} n1\n")

    def tell(
        self, kind: str, at: float, trained: float, evaluating: float = 0.0, saving: float = 0.0
    ) -> None:
        spent = {"trained": trained, "evaluating": evaluating, "saving": saving}
        facts: dict[str, Any] = {"facts": {"world_size": 2}} if kind == "begin" else {}
        line = {"kind": kind, "time": BEGAN + at, "training": "", "global_step": 0, "spent": spent, **facts}
        name = "epochs.jsonl" if kind == "epoch" else "steps.jsonl"
        with (self.path / "records" / name).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def alive(self, at: float) -> None:
        with (self.path / "records" / "rank-0.jsonl").open("a") as file:
            file.write(json.dumps({"kind": "rank", "time": BEGAN + at}) + "\n")

    def end(self, at: float, word: str = "done") -> None:
        (self.path / "outcome").write_text(word)
        (self.path / "exit_code").write_text("0")
        os.utime(self.path / "exit_code", (BEGAN + at, BEGAN + at))


@pytest.fixture
def week(tmp_path: Path) -> Week:
    """100 s in the queue; 10 s to start; trained 50 s, of which 20 s again after the loss of a node, for which rank 0
    waited 30 s; 40 s in the queue; then to the end."""
    week = Week(tmp_path)
    week.attempt(100)
    week.tell("begin", 110, 0.0)
    week.tell("step", 160, 2 * 48.0, saving=2 * 2.0)
    week.alive(190)
    week.attempt(230)
    week.tell("begin", 245, 2 * 30.0, saving=2 * 1.0)
    week.tell("step", 305, 2 * 90.0, saving=2 * 1.0)
    week.tell("epoch", 315, 2 * 90.0, 2 * 10.0, saving=2 * 1.0)
    week.end(320)
    return week


def test_every_second_of_every_device_is_something_once(week: Week):
    found = goodput_of(week.path)
    assert found == Goodput(
        attempts=2,
        trained=180,
        evaluating=20,
        saving=2,
        starting=50,
        lost=2 * (18 + 1 + 30),
        other=10,
        queue=140,
    )
    assert found.held == 2 * (90 + 90)
    assert found.share == 0.5
    assert found.line() == (
        "goodput 50.0% over 2 attempts: trained 180 of 360 device-seconds (evaluating 20, saving 2, "
        "starting 50, lost 98, other 10); queue: 2 min 20 s"
    )
    long = dataclasses.replace(found, trained=180_000)
    assert "trained 50 of 50 device-hours (evaluating 0.00556, " in long.line()


def test_ranks_that_are_restarted_within_an_attempt_lose_what_they_train_again(tmp_path: Path):
    week = Week(tmp_path)
    week.attempt(0)
    week.tell("begin", 0, 0.0)
    week.tell("step", 50, 100.0)
    week.tell("begin", 60, 40.0)
    week.tell("end", 120, 160.0)
    week.end(120)
    found = goodput_of(week.path)
    assert found is not None and (found.trained, found.lost) == (160, 60)


def test_what_the_sums_of_numbers_round_away_is_not_lost(tmp_path: Path):
    week = Week(tmp_path)
    week.attempt(0)
    for at, trained in enumerate((0.0, 0.1, 0.2, 0.7, 2.9)):
        week.tell("step" if at else "begin", at, trained)
    week.end(5)
    found = goodput_of(week.path)
    assert found is not None and found.lost == 0.0
    assert "lost" not in found.line()


def test_the_queue_is_not_known_outside_a_scheduler(tmp_path: Path):
    week = Week(tmp_path, job="77.1700000000@here")
    week.attempt(100)
    week.tell("begin", 110, 0.0)
    week.end(200)
    found = goodput_of(week.path)
    assert found is not None and found.queue is None
    assert "queue" not in found.line()


def test_an_attempt_that_never_came_to_its_loop_is_lost_if_another_one_followed(tmp_path: Path):
    week = Week(tmp_path)
    week.attempt(0)
    week.alive(30)
    week.attempt(40)
    week.tell("begin", 40, 0.0)
    week.tell("end", 90, 100.0)
    week.end(90)
    found = goodput_of(week.path)
    assert found is not None and (found.lost, found.trained, found.starting) == (60, 100, 0)


def test_a_month_has_the_attempts_that_began_in_it(week: Week):
    assert goodput_of(week.path, since=BEGAN + 200) == Goodput(1, 120, 20, 0, 30, 0, 10, 40)
    assert goodput_of(week.path, since=BEGAN + 400) is None


def test_a_program_that_does_not_tell_what_it_does_has_none(tmp_path: Path):
    week = Week(tmp_path)
    week.attempt(0)
    assert goodput_of(week.path) is None


def test_the_script_of_a_job_prints_a_line_and_leaves_a_record(week: Week):
    said = subprocess.run(
        [sys.executable, "-m", "rankup.core.goodput", str(week.path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith("==== rankup: goodput 50.0% over 2 attempts")
    record = json.loads((week.path / "goodput.json").read_text())
    assert (record["goodput"], record["held"], record["queue"]) == (0.5, 360, 140)
