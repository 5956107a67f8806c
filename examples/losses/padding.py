"""Padding: ``ignore_index`` leaves targets out of the mean, and ranks leave out different numbers.

python padding.py                              one process
rankup run --nproc-per-node 3 padding.py       three, and the same model
python padding.py --plain                      the same loop without rankup
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

import rankup

BATCH, EPOCHS = 25, 3
PADDING = -100


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """52 sequences of 6 steps, (52, 6, 4), with 1 to 6 targets each; the rest is padding."""
    x = torch.linspace(-2, 2, 52 * 24, dtype=torch.get_default_dtype()).sin().reshape(52, 6, 4) * 3
    y = torch.arange(52 * 6).reshape(52, 6) % 3
    lengths = torch.arange(52) % 6 + 1
    return x, y.masked_fill(torch.arange(6) >= lengths[:, None], PADDING)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def plain() -> nn.Module:
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(EPOCHS):
        for x, y in zip(*(column.split(BATCH) for column in data()), strict=True):
            F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=PADDING).backward()
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
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=PADDING)
        run.backward(loss, count=(y != PADDING).sum())
        run.step(opt)
    return net


if __name__ == "__main__":
    trained = plain() if "--plain" in sys.argv else with_rankup()
    print(f"norm of the weights: {nn.utils.parameters_to_vector(trained.parameters()).norm():.6f}")
