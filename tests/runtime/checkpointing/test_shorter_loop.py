"""A script that is edited to fewer epochs or steps than its snapshot has: nothing is trained, and rank 0 says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import rankup
from rankup.runtime.checkpointing import training_folder


@pytest.fixture(autouse=True)
def attempts(monkeypatch):
    """Each training below is one of a process of its own."""
    monkeypatch.setattr(training_folder, "_unnamed", {})


def train(folder: Path, *, leave_at: int = 0, **length: int) -> int:
    training_folder._unnamed.clear()
    run = rankup.init(snapshots=rankup.Snapshots(every="1 steps", directory=folder, asynchronous=False))
    model, opt, data = run.prepare(
        nn.Linear(1, 1),
        lambda p: torch.optim.SGD(p, lr=0.1),
        rankup.ResidentData(torch.ones(8, 1)),
        global_batch=2,
    )
    for x in run.steps(data, **length):
        run.backward(model(x).mean())
        run.step(opt)
        if leave_at and run.global_step + 1 > leave_at:
            break
    return run.global_step


@pytest.mark.parametrize("length", [{"epochs": 1}, {"steps": 4}])
def test_a_loop_that_is_shorter_than_its_snapshot_is_warned_of(length, tmp_path, capsys):
    train(tmp_path, leave_at=6, epochs=3)
    assert train(tmp_path, **length) == 6
    said = capsys.readouterr().err
    assert said.count(": nothing is trained, and the weights are those of the snapshot") == 1


@pytest.mark.parametrize("length", [{"epochs": 2}, {"epochs": 5}, {"steps": 6}])
def test_a_loop_that_holds_its_snapshot_is_not_warned_of(length, tmp_path, capsys):
    train(tmp_path, leave_at=6, epochs=3)
    assert train(tmp_path, **length) >= 6
    assert "nothing is trained" not in capsys.readouterr().err


def test_a_training_that_is_done_is_not_warned_of(tmp_path, capsys):
    for _ in range(2):
        assert train(tmp_path, epochs=2) == 8
    assert "nothing is trained" not in capsys.readouterr().err
