"""What a step costs besides its arithmetic does not grow with the model, and nothing is missed for it."""

from __future__ import annotations

import sys
from collections import Counter

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.strategies import weights

X = torch.linspace(-2, 2, 160).reshape(40, 4).sin()
COUNTED = ("/strategies/", "/runtime/loop/", "/runtime/data/")


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def prepared(model, batch=4, **options):
    run = rankup.init(device="cpu", seed=1)
    data = rankup.ResidentData(X)
    return run, *run.prepare(model, sgd, data, global_batch=batch, shuffle=False, **options)


def calls_of_a_step(layers, through_run):
    """Of step 7, in which nothing is due that is looked at in steps 1, 2, 4, 8, …"""
    run, model, opt, data = prepared(nn.Sequential(*[nn.Linear(4, 4) for _ in range(layers)]))
    calls = Counter()

    def count(frame, event, arg):
        code = frame.f_code
        if event == "call" and any(part in code.co_filename.split("rankup")[-1] for part in COUNTED):
            calls[f"{code.co_filename}:{code.co_name}"] += 1

    for number, x in enumerate(run.steps(data, epochs=1), 1):
        sys.setprofile(count if number == 7 else None)
        loss = model(x).square().mean()
        if through_run:
            run.backward(loss)
            run.step(opt)
        else:
            loss.backward()
            opt.step()
            opt.zero_grad()
        sys.setprofile(None)
    return calls


@pytest.mark.repeated
@pytest.mark.parametrize("through_run", [False, True])
def test_a_step_calls_nothing_for_each_parameter_or_module(through_run):
    small, large = (run_ranks(calls_of_a_step, 2, layers, through_run) for layers in (2, 30))
    assert small[0]
    # 28 layers more. By the pace of its training, the step is handed out by itself or with others.
    assert abs(large[0].total() - small[0].total()) < 14, (small, large)
    if not through_run:
        assert small[0].total() <= 20, small[0]


def a_late_hook():
    run, model, opt, data = prepared(nn.Linear(4, 1))
    for number, x in enumerate(run.steps(data, epochs=1), 1):
        if number == 6:
            model.weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        try:
            model(x).square().mean().backward()
        except rankup.RankupError as error:
            return number, error.code
        opt.step()
        opt.zero_grad()
    return None


def test_a_hook_that_is_put_on_a_gradient_between_the_looks_is_found_at_once():
    for found in run_ranks(a_late_hook, 2):
        # A first clamp may look like a product; the next one is another.
        assert found is not None
        assert found[0] in (6, 7)
        assert found[1] == "gradient-hook"


def a_late_layer():
    run, model, opt, data = prepared(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)))
    for number, x in enumerate(run.steps(data, epochs=1), 1):
        if number == 6:
            torch.manual_seed(run.world.rank)  # rank 0's counts
            model[1] = nn.Linear(3, 1)
            opt.param_groups[0]["params"][2:] = list(model[1].parameters())
        model(x).square().mean().backward()
        opt.step()
        opt.zero_grad()
    return [parameter.tolist() for parameter in model.parameters()]


def test_a_layer_that_is_replaced_between_the_looks_is_trained_alike_on_all_ranks():
    first, second = run_ranks(a_late_layer, 2)
    assert first == second


class Experts(nn.Module):
    """The second one is for negative samples, of which only a dummy batch has any."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x):
        return self.first(x) if bool((x[:, 0] >= 0).all()) else self.second(x) + 0 * self.first(x)


def exchanges(counts):
    """How many exchanges of the strategy each step has, and whether the second expert has got a gradient in it.
    ``counts``: of this rank in each step, for ``run.backward(count=)``; None: without."""
    run, model, opt, data = prepared(Experts(), find_unused_parameters=True)
    plain, made, found = weights.on_some_rank, [], []

    def counted(flags):
        made.append(1)
        return plain(flags)

    weights.on_some_rank = counted
    before = model.second.weight.detach().clone()
    for number, _ in enumerate(run.steps(data, epochs=1)):
        if number == 4:
            break
        count = None if counts is None else counts[run.world.rank][number]
        x = torch.ones(2, 4) if count != 0 else -torch.ones(2, 4)
        run.backward(model(x).square().mean(), count=count)
        made.clear()
        run.step(opt)
        found.append((len(made), torch.equal(model.second.weight, before)))
    weights.on_some_rank = plain
    return found


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (None, [0, 0, 0, 0]),
        ([[2, 2, 2, 2], [2, 0, 2, 2]], [0, 1, 0, 0]),
    ],
)
def test_unused_parameters_are_exchanged_only_in_steps_in_which_some_rank_has_nothing(counts, expected):
    for found in run_ranks(exchanges, 2, counts):
        assert found == [(number, True) for number in expected]
