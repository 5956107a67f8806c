"""A script whose activations or dropout were edited resumes into another model: rank 0 says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import rankup
from rankup.runtime.checkpointing import training_folder
from rankup.runtime.checkpointing.settings import describe_layers, other_layers

SAID = "the model is not the one of the snapshot"


def train(folder: Path, model: nn.Module, epochs: int) -> None:
    training_folder._unnamed.clear()  # as in a process of its own
    run = rankup.init(snapshots=rankup.Snapshots(directory=folder, asynchronous=False))
    model, opt, _ = run.prepare(
        model, lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(torch.ones(4, 2)), global_batch=2
    )
    for epoch in run.epochs(epochs):
        for x in epoch:
            run.backward(model(x).mean())
            run.step(opt)
            model[2].p = 0.3  # the script changes its dropout in training: the model was not edited


def network(activation: nn.Module, dropout: float) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), activation, nn.Dropout(dropout))


@pytest.mark.parametrize(
    ("activation", "dropout", "expected"),
    [
        (nn.Tanh(), 0.1, ""),
        (nn.ReLU(), 0.1, "1: Tanh() when saved, ReLU() now"),
        (nn.Tanh(), 0.5, "2: Dropout(p=0.1, inplace=False) when saved, Dropout(p=0.5, inplace=False) now"),
    ],
)
def test_a_resume_names_layers_that_differ(activation, dropout, expected, tmp_path, capsys):
    train(tmp_path, network(nn.Tanh(), 0.1), 1)
    train(tmp_path, network(activation, dropout), 2)
    said = capsys.readouterr().err
    assert said.count(SAID) == bool(expected) and expected in said


def test_layers_are_compared_by_their_names():
    old, new = [describe_layers(network(each, 0.0)) for each in (nn.Tanh(), nn.GELU())]
    assert set(old) == {"1", "2"}
    assert other_layers([old], [new]) == ["1: Tanh() when saved, GELU(approximate='none') now"]
    assert other_layers([old], [{"another": "ReLU()"}]) == [] == other_layers([], [new])
