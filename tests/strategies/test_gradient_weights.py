"""Steps of uneven shares against a plain loop: whatever a script does with gradients, and whatever it unfreezes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.strategies import make_strategy

SAMPLES, BATCH, WIDTH = 26, 7, 5  # on three ranks 3, 2, 2, and in the end 2, 2, 1
Step = Callable[[nn.Module, torch.optim.Optimizer, torch.Tensor, int], None]


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


def loss_of(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(model(x), x.sum(1, keepdim=True).sin())


def step(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, number: int) -> None:
    loss_of(model, x).backward()
    opt.step()
    opt.zero_grad()


def sharpness_aware(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, number: int) -> None:
    """With the gradients of both passes reduced."""
    loss_of(model, x).backward()
    moved = []
    with torch.no_grad():
        for parameter in model.parameters():
            moved.append(parameter.grad * 0.05)
            parameter += moved[-1]
    opt.zero_grad()
    loss_of(model, x).backward()
    with torch.no_grad():
        for parameter, distance in zip(model.parameters(), moved, strict=True):
            parameter -= distance
    opt.step()
    opt.zero_grad()


def penalised(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, number: int) -> None:
    """By the gradient of each sample's output with respect to its input: twice differentiated."""
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    (loss_of(model, x) + slope.square().sum(1).mean()).backward()
    opt.step()
    opt.zero_grad()


def frozen_in_turns(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, number: int) -> None:
    """Layer by layer, all of it, and nothing but a pass through the model."""
    inner = getattr(model, "module", model)
    for index in (0, 2, 4):
        inner[index].requires_grad_(number % 3 == 0 or index == 2 * (number % 3))
    if number == 2:
        model.requires_grad_(False)
        y = x.clone().requires_grad_()
        loss_of(model, y).backward()
        model.requires_grad_(True)
    step(model, opt, x, number)


def unfrozen_late(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, number: int) -> None:
    inner = getattr(model, "module", model)
    if number == 0:
        inner[0].requires_grad_(False)
        inner[2].weight.requires_grad_(False)
    if number == 2:
        inner.requires_grad_(True)
    step(model, opt, x, number)


def frozen_between(model: nn.Module, opt: torch.optim.Optimizer, x: torch.Tensor, number: int) -> None:
    """Trained in its turn alone, as a discriminator that is frozen while its generator learns."""
    model.requires_grad_(True)
    step(model, opt, x, number)
    model.requires_grad_(False)


STEPS: dict[str, Step] = {
    step.__name__: step for step in (step, sharpness_aware, penalised, frozen_in_turns, unfrozen_late)
}


def data() -> torch.Tensor:
    return torch.linspace(-2, 2, SAMPLES * WIDTH, dtype=torch.float64).reshape(SAMPLES, WIDTH).sin()


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def by_hand(one_step: Step, epochs: int, batch: int = BATCH) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model = net().double()
    opt = sgd(model.parameters())
    number = 0
    for _ in range(epochs):
        for x in data().split(batch):
            one_step(model, opt, x, number)
            number += 1
    return [parameter.detach() for parameter in model.parameters()]


def everything(name: str, epochs: int) -> dict[str, list[torch.Tensor]]:
    found = {}
    for case, one_step in STEPS.items():
        if name == "fsdp" and case in ("penalised", "sharpness_aware"):
            continue
        run = rankup.init(seed=3, precision="fp64", strategy=make_strategy(name))
        torch.manual_seed(3)
        model, opt, feed = run.prepare(
            net(), sgd, rankup.ResidentData(data()), global_batch=BATCH, shuffle=False
        )
        for number, x in enumerate(run.steps(feed, epochs=epochs)):
            one_step(model, opt, x, number)
        found[case] = [
            p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()
        ]
    return found


def largest(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    return max((x - y).abs().max().item() for x, y in zip(a, b, strict=True))


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("name", "world_size"), [("ddp", 3), ("fsdp", 3), pytest.param("ddp", 2, marks=pytest.mark.campaign)]
)
def test_uneven_steps_are_those_of_a_plain_loop_whatever_is_frozen_or_differentiated(name, world_size):
    expected = {case: by_hand(one_step, 2) for case, one_step in STEPS.items()}
    for found in run_ranks(everything, world_size, name, 2):
        for case, weights in found.items():
            assert largest(weights, expected[case]) < 1e-12, case


def trained_in_turns(name: str) -> list[torch.Tensor]:
    run = rankup.init(seed=3, precision="fp64", strategy=make_strategy(name))
    torch.manual_seed(3)
    model, opt, feed = run.prepare(net(), sgd, rankup.ResidentData(data()), global_batch=9, shuffle=False)
    for number, x in enumerate(run.steps(feed, epochs=2)):
        frozen_between(model, opt, x, number)
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in model.parameters()]


@pytest.mark.repeated
@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_what_was_frozen_when_an_uneven_batch_began_is_weighted(name: str) -> None:
    expected = by_hand(frozen_between, 2, 9)  # on three ranks 3, 3, 3, and in the end 3, 3, 2
    for found in run_ranks(trained_in_turns, 3, name):
        assert largest(found, expected) < 1e-12


def local_gradients(name: str) -> tuple[float, float]:
    """Of an uneven step: how far torch.autograd.grad is from this rank's own gradient, and backward from the mean."""
    run = rankup.init(seed=3, precision="fp64", strategy=make_strategy(name))
    model, _, feed = run.prepare(net(), sgd, rankup.ResidentData(data()), global_batch=BATCH, shuffle=False)
    torch.manual_seed(3)
    plain = net().double()
    plain.load_state_dict(run._context.models[0].state_dict())
    batches = run.steps(feed, epochs=1)
    x = next(batches)
    assert run.batch.samples in (2, 3)
    own = torch.autograd.grad(loss_of(plain, x), plain.parameters())
    whole = torch.autograd.grad(loss_of(plain, data()[:BATCH]), plain.parameters())
    gradients = torch.autograd.grad(loss_of(model, x), model.parameters())
    loss_of(model, x).backward()
    distances = largest(gradients, own), largest([p.grad for p in model.parameters()], whole)
    batches.close()
    return distances


def test_a_gradient_that_is_asked_for_is_this_ranks_own():
    for own, mean in run_ranks(local_gradients, 3, "ddp"):
        assert own < 1e-15 and mean < 1e-15
