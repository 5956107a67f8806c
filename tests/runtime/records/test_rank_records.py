"""``records/rank-R.jsonl``: what each rank does, and how slow is told from waiting."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.core.records import read_records
from rankup.core.rundir import RUN_DIR_VARIABLE
from rankup.runtime.records import rank_records
from rankup.runtime.records.rank_records import RankRecords
from rankup.runtime.records.step_counts import StepCounts

SLOW = 0.05  # seconds


def training(directory: str, slow: int = -1, epochs: int = 2) -> None:
    os.environ[RUN_DIR_VARIABLE] = directory
    Path(directory, "records").mkdir(exist_ok=True)
    rank_records.EARLY = 0.02
    run = rankup.init(seed=1, snapshots=rankup.Snapshots(every="off"))
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1e-4), rankup.ResidentData(torch.ones(32, 1)),
        global_batch=8,
    )  # fmt: skip
    for epoch in run.epochs(epochs, data):
        for x in epoch:
            if run.world.rank == slow:
                time.sleep(SLOW)
            loss = model(x).square().mean()
            run.backward(loss)
            run.step(opt)
            run.log(accuracy=0.5, loss=loss)
        time.sleep(0.1)  # the code after the inner loop
    assert not [one for one in threading.enumerate() if one.name == "rankup-rank-records"]


def records_of(folder: Path, rank: int) -> list[dict[str, Any]]:
    return read_records(folder / "records" / f"rank-{rank}.jsonl")


@pytest.mark.parametrize("world_size", [1, 2])
def test_each_rank_tells_what_it_does(tmp_path: Path, world_size: int):
    run_ranks(training, world_size, str(tmp_path))
    for rank in range(world_size):
        records = records_of(tmp_path, rank)
        last = records[-1]
        assert (last["rank"], last["world_size"], last["phase"]) == (rank, world_size, "ended")
        assert (last["global_step"], last["steps"], last["samples"]) == (8, 8, 64 // world_size)
        assert last["gpu"] is None and last["host"] == os.uname().nodename and last["memory_bytes"] > 1 << 20
        assert isinstance(last["loss"], float) and last["loss"] != 0.5
        assert {one["phase"] for one in records} <= {"data", "step", "arrived", "after-epoch", "ended"}
        assert "after-epoch" in {one["phase"] for one in records}
        # A lone rank waits for nobody; of several, steps that are handed out by themselves are timed.
        assert 3 <= last["before_steps"] <= 8 if world_size > 1 else last["before_steps"] == 0
        assert last["data_s"] + last["before_s"] <= 2 * last["seconds"]


def test_a_slow_rank_is_told_from_one_that_waits(tmp_path: Path):
    run_ranks(training, 2, str(tmp_path), 1)
    fast, slow = (records_of(tmp_path, rank)[-1] for rank in (0, 1))
    assert slow["before_s"] >= 8 * SLOW
    assert fast["seconds"] >= 8 * SLOW  # its steps take as long,
    assert fast["before_s"] < fast["seconds"] - 4 * SLOW  # because it waits in them


def test_a_rank_that_waits_tells_it_although_it_finishes_no_step(tmp_path: Path):
    run_ranks(training, 2, str(tmp_path), 1)
    assert "arrived" in {one["phase"] for one in records_of(tmp_path, 0)}
    assert "step" in {one["phase"] for one in records_of(tmp_path, 1)}


def test_a_resumed_run_appends_whole_lines(tmp_path: Path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "rank-0.jsonl").write_text('{"kind": "rank", "ti')
    run_ranks(training, 1, str(tmp_path))
    assert len({one["pid"] for one in records_of(tmp_path, 0)}) == 1


def test_records_that_cannot_be_written_end_no_training(tmp_path: Path):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "rank-0.jsonl").mkdir()
    run_ranks(training, 1, str(tmp_path))


def test_a_run_directory_that_is_deleted_ends_no_training(tmp_path: Path):
    path = tmp_path / "rank-0.jsonl"
    own = RankRecords(path, 0, 1, torch.device("cpu"), "", StepCounts(0, None))
    before = rank_records.EARLY
    rank_records.EARLY = 0.01
    try:
        own.begin()
        path.unlink()
        own._thread.join(30)
        assert not own._thread.is_alive() and not path.exists()
        own.end()
    finally:
        rank_records.EARLY = before
