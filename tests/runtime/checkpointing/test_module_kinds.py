"""A model whose weights fit, and which is another one: an edited script, or a module that the training has replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import rankup
from ranks import run_ranks
from rankup.runtime.checkpointing import stages
from rankup.runtime.checkpointing.model_form import ModuleKinds
from rankup.strategies import make_strategy


class Last(nn.Linear):
    """A layer of the script's own."""


class Other(nn.Linear):
    """Another one, with the same parameters."""


def network(**changed: nn.Module) -> nn.Sequential:
    layers = {"first": nn.Linear(2, 2), "act": nn.Tanh(), "drop": nn.Dropout(0.1), "last": Last(2, 2)}
    model = nn.Sequential()
    for name, layer in (layers | changed).items():
        model.add_module(name, layer)
    return model


def train(
    folder: Path, model: nn.Module, epochs: int, change: Callable[[Any], None] = id, choice: str | None = None
) -> str:
    """What the error says; nothing if the training went on. ``change`` runs in each epoch."""
    stages._unnamed.clear()  # as in a process of its own
    snapshots = rankup.Snapshots(every="1 step", directory=folder, asynchronous=False, resume_with=choice)
    run = rankup.init(snapshots=snapshots)
    model, opt, _ = run.prepare(
        model, lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(torch.ones(4, 2)), global_batch=2
    )
    try:
        for epoch in run.epochs(epochs):
            for x in epoch:
                run.backward(model(x).mean())
                run.step(opt)
                change(model)
    except rankup.RankupError as error:
        return error.message.removeprefix("the settings have changed: ")
    return ""


@pytest.mark.repeated
@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, ""),
        ({"act": nn.ReLU()}, "act of the model: Tanh() when saved, ReLU() now"),
        (
            {"drop": nn.Dropout(0.5)},
            "drop of the model: Dropout(p=0.1, inplace=False) when saved, Dropout(p=0.5, inplace=False) now",
        ),
        ({"last": Other(2, 2)}, "last of the model: Last when saved, Other now"),
        ({"end": nn.Sigmoid()}, "end of the model: absent when saved, Sigmoid() now"),
        (
            {"act": nn.ReLU(), "end": nn.Sigmoid()},
            "act of the model: Tanh() when saved, ReLU() now; end of the model: absent when saved, Sigmoid() now",
        ),
    ],
)
def test_an_edited_model_is_refused_and_new_goes_on_with_it(changed, expected, tmp_path):
    assert train(tmp_path, network(), 1) == ""
    assert train(tmp_path, network(**changed), 2) == expected
    if expected:
        assert train(tmp_path, network(**changed), 2, choice="old") == expected
        assert train(tmp_path, network(**changed), 2, choice="new") == ""
        assert train(tmp_path, network(**changed), 3) == ""


def swap(model: Any) -> None:
    model.act = nn.GELU()


def replace_forward(model: Any) -> None:
    first = model.first
    first.forward = lambda x: nn.functional.linear(x, 2 * first.weight)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (swap, "act of the model: GELU(approximate='none') when saved, Tanh() now"),
        (
            replace_forward,
            "first of the model: Linear(in_features=2, out_features=2, bias=True) with the forward "
            "replace_forward.<locals>.<lambda> when saved, Linear(in_features=2, out_features=2, bias=True) now",
        ),
    ],
)
def test_what_the_training_puts_into_its_model_is_not_lost_in_silence(change, expected, tmp_path):
    assert train(tmp_path, network(), 1, change) == ""
    assert train(tmp_path, network(), 2, change) == expected
    edited = network()
    change(edited)  # the script does it before the loop
    assert train(tmp_path, edited, 2, change) == ""


def test_a_value_that_the_training_changes_makes_no_other_model(tmp_path):
    def anneal(model: Any) -> None:
        model.drop.p = 0.3

    assert [train(tmp_path, network(), epochs, anneal) for epochs in (1, 2)] == ["", ""]


def test_a_compiled_forward_and_one_of_the_class_are_no_other_model():
    models = [network(), network()]
    models[0].first.forward = torch.compile(models[0].first.forward, backend="eager")
    models[0].last.forward = models[0].last.forward
    kinds = [ModuleKinds(make_strategy("none"), model).now() for model in models]
    assert kinds[0] == kinds[1]


def kinds_of(name: str) -> dict[str, Any]:
    plan: Any = {"plan": by_columns} if name == "tp" else {}
    exact: Any = {"exact": name} if name == "any-world" else {"strategy": make_strategy(name, **plan)}
    run = rankup.init(**exact)
    model = nn.Sequential(nn.Sequential(network(), network()), nn.LayerNorm(2))
    run.prepare(model, lambda p: torch.optim.SGD(p, lr=0.1), compile=name == "ddp")
    return ModuleKinds(run._context.strategy, run._context.models[0]).now()


def by_columns(model: nn.Module) -> Any:
    from torch.distributed.tensor.parallel import ColwiseParallel

    return {"0.0.first": ColwiseParallel()}


@pytest.mark.slow
def test_the_kinds_are_the_same_under_every_strategy():
    expected = run_ranks(kinds_of, 1, "none")[0]
    assert expected["modules"]["0.0.last"] == "Last"
    for name in ("ddp", "fsdp", "tp", "any-world"):
        assert run_ranks(kinds_of, 2, name) == [expected] * 2, name


def test_another_number_of_parameters_is_left_to_the_error_that_names_them(tmp_path):
    train(tmp_path, network(), 1)
    said = train(tmp_path, network(more=nn.Linear(2, 2)), 2)
    assert said.endswith("the optimizer trains more.bias, and that of the state does not")


def test_batch_norms_that_prepare_converts_are_of_one_kind():
    kinds = [
        ModuleKinds(make_strategy("none"), model).now()["modules"][""]
        for model in (nn.BatchNorm2d(3), nn.SyncBatchNorm(3))
    ]
    assert kinds[0] == kinds[1] != ""
