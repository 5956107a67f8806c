"""Strategies over nccl, on one GPU: a group of one rank is enough to drive its collectives."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from small import GPU, Net, images, largest_difference
from torch.nn import functional as F

import rankup
from ranks import run_ranks
from rankup.strategies import make_strategy
from rankup.strategies.state import whole_weights


def stepped(name: str) -> dict[str, torch.Tensor]:
    """The weights after two steps of SGD, by a strategy's own members."""
    device = torch.device(GPU, 0)
    torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    torch.manual_seed(1)
    strategy, net = make_strategy(name), Net().to(device)
    model = strategy.wrap(net, device, find_unused_parameters=False)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    model, optimizer = strategy.setup_optimizer(model, optimizer, None)
    x, y = (column.to(device) for column in images())
    for weight in (1.0, 0.5):
        strategy.set_gradient_scale(weight)
        strategy.backward(F.cross_entropy(model(x), y))
        strategy.clip(list(net.parameters()), 0.5)
        strategy.step(optimizer)
        optimizer.zero_grad()
    weights = {key: tensor.clone() for key, tensor in whole_weights(strategy, net).items()}
    dist.destroy_process_group()
    return weights


def by_hand() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    net = Net().to(GPU)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = (column.to(GPU) for column in images())
    for weight in (1.0, 0.5):
        (F.cross_entropy(net(x), y) * weight).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    return {name: tensor.cpu() for name, tensor in net.state_dict().items()}


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_over_nccl_the_steps_are_those_of_plain_torch(name):
    assert largest_difference(run_ranks(stepped, 1, name)[0], run_ranks(by_hand, 1)[0]) < 1e-5


def shares_a_gpu() -> str:
    if torch.cuda.device_count() > 1:
        torch.cuda.device_count = lambda: 1  # type: ignore[assignment]
    try:
        rankup.init(device=GPU)
    except rankup.RankupError as error:
        return error.code
    return "nothing"


def test_two_ranks_on_one_gpu_are_refused_before_nccl_hangs():
    assert run_ranks(shares_a_gpu, 2) == ["gpu-shared"] * 2


def data_parallel() -> list[float]:
    run = rankup.init(seed=3, device=GPU, strategy=make_strategy("dp"))
    with pytest.warns(UserWarning, match="plain training on one|ddp with one process per GPU"):
        model, opt, feed = run.prepare(
            Net(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(*images()), global_batch=20
        )
    losses = []
    for x, y in run.steps(feed, epochs=1):
        loss, _ = run.strategy.forward_backward(model, F.cross_entropy, x, y)
        run.step(opt)
        losses.append(loss.item())
    return losses


def plain() -> list[float]:
    run = rankup.init(seed=3, device="cpu", precision="fp64")
    model, opt, feed = run.prepare(
        Net(), lambda p: torch.optim.SGD(p, lr=0.1), rankup.ResidentData(*images()), global_batch=20
    )
    losses = []
    for x, y in run.steps(feed, epochs=1):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
        losses.append(loss.item())
    return losses


def test_dp_over_the_gpus_that_there_are_takes_the_first_step_of_one_process():
    # Over several GPUs BatchNorm sees shares: the first loss alone is the same.
    assert run_ranks(data_parallel, 1)[0][0] == pytest.approx(run_ranks(plain, 1)[0][0], rel=1e-1)
