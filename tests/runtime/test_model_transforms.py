"""Memory format, SyncBatchNorm, compilation: how a model computes, and not what."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import rankup
from rankup.runtime.model_transforms import Adaptations
from rankup.strategies import make_strategy
from rankup.strategies.batch_plan import equal_batches

CPU = torch.device("cpu")


def convolution() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def test_channels_last_changes_strides_and_no_value():
    x = torch.randn(2, 3, 8, 8)
    plain, adapted = convolution(), convolution()
    before = list(adapted.parameters())
    adapted = Adaptations(channels_last=True).apply(adapted, CPU, 1)
    assert adapted[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(adapted(x), plain(x), atol=1e-6)
    assert all(a is b for a, b in zip(before, adapted.parameters(), strict=True))


def test_sync_batchnorm_is_refused_on_a_cpu_and_idle_on_one_process():
    wanted = Adaptations(sync_batchnorm=True)
    with pytest.raises(rankup.RankupError, match="SyncBatchNorm for GPUs"):
        wanted.apply(convolution(), CPU, 2)
    assert type(wanted.apply(convolution(), CPU, 1)[1]) is nn.BatchNorm2d


@pytest.mark.parametrize(("strategy", "accumulate"), [("tp", 1), ("pp", 1), ("dp", 1), ("ddp", 2)])
def test_what_would_wait_in_sync_batchnorm_for_ever_is_refused(strategy, accumulate):
    arguments = {"tp": {"plan": dict}, "pp": {"stages": list, "loss": None}}
    made = make_strategy(strategy, **arguments.get(strategy, {}))
    with pytest.raises(rankup.RankupError, match="SyncBatchNorm cannot be used with") as caught:
        Adaptations(sync_batchnorm=True).check(made, accumulate)
    assert caught.value.code == "no-sync-batchnorm"


def test_sync_batchnorm_goes_with_ddp_and_whole_batches():
    Adaptations(sync_batchnorm=True).check(make_strategy("ddp"), 1)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_compile_keeps_names_values_and_a_copy_of_its_own(monkeypatch, precision):
    compiled = []

    def compiler(forward, **options):  # the real one wants a C++ compiler, and a minute
        def counted(*args):
            compiled.append(torch.is_autocast_enabled("cpu"))
            return forward(*args)

        return counted

    monkeypatch.setattr(torch, "compile", compiler)
    run = rankup.init(device="cpu", precision=precision)
    net = nn.Linear(2, 2)
    model, *_ = run.prepare(net, None, compile=True)
    assert list(model.state_dict()) == ["weight", "bias"]
    own = copy.deepcopy(model)
    with torch.no_grad():
        own.weight.zero_()
        own.bias.zero_()
    assert own(torch.ones(1, 2)).tolist() == [[0.0, 0.0]]
    assert model(torch.ones(1, 2)).abs().sum() > 0
    assert compiled == [precision == "bf16"] * 2  # autocast is around what is compiled


@pytest.mark.parametrize(
    ("length", "wanted", "ranks", "size"),
    [(17, 8, 2, 9), (16, 8, 4, 8), (10, 3, 3, 5), (5, 8, 4, 8), (9, 4, 4, 5)],
)
def test_the_last_batch_of_an_evaluation_has_a_sample_for_every_rank(length, wanted, ranks, size):
    assert equal_batches("fsdp", length, wanted, ranks) == size
    assert length % size == 0 or length % size >= ranks


def test_an_evaluation_of_fewer_samples_than_ranks_is_refused():
    with pytest.raises(rankup.RankupError, match="4 samples or more"):
        equal_batches("fsdp", 3, 4, 4)
