"""A training holds its nodes for hours. Here it ends at once, so what was started in the background waits a moment:
until the script has done nothing new for a while. So later steps find the nodes as busy as they would be."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from typing import Any

from rankup.rehearse.log import read
from rankup.rehearse.stand_ins.context import Here

QUIET = 0.8  # seconds
_STARTS = ("launch", "program")
_SLEEPS = 3  # in a row are a script between two launches; more of them, a loop that waits for the training


@contextlib.contextmanager
def steps(here: Here) -> Iterator[dict[str, Any]]:
    """The state of all steps: ``{"next": number, "held": {step: [hosts]}}``, locked, and written back."""
    path = here.scenario.scratch / "steps.json"
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        state: dict[str, Any] = json.loads(text) if text else {"next": 0, "held": {}}
        yield state
        file.seek(0)
        file.truncate()
        file.write(json.dumps(state))
        file.flush()


def trains(here: Here, group: str) -> bool:
    """Whether a process of ``group`` was a training."""
    return any(
        event["kind"] == "program" and f"{event['group']}/".startswith(f"{group}/")
        for event in read(here.scenario.log)
    )


def wait_until_quiet(here: Here) -> None:
    """Until no process was started for a while."""
    while True:
        last, sleeps = 0.0, 0
        for event in read(here.scenario.log):
            sleeps = sleeps + 1 if event["kind"] == "sleep" else 0 if event["kind"] in _STARTS else sleeps
            if event["kind"] in _STARTS or (event["kind"] == "sleep" and sleeps <= _SLEEPS):
                last = max(last, event["time"])
        left = last + QUIET - time.time()
        if left <= 0:
            return
        time.sleep(min(left, 0.2))
