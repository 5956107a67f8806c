"""What records and ``run.log`` cost of a step: the tiny network of ``steps``, with them and without, in one process.

Half a percent is less than two processes of one program differ. So one training goes on and on, in turns of 50 steps
with and without records; a round is the median of 40 such turns. The clock runs from the first step's body to the
last one's: what a loop does once at its begin and end does not count. Nor does the writing of a record, twice a second,
which the median leaves out.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.contest import Claim, Result, Rounds, take_turns
from benchmarks.steps import BATCH, network, samples, sgd

STEPS, TURNS = 50, 40
WITHOUT, WITH, LOGGED = "without records", "records", "records, run.log(loss=loss) in each step"


def run(quick: bool) -> Result:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RANKUP_RUN_DIR"] = folder
        try:
            measures = contenders()
        finally:
            del os.environ["RANKUP_RUN_DIR"]  # the next bench's processes are not of this run
        take_turns(measures, 3)
        rounds: Rounds = {name: [] for name in measures}
        for _ in range(3 if quick else 21):
            for name, values in take_turns(measures, TURNS).items():
                rounds[name].append(statistics.median(values))
        written = len((Path(folder) / "records" / "steps.jsonl").read_text().splitlines())
    added = {name: statistics.median(rounds[name]) - statistics.median(rounds[WITHOUT]) for name in rounds}
    return Result(
        "records",
        "What records cost of a step",
        "µs/step",
        {"steps of a turn": STEPS, "turns of a round": TURNS, "batch": BATCH, "network": "MLP 64-32-10"},
        rounds,
        [
            Claim("a step with records / without", WITH, WITHOUT, 1.01, at_most=True),
            Claim("a step with records and run.log / without", LOGGED, WITHOUT, 1.01, at_most=True),
        ],
        [
            f"Added: {added[WITH]:.1f} µs by records, {added[LOGGED]:.1f} µs with a logged tensor; {written} records."
        ],
    )


def contenders() -> dict[str, Callable[[], float]]:
    from rankup import Snapshots
    from rankup.runtime.data.resident import ResidentData
    from rankup.runtime.init import init

    run = init(device="cpu", snapshots=Snapshots(every="off"))
    model, optimizer, data = run.prepare(network(), sgd, ResidentData(*samples(STEPS)), global_batch=BATCH)
    context = run._context
    kept = context.records
    absent: Any = _Absent(kept)

    batches = iter(run.steps(data, epochs=1_000_000))

    def play(*, records: Any, logs: bool) -> float:  # an epoch of one loop
        context.records = records
        for number, (x, y) in enumerate(itertools.islice(batches, STEPS)):
            if number == 0:
                began = time.perf_counter()
            loss = F.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
            if logs:
                run.log(loss=loss)
            ended = time.perf_counter()
        return 1e6 * (ended - began) / STEPS

    return {
        WITHOUT: lambda: play(records=absent, logs=False),
        WITH: lambda: play(records=kept, logs=False),
        LOGGED: lambda: play(records=kept, logs=True),
    }


class _Absent:
    """Records that count nothing in a step."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def begin_steps(self) -> _Absent:
        self._records.begin_steps()  # an epoch is noted all the same
        return self

    def batch_got(self, samples: int) -> None:
        pass

    def batch_done(self) -> None:
        pass

    def steps_done(self, steps: int, batch: Any, global_step: int) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._records, name)
