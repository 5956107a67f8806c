"""One training is one run of W&B and of MLflow: killed, and resumed by another process."""

from __future__ import annotations

import atexit
import json
import os
import signal
import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.core.rundir import RUN_DIR_VARIABLE
from rankup.runtime.loggers.earlier import EarlierAttempts
from rankup.runtime.records import training_records


def training(directory: str, log: str, killed_at: int = 0) -> None:
    """Three epochs of three steps. Killed at step ``killed_at``; the last snapshot is that of the epoch before."""
    os.environ[RUN_DIR_VARIABLE] = directory
    Path(directory, "records").mkdir(exist_ok=True)
    training_records.SHORTEST = training_records.LONGEST = 0.0  # a record for each step
    run = rankup.init(seed=1, log=log, snapshots=rankup.Snapshots(every="1 epoch", asynchronous=False))
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=1e-4),
        rankup.ResidentData(torch.arange(12.0)[:, None]),
        global_batch=5,
    )
    for epoch in run.epochs(3, data):
        for a in epoch:
            loss = model(a).square().mean()
            run.backward(loss)
            run.step(opt)
            run.log(loss=loss)
            if run.global_step + 1 == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
        run.log(reached=epoch.index + 0.5)
    atexit._run_exitfuncs()  # a rank of ``run_ranks`` leaves without them


def killed_and_resumed(folder: Path, log: str) -> None:
    """At step 6 numbers of step 5 are told, and the last snapshot is that of step 3."""
    with pytest.raises(AssertionError, match="without a word"):
        run_ranks(training, 1, str(folder), log, 6)
    run_ranks(training, 1, str(folder), log)


@pytest.mark.slow
def test_mlflow_has_one_run_with_every_step_once(tmp_path: Path):
    pytest.importorskip("mlflow")
    killed_and_resumed(tmp_path, "mlflow")
    (loss,) = tmp_path.glob("mlruns/*/*/metrics/loss")  # of one run
    assert [int(line.split()[2]) for line in loss.read_text().splitlines()] == list(range(1, 10))
    (reached,) = tmp_path.glob("mlruns/*/*/metrics/reached")
    assert [line.split()[1:] for line in reached.read_text().splitlines()] == [
        ["0.5", "3"],
        ["1.5", "6"],
        ["2.5", "9"],
    ]


@pytest.mark.slow
def test_wandb_offline_has_one_run_with_every_step_once(tmp_path: Path):
    pytest.importorskip("wandb")
    killed_and_resumed(tmp_path, "wandb")
    files = sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    idents = {file.parent.name.rpartition("-")[2] for file in files}
    assert len(files) == 2 and len(idents) == 1  # what is uploaded later replaces the other
    ident, rows = history(files[1])
    assert {ident} == idents
    assert [row["_step"] for row in rows if "loss" in row] == list(range(1, 10))
    assert [(row["_step"], row["reached"]) for row in rows if "reached" in row] == [
        (3, 0.5),
        (6, 1.5),
        (9, 2.5),
    ]


def history(file: Path) -> tuple[str, list[dict[str, Any]]]:
    """The id of the run in an offline file of W&B, and what was logged. The file is a log of LevelDB: blocks of 32 KiB
    of records, each with checksum, length and whether it is whole (1), a first, middle or last part (2, 3, 4)."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, parts, ident, rows = file.read_bytes(), 7, b"", "", []  # after W&B's own seven bytes
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record, parts = Record.FromString(parts), b""
            ident = record.run.run_id or ident
            if record.WhichOneof("record_type") == "history":
                rows.append(
                    {
                        item.key or item.nested_key[0]: json.loads(item.value_json)
                        for item in record.history.item
                    }
                )
    return ident, rows


class Wandb(types.ModuleType):
    """A stand-in of W&B with a server: it refuses what the real one drops, a step before the last one."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: dict[str, list[tuple[int, str]]] = {}

    def init(self, *, id: str, resume: str, reinit: str, mode: str, **_: Any) -> Any:
        assert (resume, reinit, mode) == ("allow", "create_new", "online")
        rows = self.runs.setdefault(id, [])
        start = rows[-1][0] + 1 if rows else 0

        def log(metrics: dict[str, float], step: int) -> None:
            assert step >= (rows[-1][0] if rows and rows[-1][0] >= start else start)
            rows.extend((step, name) for name in metrics)

        return types.SimpleNamespace(starting_step=start, log=log, finish=lambda: None)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Wandb:
    fake = Wandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.setenv("WANDB_MODE", "online")
    return fake


def test_wandb_online_gets_what_the_attempt_before_has_not_told(tmp_path: Path, wandb: Wandb):
    from rankup.core.records import RecordWriter
    from rankup.runtime.loggers.wandb_log import WandbLog

    first = WandbLog(tmp_path, {"training": ""}, EarlierAttempts(tmp_path, ""))
    with RecordWriter(tmp_path / "records" / "steps.jsonl") as records:
        for step in (1, 2, 3):
            records.write("step", training="", global_step=step, metrics={"loss": 1.0})
            first.log(step, {"loss": 1.0})
    # Killed before the number of the epoch at step 3; it resumes at step 1.
    second = WandbLog(tmp_path, {"training": ""}, EarlierAttempts(tmp_path, ""))
    for step, metrics in ((2, {"loss": 1.0}), (3, {"loss": 1.0}), (3, {"accuracy": 0.5}), (4, {"loss": 1.0})):
        second.log(step, metrics)
    (rows,) = wandb.runs.values()
    assert rows == [*((step, "loss") for step in (1, 2, 3)), (4, "accuracy"), (4, "loss")]


def test_trainings_with_names_are_runs_of_their_own_and_nothing_is_kept_without_a_run_directory(
    tmp_path: Path, wandb: Wandb
):
    from rankup.runtime.loggers.wandb_log import WandbLog

    for _ in range(2):
        for name in ("a", "b"):
            WandbLog(tmp_path, {"training": name}, EarlierAttempts(tmp_path, name))
    assert len(wandb.runs) == 2
    for _ in range(2):
        WandbLog(tmp_path, {"training": "a"}, EarlierAttempts(None, "a"))
    assert len(wandb.runs) == 4
