"""Two optimizers and run.step: gradients that one's loss leaves on the other's parameters do not go unnoticed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import rankup


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def trained(*, clears: bool, one_loss: bool = False) -> list[torch.Tensor]:
    run = rankup.init(device="cpu", seed=1)
    nets = [nn.Linear(3, 2), nn.Linear(2, 1)]
    data = rankup.ResidentData(torch.linspace(-1, 1, 24).view(8, 3))
    make, maker, feed = run.prepare(nets[0], sgd, data, global_batch=4)
    judged, judge, _ = run.prepare(nets[1], sgd)
    for x in run.steps(feed, epochs=2):
        if clears:
            judge.zero_grad()
        made = make(x)
        if one_loss:
            run.backward(judged(made).square().mean())
            run.step(judge)
            run.step(maker)
            continue
        run.backward(judged(made.detach()).square().mean())
        run.step(judge)
        if clears:
            maker.zero_grad()
        run.backward((judged(made) - 1).square().mean())
        run.step(maker)
    return [p.detach().clone() for net in nets for p in net.parameters()]


def test_gradients_of_another_optimizers_loss_are_a_warning():
    with pytest.warns(UserWarning, match="gradients are never cleared"):
        kept = trained(clears=False)
    cleared = trained(clears=True)
    assert any(not torch.equal(a, b) for a, b in zip(kept, cleared, strict=True))  # it does make a difference


def test_two_optimizers_of_one_model_that_are_cleared_before_their_own_backward_are_no_warning():
    """As in a search for architectures: a backward of each leaves gradients for both."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        run = rankup.init(device="cpu", seed=1)
        net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
        data = rankup.ResidentData(torch.linspace(-1, 1, 24).view(8, 3))
        model, weights, feed = run.prepare(net, sgd(net[1].parameters()), data, global_batch=4)
        choices = sgd(net[0].parameters())
        for x in run.steps(feed, epochs=2):
            for opt in (choices, weights):
                opt.zero_grad()
                model(x).square().mean().backward()
                opt.step()


@pytest.mark.parametrize("options", [{"clears": True}, {"clears": False, "one_loss": True}])
def test_gradients_that_every_step_has_taken_are_none(options: dict[str, bool]):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        trained(**options)


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_gradients_of_the_micro_batches_before_are_of_the_same_step(accumulate: int):
    run = rankup.init(device="cpu", seed=1)
    data = rankup.ResidentData(torch.linspace(-1, 1, 72).view(24, 3))
    model, opt, feed = run.prepare(nn.Linear(3, 1), sgd, data, global_batch=6, accumulate=accumulate)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for x in run.steps(feed, epochs=2):
            run.backward(model(x).square().mean())
            run.step(opt)


def test_the_optimizer_of_an_earlier_stage_has_no_gradients_that_wait():
    """Each round of an active learning prepares the model again: its snapshots are for any number of processes."""
    run = rankup.init()
    model = nn.Linear(1, 1)
    waiting = []
    for _ in range(3):
        rows = rankup.ResidentData(torch.ones(8, 1))
        model, opt, data = run.prepare(model, lambda p: torch.optim.SGD(p, lr=0.1), rows, global_batch=4)
        for x in run.steps(data, epochs=2):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()
            waiting.append(run.state._steps.gradients_wait())
    assert waiting == [False] * 12


def test_gradients_that_a_step_has_used_wait_for_none_until_a_backward_adds_to_them():
    """A body that leaves out its batch finds those of the step before; a window is longer than a body."""
    run = rankup.init(device="cpu", seed=1)
    data = rankup.ResidentData(torch.linspace(-1, 1, 24).view(8, 3))
    model, opt, feed = run.prepare(nn.Linear(3, 2), sgd, data, global_batch=2)
    waits = []
    for x in run.steps(feed, epochs=1):
        if run.global_step != 1:
            if run.global_step != 3:
                opt.zero_grad()
            model(x).sum().backward()
        if run.global_step in (0, 3):
            opt.step()
        waits.append("gradients" in run.state.state_dict()["rank_state"])
    assert waits == [False, False, True, False]
