"""The model that prepare returns is the user's own object, under ddp as on one process; its calls go through DDP."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.strategies.call_through import call_through

WIDTH, BATCH = 3, 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(WIDTH, 4)
        self.head = nn.Linear(4, 1)
        self.scale = 1.0  # what a curriculum changes
        self.module = nn.Identity()  # DDP has an attribute of this name

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.encoder(x)) * self.scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encode(x))


class Labelled(nn.Module):
    """A second stage: the trained encoder inside of another model."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net, self.bias = net, nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x) + self.bias


def points() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-2, 2, 4 * BATCH * WIDTH).sin().reshape(-1, WIDTH)
    return x, x.sum(1, keepdim=True)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def weights(model: nn.Module) -> dict[str, list[float]]:
    return {name: value.flatten().tolist() for name, value in model.state_dict().items()}


def close(ranks: list[dict[str, list[float]]]) -> bool:
    first = ranks[0]
    return all(
        rank.keys() == first.keys()
        and all(torch.allclose(torch.tensor(rank[k]), torch.tensor(first[k]), atol=1e-12) for k in first)
        for rank in ranks
    )


def steps(body: Any) -> dict[str, list[float]]:
    run = rankup.init(seed=1, precision="fp64")
    net = Net()
    model, opt, data = run.prepare(net, sgd, rankup.ResidentData(*points()), global_batch=BATCH)
    for x, y in run.steps(data, epochs=2):
        opt.zero_grad()
        body(model, net, x, y, run.global_step).backward()
        opt.step()
    return weights(model)


def attribute_set(model: Any, net: Any, x: Any, y: Any, step: int) -> torch.Tensor:
    model.scale = 1.0 + step
    return F.mse_loss(model(x), y)


def original_called(model: Any, net: Any, x: Any, y: Any, step: int) -> torch.Tensor:
    return F.mse_loss(net(x), y)


def functional(model: Any, net: Any, x: Any, y: Any, step: int) -> torch.Tensor:
    named = dict(model.named_parameters())
    slopes = torch.autograd.grad(
        F.mse_loss(functional_call(model, named, (x,)), y), list(named.values()), create_graph=True
    )
    moved = {name: p - 0.1 * g for (name, p), g in zip(named.items(), slopes, strict=True)}
    return F.mse_loss(functional_call(model, moved, (x,)), y)


@pytest.mark.slow
def test_attributes_that_a_loop_sets_and_calls_of_the_original_train_as_on_one_process():
    for body in (attribute_set, original_called):
        assert close([*run_ranks(steps, 1, body), *run_ranks(steps, 3, body)]), body.__name__


class Adapting(nn.Module):
    """MAML with the inner step in forward: a sample is a task."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.adapted(a[None], b[None]) for a, b in zip(x, y, strict=True)]).mean()

    def adapted(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        named = dict(self.net.named_parameters())
        loss = F.mse_loss(functional_call(self.net, named, (x,)), y)
        slopes = torch.autograd.grad(loss, list(named.values()), create_graph=True)
        moved = {name: p - 0.1 * g for (name, p), g in zip(named.items(), slopes, strict=True)}
        return F.mse_loss(functional_call(self.net, moved, (x,)), y)


def adapting() -> dict[str, list[float]]:
    run = rankup.init(seed=1, precision="fp64")
    model, opt, data = run.prepare(
        Adapting(Net()), sgd, rankup.ResidentData(*points()), global_batch=BATCH - 1
    )
    for x, y in run.steps(data, epochs=2):
        opt.zero_grad()
        model(x, y).backward()
        opt.step()
    return weights(model)


def refused() -> str:
    try:
        steps(functional)
    except rankup.RankupError as error:
        return f"{error.code} {error.hint}"
    return ""


def test_other_tensors_for_parameters_are_refused_outside_of_forward_and_right_in_it():
    assert (
        run_ranks(refused, 2)
        == ["gradients-not-reduced do that in the model's forward, in a module that holds it"] * 2
    )
    assert close([*run_ranks(adapting, 1), *run_ranks(adapting, 3)])


def the_same_object() -> tuple[Any, ...]:
    run = rankup.init(seed=1)
    net = Net()
    model, opt, _ = run.prepare(net, sgd)
    copied = copy.deepcopy(model)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    saved = torch.load(buffer, weights_only=False)
    average = torch.optim.swa_utils.AveragedModel(model)
    x = torch.ones(2, WIDTH)
    if run.world.is_main:  # no collective: a forward of its own, and one without gradients
        average.update_parameters(model)
        copied(x).sum().backward()
        saved(x).sum().backward()
        with torch.no_grad():
            assert torch.equal(model(x), copied(x))
    return (
        model is net,
        isinstance(model, Net),
        type(model).__name__,
        [type(other) is Net for other in (copied, saved, average.module)],
        list(model.state_dict()),
        type(model.module).__name__,
        repr(model) == repr(Net()),
    )


def test_keys_type_attributes_and_copies_are_those_of_the_user_s_class():
    keys = list(Net().state_dict())
    for found in (*run_ranks(the_same_object, 1), *run_ranks(the_same_object, 2)):
        assert found == (True, True, "Net", [True] * 3, keys, "Identity", True)


def two_stages() -> dict[str, list[float]]:
    run = rankup.init(seed=1, precision="fp64")
    x, y = points()
    model, opt, data = run.prepare(Net(), sgd, rankup.ResidentData(x, y), global_batch=BATCH)
    for a, b in run.steps(data, epochs=1):
        F.mse_loss(model(a), b).backward()
        opt.step()
        opt.zero_grad()
    whole, opt, data = run.prepare(Labelled(model), sgd, rankup.ResidentData(x, y + 1), global_batch=BATCH)
    for a, b in run.steps(data, epochs=1):
        F.mse_loss(whole(a), b).backward()
        opt.step()
        opt.zero_grad()
    return weights(whole)


def test_a_model_that_was_prepared_may_be_a_part_of_the_next_one():
    assert close([*run_ranks(two_stages, 1), *run_ranks(two_stages, 3)])


def test_a_wrapper_is_entered_once_and_only_with_gradients():
    calls = []

    class Counting(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return self.module(x)

    net = nn.Linear(2, 1)
    model = call_through(net, Counting(net))
    model(torch.ones(1, 2))
    assert calls == [1]
    with torch.no_grad():
        model(torch.ones(1, 2))
    torch.func.vmap(torch.func.grad(lambda x: model(x[None]).sum()))(torch.ones(3, 2))
    assert calls == [1]
    assert call_through(model, Counting(net)) is net  # prepared a second time: the newest wrapper
    model(torch.ones(1, 2))
    assert calls == [1, 1]
