"""What the trainer says after a resume in the middle of an epoch: of all its samples, and of the seconds they took."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import rankup
from ranks import run_ranks
from rankup.core.records import newest_records, read_records
from rankup.runtime.checkpointing import stop
from rankup.runtime.records import step_counts, training_records
from rankup.train import report as report_module
from rankup.train.loop import train
from rankup.train.options import TrainOptions
from rankup.train.report import TrainingReport
from rankup.workloads.linear import Linear

STEPS, BATCH, SAMPLES = 8, 16, 120  # the last batch has 8


class Timed(Linear):
    """Each forward in training takes one second of ``clock``, and asks to stop after ``until`` of them."""

    def __init__(self, directory: str, until: int) -> None:
        super().__init__(str(SAMPLES))
        self.clock, self.until, self.directory = 0.0, until, directory

    def loss(self, output: Any, target: Any) -> Any:
        if output.requires_grad:
            self.clock += 1.0
        if self.until and self.clock == abs(self.until) and output.requires_grad == (self.until > 0):
            (Path(self.directory) / "STOP").write_text("user 0\n")
        return super().loss(output, target)


def attempt(directory: str, until: int) -> dict[str, Any]:
    os.environ["RANKUP_RUN_DIR"] = directory
    stop.AGREE_EVERY_S = 0.0
    work = Timed(directory, until)
    training_records.SHORTEST = 0.0  # a record per step
    clock = lambda: 1000.0 * until + work.clock  # noqa: E731
    report_module.time.perf_counter = step_counts._clock = clock  # type: ignore[assignment, misc]
    run = rankup.init(seed=3, precision="fp64", snapshots=rankup.Snapshots(every="off"))
    options = TrainOptions(
        "", "linear", data="synthetic", epochs=3, global_batch=BATCH, optimizer="sgd", lr=0.01, log_interval=1
    )
    report = TrainingReport(run, options, work)
    try:
        train(run, work, options, report)
    except SystemExit:
        return {}
    return {
        name: value
        for name, value in report.ends().items()
        if name in ("samples", "train_seconds", "seconds")
    }


def epochs(directory: Path) -> list[dict[str, Any]]:
    (directory / "STOP").unlink(missing_ok=True)
    return read_records(directory / "records" / "epochs.jsonl", "epoch")


# After 11 steps in training; or in the evaluation behind the second epoch.
@pytest.mark.repeated
@pytest.mark.parametrize("until", [11, -16])
@pytest.mark.parametrize(("world_size", "then"), [(1, 1), (3, 2)])
def test_seconds_and_samples_are_of_the_same_steps(tmp_path: Path, until: int, world_size: int, then: int):
    assert run_ranks(attempt, world_size, str(tmp_path), until) == [{}] * world_size
    before = epochs(tmp_path)
    (totals, *_) = run_ranks(attempt, then, str(tmp_path), 0)
    records = epochs(tmp_path)
    assert [record["epoch"] for record in records] == [1, 2, 3]
    assert len(before) == 1
    for record in records:
        assert (record["samples"], record["seconds"]) == (SAMPLES, STEPS)
    assert totals == {"samples": 3 * SAMPLES, "train_seconds": 3.0 * STEPS, "seconds": 3.0 * STEPS}
    steps = newest_records(read_records(tmp_path / "records" / "steps.jsonl"))
    assert len(steps) > 3 * STEPS
    for step in (record for record in steps if record["kind"] == "step"):
        assert step["samples"] == min(step["step"] * BATCH, SAMPLES)
        assert step["samples_per_s"] == step["samples"] / step["step"]
