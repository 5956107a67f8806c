"""Class weights: the mean is over the weights of the targets, whose sum differs between ranks.

python class_weights.py                              one process
rankup run --nproc-per-node 3 class_weights.py       three, and the same model
python class_weights.py --plain                      the same loop without rankup
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

import rankup

BATCH, EPOCHS = 25, 3


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """52 samples of 4 features; class 2 is rare."""
    x = torch.linspace(-2, 2, 52 * 4, dtype=torch.get_default_dtype()).sin().reshape(52, 4) * 3
    return x, torch.tensor([0, 0, 1, 0, 2, 1, 0, 0, 1, 0, 0, 1, 0]).repeat(4)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


WEIGHT = torch.tensor([0.5, 1.0, 4.0])


def plain() -> nn.Module:
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(EPOCHS):
        for x, y in zip(*(column.split(BATCH) for column in data()), strict=True):
            F.cross_entropy(net(x), y, weight=WEIGHT.to(x)).backward()
            opt.step()
            opt.zero_grad()
    return net


def with_rankup(**options: str) -> nn.Module:
    run = rankup.init(**options)
    net = network()
    model, opt, feed = run.prepare(
        net,
        lambda p: torch.optim.SGD(p, lr=0.2),
        rankup.ResidentData(*data()),
        global_batch=BATCH,
        shuffle=False,
    )
    for x, y in run.steps(feed, epochs=EPOCHS):
        loss = F.cross_entropy(model(x), y, weight=WEIGHT.to(x))
        run.backward(loss, count=WEIGHT[y].sum())
        run.step(opt)
    return net


if __name__ == "__main__":
    trained = plain() if "--plain" in sys.argv else with_rankup()
    print(f"norm of the weights: {nn.utils.parameters_to_vector(trained.parameters()).norm():.6f}")
