"""Numbers of sharded tensors: the whole one in an optimizer's step, an error elsewhere; never a rank's part of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import rankup
from programs.program import batches, perceptron, points, weights
from programs.trials import difference
from ranks import run_ranks
from rankup.errors import RankupError
from rankup.strategies.base import TORCH

pytestmark = pytest.mark.skipif(TORCH < (2, 8), reason="fsdp on CPUs needs torch 2.8")


class Lars(torch.optim.Optimizer):
    """Its rate for each layer is a ratio of norms, which it reads as numbers."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.02})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                weight, gradient = parameter.norm().item(), float(parameter.grad.norm())
                ratio = weight / gradient if gradient else 1.0
                parameter.sub_(parameter.grad, alpha=group["lr"] * ratio)


def trained() -> dict[str, torch.Tensor]:
    run = rankup.init(precision="fp64", strategy="fsdp")
    model, opt, data = run.prepare(perceptron(), Lars, rankup.ResidentData(*points()), global_batch=6)
    for x, y in run.steps(data, epochs=2):
        run.backward(F.mse_loss(model(x), y))
        run.step(opt)
    return weights(model)


def plain() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    model = perceptron().double()
    opt, (x, y) = Lars(model.parameters()), points()
    for epoch in range(2):
        for i in batches(len(x), 6, epoch):
            opt.zero_grad()
            F.mse_loss(model(x[i]), y[i]).backward()
            opt.step()
    return weights(model)


@pytest.mark.slow
def test_an_optimizer_that_reads_norms_in_its_step_gets_those_of_whole_tensors():
    expected = plain()
    for result in run_ranks(trained, 3):
        assert not difference(expected, result, 1e-9)


def read() -> tuple[str, list[float], float]:
    """The error's code in the loop, whole numbers that are read there, and one of this rank's own tensor."""
    run = rankup.init(precision="fp64", strategy="fsdp")
    model, opt, data = run.prepare(
        perceptron(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(*points()), global_batch=20
    )
    code, norms, largest = "", [], 0.0
    for x, y in run.steps(data, epochs=1):
        F.mse_loss(model(x), y).backward()
        for parameter in model.parameters():
            try:
                parameter.grad.norm().item()
            except RankupError as error:
                code = error.code
            norms.append(parameter.grad.norm().full_tensor().item())
        largest = x.abs().max().item()
        opt.step()
        opt.zero_grad()
    return code, norms, largest


def test_a_rank_s_part_of_a_norm_is_an_error_that_names_full_tensor():
    x, y = points()
    torch.manual_seed(0)
    model = perceptron().double()
    F.mse_loss(model(x), y).backward()
    expected = [p.grad.norm().item() for p in model.parameters() if p.grad is not None]
    results = run_ranks(read, 2)
    assert [code for code, _, _ in results] == ["sharded-number"] * 2
    for _, norms, _ in results:
        assert norms == pytest.approx(expected, rel=1e-12)
    assert max(largest for _, _, largest in results) == x.abs().max().item()
