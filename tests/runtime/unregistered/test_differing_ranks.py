"""Under any-world a rank counts its own virtual shards: what differs between ranks is said."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import torch
from torch import nn

import rankup
from ranks import run_ranks


def counts(folder: Path) -> str:
    run = rankup.init(precision="fp64", exact="any-world", snapshots=rankup.Snapshots(directory=folder))
    data = rankup.ResidentData(torch.linspace(-1, 1, 20)[:, None])
    model, opt, _ = run.prepare(nn.Linear(1, 1), lambda p: torch.optim.SGD(p, lr=0.1), data, global_batch=8)
    seen = alike = 0
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        for epoch in run.epochs(2):
            for x in epoch:
                run.backward(model(x).square().mean())
                run.step(opt)
                seen += run.batch.samples
            alike += 1
    assert seen and alike
    return said.getvalue()


def test_a_count_that_differs_between_ranks_is_said_once_and_by_rank_0(tmp_path: Path):
    first, *others = run_ranks(counts, 3, tmp_path)
    assert first.count("seen differ between ranks") == 1
    assert "alike differ" not in first
    assert others == ["", ""]
