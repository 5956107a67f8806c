"""What a training tells of itself: records, progress and loggers."""

from __future__ import annotations

import csv
import io
import json
import logging
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.core.records import RecordWriter, newest_records, read_records
from rankup.core.rundir import RUN_DIR_VARIABLE
from rankup.runtime.records import progress_display, training_records
from rankup.runtime.records.progress_display import ProgressDisplay


def training(directory: str, log: str = "", stop_at: int = 0, epochs: int = 3) -> list[dict[str, Any]]:
    """12 samples, batches of 5: three steps an epoch, the last of two samples."""
    import os

    if directory:
        os.environ[RUN_DIR_VARIABLE] = directory
        Path(directory, "records").mkdir(exist_ok=True)
    training_records.SHORTEST = 0.0  # a record for each step
    run = rankup.init(seed=1, log=log, snapshots=rankup.Snapshots(every="1 epoch", asynchronous=False))
    x = torch.arange(12.0)[:, None]
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1e-4), rankup.ResidentData(x), global_batch=5
    )
    for epoch in run.epochs(epochs, data):
        for a in epoch:
            loss = model(a).square().mean()
            run.backward(loss)
            run.step(opt)
            run.log(loss=loss)
            run.log(over_ranks=True, everywhere=float(run.world.rank))
            if run.global_step + 1 == stop_at:
                return []
        run.log(reached=epoch.index + 0.5)
        assert epoch.samples == 12 and epoch.seconds > 0
    return read_records(Path(directory) / "records" / "steps.jsonl") if directory else []


def test_optimizer_steps_are_told_apart_from_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A body that leaves out its batch takes none; one that another optimizer takes inside of its own is the same."""
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    (tmp_path / "records").mkdir()

    class Outer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            inner = torch.optim.SGD(self.param_groups[0]["params"], lr=0.1)
            inner.step()

    run = rankup.init()
    x = torch.arange(12.0)[:, None]
    model, opt, data = run.prepare(
        nn.Linear(1, 1), lambda p: Outer(p, lr=1e-4), rankup.ResidentData(x), global_batch=3
    )
    for number, a in enumerate(run.steps(data, steps=4)):
        if number == 2:
            continue
        model(a).square().mean().backward()
        opt.step()
    end = read_records(tmp_path / "records" / "steps.jsonl", "end")[0]
    assert (end["steps"], end["optimizer_steps"]) == (4, 3)


@pytest.mark.parametrize("world_size", [pytest.param(1, marks=pytest.mark.campaign), 3])
def test_records_tell_each_step_of_all_ranks(tmp_path: Path, world_size: int):
    records = run_ranks(training, world_size, str(tmp_path))[0]
    begin, *steps, end = records
    assert [record["kind"] for record in records] == ["begin", *["step"] * 9, "end"]
    assert begin["facts"]["world_size"] == world_size and begin["facts"]["global_batch"] == 5
    assert [step["samples"] for step in steps] == [5, 10, 12] * 3
    assert [(step["epoch"], step["step"], step["steps"]) for step in steps][:4] == [
        (1, 1, 3),
        (1, 2, 3),
        (1, 3, 3),
        (2, 1, 3),
    ]
    assert [step["global_step"] for step in steps] == list(range(1, 10))
    assert {step["goal"] for step in steps} == {9} and steps[-1]["left"] >= 0
    # Weighed by samples: of 5 samples 3 ranks have 2, 2, 1; of 2 samples 1, 1, 0.
    expected = [0.8, 0.8, 0.5] if world_size == 3 else [0.0] * 3
    assert [step["metrics"]["everywhere"] for step in steps[:3]] == pytest.approx(expected)
    assert (end["samples"], end["steps"], end["warm_samples"]) == (36, 9, 24)
    assert end["optimizer_steps"] == 9
    epochs = read_records(tmp_path / "records" / "epochs.jsonl", "epoch")
    assert [(one["samples"], one["metrics"]["reached"]) for one in epochs] == [
        (12, 0.5),
        (12, 1.5),
        (12, 2.5),
    ]


def test_a_resumed_run_counts_on_and_newest_records_leave_out_what_was_trained_again(tmp_path: Path):
    run_ranks(training, 1, str(tmp_path), "", 5)  # left in the second epoch, saved after the first
    records = run_ranks(training, 1, str(tmp_path))[0]
    assert [record["attempt"] for record in records if record["kind"] == "begin"] == [1, 2]
    steps = [record for record in newest_records(records) if record["kind"] == "step"]
    assert [(step["global_step"], step["attempt"]) for step in steps][:5] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 2),
    ]
    assert [step["samples"] for step in steps] == [5, 10, 12] * 3
    assert all(a["seconds"] < b["seconds"] for a, b in pairwise(steps))


def test_csv_has_every_number_once_a_step_and_is_appended_to_by_a_resume(tmp_path: Path):
    run_ranks(training, 2, str(tmp_path), "csv", 0, 1)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["name"] for row in rows} == {"loss", "everywhere", "reached"}
    assert [row["step"] for row in rows if row["name"] == "loss"] == ["1", "2", "3"]


def rows_of(path: Path) -> list[tuple[int, str]]:
    with path.open(newline="") as file:
        return [(int(row["step"]), row["name"]) for row in csv.DictReader(file)]


def test_csv_has_what_is_trained_again_once(tmp_path: Path):
    run_ranks(training, 1, str(tmp_path), "csv", 5)  # left in the second epoch, saved after the first
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("6,lo")  # a crash cuts a row off
    run_ranks(training, 1, str(tmp_path), "csv")
    rows = rows_of(tmp_path / "metrics.csv")
    assert sorted(rows) == sorted(set(rows))
    assert [step for step, name in rows if name == "loss"] == list(range(1, 10))


def test_csv_of_a_training_that_is_done_stays_as_it_is(tmp_path: Path):
    run_ranks(training, 1, str(tmp_path), "csv", 0, 2)
    before = (tmp_path / "metrics.csv").read_bytes()
    run_ranks(training, 1, str(tmp_path), "csv", 0, 2)
    assert (tmp_path / "metrics.csv").read_bytes() == before


def test_tensorboard_purges_what_is_trained_again(tmp_path: Path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run_ranks(training, 1, str(tmp_path), "tensorboard", 5)
    run_ranks(training, 1, str(tmp_path), "tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == list(range(1, 10))


def two_trainings(directory: str) -> None:
    for _ in range(2):
        training(directory, "csv", 0, 1)


def test_trainings_without_a_name_log_to_files_of_their_own(tmp_path: Path):
    run_ranks(two_trainings, 1, str(tmp_path))
    both = [rows_of(tmp_path / name) for name in ("metrics.csv", "metrics-training-2.csv")]
    assert both[0] == both[1] and len(both[0]) == len(set(both[0]))


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("tensorboard", "tensorboard/events.*"),
        ("mlflow", "mlruns/*/*/metrics/loss"),
        ("wandb", "wandb/offline-run-*"),
    ],
)
def test_loggers_write_to_the_run_directory_without_an_account(tmp_path: Path, name: str, pattern: str):
    pytest.importorskip(name)
    run_ranks(training, 1, str(tmp_path), name, 0, 1)
    assert list(tmp_path.glob(pattern))


@pytest.mark.parametrize("log", ["csvv", "csv,tensorbord"])
def test_an_unknown_logger_is_one_error(log: str):
    with pytest.raises(rankup.RankupError) as refused:
        rankup.init(log=log)
    assert refused.value.code == "unknown-logger"


@pytest.mark.parametrize("value", [torch.zeros(2), torch.tensor(1j), "a", None, [1.0]])
def test_what_is_not_one_number_is_refused(value: Any):
    with pytest.raises(rankup.RankupError) as refused:
        rankup.init().log(loss=value)
    assert refused.value.code == "not-a-number"


def test_the_metric_of_the_retention_is_saved_with_the_snapshots():
    keep = rankup.Retention(best=1, metric="accuracy", mode="max")
    run = rankup.init(snapshots=rankup.Snapshots(keep=keep))
    model, opt, data = run.prepare(
        torch.nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(4, 1)),
        global_batch=4,
    )
    for _ in run.steps(data, epochs=1):
        run.log(accuracy=torch.tensor(0.5), loss=1.0)
    assert run.state.state_dict()["metadata"]["metrics"] == {"accuracy": 0.5}


def test_what_the_device_still_has_to_do_belongs_to_a_loop_that_ends_within_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A GPU still works when the loop has ended: without waiting, its last steps would take no time."""
    monkeypatch.setenv(RUN_DIR_VARIABLE, str(tmp_path))
    late = 0.2
    monkeypatch.setattr(training_records.TrainingRecords, "_wait_for_device", lambda _: time.sleep(late))
    run = rankup.init()
    model, opt, data = run.prepare(
        torch.nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(8, 1)),
        global_batch=2,
    )
    for x in run.steps(data, steps=2):
        run.backward(model(x).square().mean())
        run.step(opt)
    *_, end = [one for one in read_records(tmp_path / "records" / "steps.jsonl") if "seconds" in one]
    assert end["seconds"] >= late, end


def test_the_numbers_of_an_epoch_are_saved_with_the_snapshots_and_restored():
    first, second = rankup.init(), rankup.init()
    first.log(accuracy=torch.tensor(0.5), loss=1.0)
    saved = first.state.state_dict()
    second.state.load_state_dict(saved)
    assert second.state.state_dict()["metadata"]["metrics"] == {"accuracy": 0.5, "loss": 1.0}


RECORD = {
    **{"epoch": 2, "epochs": 4, "step": 5, "steps": 10, "global_step": 15, "goal": 40},
    **{"samples_per_s": 1234.5, "left": 75.0, "metrics": {"loss": 0.31249}},
}


def test_a_bar_is_erased_before_the_script_prints(monkeypatch: pytest.MonkeyPatch):
    terminal, out = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(progress_display, "_QUIET_S", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    display = ProgressDisplay(terminal)
    display.show(RECORD)
    assert "38%  epoch 2/4  step 5/10  loss 0.3125  1,234 samples/s  left 1 min 15 s" in terminal.getvalue()
    print("mine")
    assert terminal.getvalue().endswith("\r\x1b[2K") and out.getvalue() == "mine\n"
    written = terminal.getvalue()
    print("again")
    assert terminal.getvalue() == written
    monkeypatch.setattr(terminal, "close", lambda: None)
    display.close()
    assert sys.stdout is out


def test_a_log_gets_lines_with_growing_pauses(monkeypatch: pytest.MonkeyPatch):
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    now = [0.0]
    monkeypatch.setattr(progress_display, "perf_counter", lambda: now[0])
    display = ProgressDisplay(None)
    lines = []
    for second in range(3600):
        now[0] = float(second)
        display.show(RECORD)
        if len(err.getvalue().splitlines()) > len(lines):
            lines.append(second)
    pauses = [b - a for a, b in pairwise(lines)]
    assert lines[0] == 10 and pauses == sorted(pauses) and pauses[-1] == 300
    assert err.getvalue().startswith("epoch 2/4  step 5/10  loss 0.3125")


def test_records_are_json_also_with_a_nan(tmp_path: Path):
    run_ranks(logs_in_many_places, 1, str(tmp_path))
    for line in (tmp_path / "records" / "steps.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


def logs_in_many_places(directory: str) -> list[dict[str, Any]]:
    """Two loops; a number at the third step, after the loops, before a break, and a tensor that is changed."""
    import os

    os.environ[RUN_DIR_VARIABLE] = directory
    Path(directory, "records").mkdir(exist_ok=True)
    training_records.SHORTEST = 1e9  # the first step has a record, and the end
    run = rankup.init(log="csv")
    data = rankup.ResidentData(torch.ones(12, 1))
    model, opt, _ = run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=1e-4), data, global_batch=4)
    total = torch.zeros(())
    for goal in (6, 12):
        for x in run.steps(None, steps=6):
            run.backward(model(x).mean())
            run.step(opt)
            total += 1
            run.log(total=total, bad=float("nan"))
            total.zero_()
            if run.global_step + 1 == 3:
                run.log(rare=3.0)
            if run.global_step + 1 == 11:
                run.log(leaves=11.0)
                break
        run.log(after=float(goal))
        run.prepare(model, None, data, global_batch=4)
    return read_records(Path(directory) / "records" / "steps.jsonl")


def test_a_number_is_told_at_the_step_at_which_it_was_logged(tmp_path: Path):
    records = run_ranks(logs_in_many_places, 1, str(tmp_path))[0]
    told = {(name, record["global_step"]) for record in records for name in record.get("metrics", {})}
    assert {("rare", 3), ("after", 6), ("after", 11), ("leaves", 11), ("total", 1), ("total", 6)} <= told
    assert not {("rare", 6), ("after", 7), ("after", 12)} & told
    assert {record["metrics"]["total"] for record in records if "total" in record.get("metrics", {})} == {1.0}
    assert {record["attempt"] for record in records} == {1}
    assert [record["global_step"] for record in records if record["kind"] == "step"] == [1, 3, 6, 9, 11]
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = [(row["name"], row["step"]) for row in csv.DictReader(file)]
    assert len(rows) == len(set(rows))
    assert {("rare", "3"), ("after", "11")} <= set(rows)


def logs_a_shard() -> str:
    run = rankup.init(strategy="fsdp")
    data = rankup.ResidentData(torch.ones(4, 4))
    model, *_ = run.prepare(nn.Linear(4, 4), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=4)
    with pytest.raises(rankup.RankupError) as refused:
        run.log(norm=model.weight.norm())
    return refused.value.message


def test_a_part_of_a_sharded_tensor_is_refused():
    said = "run.log(norm=…) got a part of a sharded tensor, and a metric is one number"
    assert set(run_ranks(logs_a_shard, 2)) == {said}


def test_a_line_that_was_cut_stays_a_line_of_its_own(tmp_path: Path):
    path = tmp_path / "steps.jsonl"
    path.write_text('{"kind": "step", "ti')
    with RecordWriter(path) as records:
        records.write("begin", attempt=2)
    assert [record["kind"] for record in read_records(path)] == ["begin"]


def test_a_bar_does_not_erase_a_line_that_the_script_has_not_ended(monkeypatch: pytest.MonkeyPatch):
    terminal, out = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(progress_display, "_QUIET_S", 0.0)
    display = ProgressDisplay(terminal)
    print("epoch 0: ", end="")
    display.show(RECORD)
    assert terminal.getvalue() == ""
    print("loss 1")
    display.show(RECORD)
    assert "epoch 2/4" in terminal.getvalue()
    display.close()


def numbers_outside_of_the_loop(directory: str) -> list[dict[str, Any]]:
    import os

    os.environ[RUN_DIR_VARIABLE] = directory
    Path(directory, "records").mkdir(exist_ok=True)
    run = rankup.init()
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.0),
        rankup.ResidentData(torch.zeros(4, 1)),
        global_batch=2,
    )
    run.log(accuracy=0.1)  # of the model before its training
    for number in (1, 2):
        for x in run.steps(data, epochs=1):
            run.backward(model(x).mean())
            run.step(opt)
        run.log(accuracy=float(number))
        _, _, data = run.prepare(model, None, rankup.ResidentData(torch.zeros(4, 1)), global_batch=2)
    return read_records(Path(directory) / "records" / "epochs.jsonl", "epoch")


def test_a_number_that_was_logged_before_a_loop_is_none_of_its_first_epoch(tmp_path: Path):
    epochs = run_ranks(numbers_outside_of_the_loop, 1, str(tmp_path))[0]
    assert ["accuracy" in one["metrics"] for one in epochs] == [False, False]
    logged = read_records(tmp_path / "records" / "steps.jsonl", "log")
    assert [(one["global_step"], one["metrics"]["accuracy"]) for one in logged] == [
        (0, 0.1),
        (2, 1.0),
        (4, 2.0),
    ]


def test_a_bar_is_erased_before_an_older_handler_of_logging_writes_and_before_a_question(
    monkeypatch: pytest.MonkeyPatch,
):
    script, terminal = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", script)
    monkeypatch.setattr(sys, "stderr", script)
    monkeypatch.setattr(progress_display, "_QUIET_S", 0.0)
    logger = logging.getLogger("rankup-test-of-an-older-handler")
    handler = logging.StreamHandler(script)
    logger.addHandler(handler)
    display = ProgressDisplay(terminal)
    record = {"epoch": 1, "step": 2, "steps": 4, "metrics": {}, "samples_per_s": 1.0, "left": None}
    try:
        display.show(record)
        logger.error("said")
        assert terminal.getvalue().endswith("\r\x1b[2K") and script.getvalue() == "said\n"
        display.show(record)
        assert not terminal.getvalue().endswith("\r\x1b[2K")
        sys.stderr.flush()  # what input() does first
        assert terminal.getvalue().endswith("\r\x1b[2K")
    finally:
        display.close()
        logger.removeHandler(handler)
    assert handler.stream is script
