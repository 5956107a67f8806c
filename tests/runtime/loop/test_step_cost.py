"""A step of a loop asks for nothing that grows with the model: what is looked at once leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup


def test_a_step_runs_one_hook_and_none_on_parameters_and_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RANKUP_RUN_DIR", str(tmp_path))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    run = rankup.init(device="cpu", snapshots=rankup.Snapshots(every="4 steps"))
    dataset = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    model, optimizer, data = run.prepare(
        network, lambda p: torch.optim.SGD(p, lr=0.1), dataset, global_batch=8
    )
    hooks: dict[int, tuple[int, int]] = {}
    for x, y in run.steps(data, epochs=2):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        hooks[run.global_step] = (
            len(optimizer._optimizer_step_pre_hooks),
            len(optimizer._optimizer_step_post_hooks),
        )
        if run.global_step > 2:
            assert all(
                not p._backward_hooks and not p._post_accumulate_grad_hooks for p in model.parameters()
            )
            assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    # The step after a save has waited until the state was copied.
    assert {steps for step, steps in hooks.items() if step > 2} == {(0, 1)}
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
