"""Which strategy a run gets, and one clear error for each that it cannot have."""

from __future__ import annotations

import sys
import types
import warnings

import pytest
import torch
from torch import nn

import rankup
from rankup.runtime.init import choose_strategy
from rankup.strategies import STRATEGIES, base, make_strategy, names_for_scripts
from rankup.strategies.experimental.pp import PP
from rankup.strategies.experimental.tp import TP
from rankup.strategies.fsdp import blocks
from rankup.train.options import TrainOptions
from rankup.train.parallel import strategy_for
from rankup.workloads.linear import Linear
from rankup.workloads.mnist_cnn import MnistCnn, MnistNet
from rankup.world import World


def world(size: int) -> World:
    return World(0, 0, size, size, 0, 1, ("here",), "torchrun", None, 0)


@pytest.mark.parametrize(
    ("wanted", "size", "got"),
    [("auto", 1, "none"), ("auto", 2, "ddp"), ("fsdp", 1, "none"), ("fsdp", 2, "fsdp")],
)
def test_a_name_gives_the_strategy_and_one_process_needs_none(wanted, size, got):
    assert choose_strategy(wanted, world(size)).name == got


@pytest.mark.parametrize(
    ("wanted", "size", "code", "says"),
    [
        ("dpp", 2, "unknown-strategy", "did you mean"),
        ("none", 2, "strategy-without-sync", "2 models that never meet"),
        *(
            (name, 2, "strategy-for-workloads", "needs a workload")
            for name in STRATEGIES
            if name not in names_for_scripts()
        ),
    ],
)
def test_a_script_is_told_what_it_cannot_have(wanted, size, code, says):
    with pytest.raises(rankup.RankupError, match=says) as caught:
        choose_strategy(wanted, world(size))
    assert caught.value.code == code


def test_dp_is_one_process_and_says_what_it_is_worth():
    with pytest.raises(rankup.RankupError, match="strategy dp would train 2 models"):
        choose_strategy(make_strategy("dp"), world(2))
    net = nn.Linear(1, 1)
    with pytest.warns(UserWarning, match="plain training on one cpu device"):
        assert make_strategy("dp").wrap(net, torch.device("cpu"), find_unused_parameters=False) is net


def test_dp_over_two_gpus_is_data_parallel_with_a_warning(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(nn, "DataParallel", Spread)
    strategy, net = make_strategy("dp"), nn.Linear(1, 1)
    with pytest.warns(UserWarning, match="ddp with one process per GPU is faster"):
        wrapped = strategy.wrap(net, torch.device("cuda"), find_unused_parameters=False)
    assert wrapped is net
    assert wrapped(torch.ones(2, 1)).shape == (2, 3)  # by way of Spread


class Spread(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x).expand(-1, 3)


@pytest.mark.parametrize(
    ("name", "options"), [("fsdp", {}), ("pp", {"stages": lambda model, n: [model], "loss": None})]
)
def test_a_torch_that_would_train_something_else_on_cpus_is_refused(monkeypatch, name, options):
    monkeypatch.setattr(base, "TORCH", (2, 7))
    strategy = make_strategy(name, **options)
    with pytest.raises(rankup.RankupError, match=f"{name} on CPUs needs torch 2.8 or later") as caught:
        strategy.wrap(nn.Linear(1, 1), torch.device("cpu"), find_unused_parameters=False)
    assert caught.value.code == "torch-too-old"


def test_deepspeed_that_is_not_installed_is_one_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "deepspeed", None)
    with pytest.raises(rankup.RankupError, match="requires the package deepspeed") as caught:
        make_strategy("deepspeed")
    assert "pip install deepspeed" in caught.value.hint


@pytest.mark.parametrize(("name", "options"), [("deepspeed", {}), ("ddp", {"static_graph": True})])
def test_unused_parameters_are_refused_where_they_would_be_ignored(monkeypatch, name, options):
    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    strategy = make_strategy(name, **options)
    with pytest.raises(rankup.RankupError, match="find_unused_parameters") as caught:
        strategy.wrap(nn.Linear(1, 1), torch.device("cpu"), find_unused_parameters=True)
    assert caught.value.code == "bad-option"


def asked(**options) -> TrainOptions:
    return TrainOptions("module:Thing", "thing", **options)


@pytest.mark.parametrize(("name", "member"), [("tp", "tensor_parallel_plan"), ("pp", "pipeline_stages")])
def test_a_workload_without_the_member_is_refused_and_one_with_it_is_not(name, member):
    with pytest.raises(
        rankup.RankupError, match=f"the strategy {name} cannot train thing: the workload has no {member}"
    ):
        strategy_for(asked(strategy=name), Linear())
    assert strategy_for(asked(strategy=name), MnistCnn()).name == name


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"strategy": "fsdq"}, "--strategy fsdq"),
        ({"strategy": "fsdp", "static_graph": True}, "--static-graph"),
        ({"strategy": "ddp", "shard_size": 2}, "--shard-size"),
        ({"strategy": "ddp", "microbatches": 2}, "--microbatches"),
        ({"strategy": "fsdp", "channels_last": True}, "--channels-last"),
        ({"static_graph": True, "accumulate": 2}, "--accumulate 2"),
        ({"strategy": "deepspeed", "accumulate": 2}, "--accumulate 2"),
        ({"strategy": "deepspeed", "precision": "fp16"}, "--precision fp16"),
        ({"strategy": "deepspeed", "channels_last": True}, "--channels-last"),
        ({"strategy": "tp", "sync_batchnorm": True}, "--sync-batchnorm"),
        ({"strategy": "dp", "compile": True}, "--compile"),
        ({"clip": 0.0}, "--clip 0.0"),
        ({"lr_rule": "linear"}, "--base-batch None"),
        ({"lr_rule": "cubic", "base_batch": 2}, "--lr-rule cubic"),
    ],
)
def test_an_option_that_would_be_ignored_or_cannot_be_is_refused(options, says):
    with pytest.raises(rankup.RankupError, match=says) as caught:
        asked(**options)
    assert caught.value.code == "bad-option"


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_stages_of_mnist_cnn_are_the_network(count):
    net = MnistNet(dropout=False)
    x = torch.randn(2, 1, 28, 28)
    stages = MnistCnn().pipeline_stages(net, count)
    y = x
    for stage in stages:
        y = stage(y)
    assert len(stages) == count
    assert torch.equal(y, net(x))
    assert sum(len(list(stage.parameters())) for stage in stages) == len(list(net.parameters()))


def test_mnist_cnn_has_four_stages_at_most():
    with pytest.raises(rankup.RankupError, match="4 stages, not 5"):
        MnistCnn().pipeline_stages(MnistNet(), 5)


def test_stages_that_lose_a_parameter_are_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    with pytest.raises(rankup.RankupError, match="2 of the model's 4 parameters"):
        PP(stages=lambda model, n: [model[0], nn.Identity()], loss=nn.functional.mse_loss).part(net)


def test_a_plan_for_layers_that_are_not_there_is_refused(monkeypatch):
    monkeypatch.setattr("rankup.strategies.experimental.tp.start_equal", lambda model: None)
    with pytest.raises(rankup.RankupError, match="names head, which the model has not"):
        TP(plan=lambda model: {"head": object()}).wrap(
            nn.Linear(1, 1), torch.device("cpu"), find_unused_parameters=False
        )


def test_blocks_are_the_entries_of_outermost_containers_that_share_no_parameter():
    net = nn.Module()
    net.embed = nn.Embedding(4, 2)
    net.layers = nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.ReLU(), nn.Linear(2, 2)])
    net.tied = nn.Sequential(nn.Linear(2, 4, bias=False))
    net.tied[0].weight = net.embed.weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert blocks(net) == [net.layers[0], net.layers[2]]
