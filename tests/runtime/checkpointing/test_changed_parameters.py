"""Models whose parameters come or go in training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import rankup


class Lazy(nn.Module):
    """As BYOL is published: the first forward makes a copy of the encoder."""

    def __init__(self, *, early: bool) -> None:
        super().__init__()
        self.encoder = nn.Linear(1, 1)
        self.target: nn.Module | None = None
        if early:
            self(torch.ones(2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.target is None:
            self.target = nn.Linear(1, 1).requires_grad_(False)
        result: torch.Tensor = self.encoder(x)
        return result


@pytest.mark.parametrize(
    ("which", "warned"),
    [
        ("lazy", "target.bias and target.weight came"),
        ("early", ""),
        ("unfrozen", ""),
        ("pruned", "encoder.weight_orig came, encoder.weight went"),
        ("identity", ""),
    ],
)
def test_parameters_that_come_or_go_in_training_are_warned_of_once(
    which: str, warned: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    run = rankup.init(snapshots=rankup.Snapshots(every="off", directory=tmp_path))
    made = Lazy(early=which != "lazy")
    if which == "identity":
        prune.identity(made.encoder, "weight")
    rows = rankup.ResidentData(torch.ones(8, 1))
    model, opt, _ = run.prepare(made, lambda p: torch.optim.SGD(p, lr=0.1), rows, global_batch=4)
    for epoch in run.epochs(4):
        for x in epoch:
            model(x).square().mean().backward()
            opt.step()
            opt.zero_grad()
        if epoch.index == 1 and which in ("pruned", "identity"):
            prune.l1_unstructured(made.encoder, "weight", amount=0)
        if epoch.index == 1 and which == "unfrozen":
            made.encoder.bias.requires_grad_(requires_grad=False)
    said = capfd.readouterr().err
    assert said.count("have changed in training") == bool(warned)
    assert warned in said
