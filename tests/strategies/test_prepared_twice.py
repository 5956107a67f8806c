"""A model that is prepared once more, for a second optimizer: the steps of one process, under ddp and fsdp."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import rankup
from programs.program import perceptron, points, weights
from programs.trials import difference
from ranks import run_ranks
from rankup.strategies.base import TORCH


def trained(strategy: str) -> dict[str, torch.Tensor]:
    run = rankup.init(precision="fp64", strategy=strategy)
    model, first, data = run.prepare(
        perceptron(),
        lambda p: torch.optim.SGD([each for each in p if each.ndim > 1], lr=0.1),
        rankup.ResidentData(*points()),
        global_batch=6,
    )
    _, second, _ = run.prepare(
        model, lambda p: torch.optim.Adam([each for each in p if each.ndim == 1], lr=0.1)
    )
    for x, y in run.steps(data, epochs=2):
        F.mse_loss(model(x), y).backward()
        first.step()
        second.step()
        first.zero_grad()
        second.zero_grad()
    return weights(model)


@pytest.mark.repeated
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_model_with_two_optimizers_takes_the_steps_of_one_process(strategy: str):
    if strategy == "fsdp" and TORCH < (2, 8):
        pytest.skip("fsdp on CPUs needs torch 2.8")
    (expected,) = run_ranks(trained, 1, "auto")
    for result in run_ranks(trained, 2, strategy):
        assert not difference(expected, result, 1e-9)
