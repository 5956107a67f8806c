"""A ratio of sums over the batch: the Dice loss of a segmentation, of all pixels of the batch.

python dice.py                              one process
rankup run --nproc-per-node 3 dice.py       three, and the same model
python dice.py --plain                      the same loop without rankup
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import rankup

BATCH, EPOCHS = 25, 3


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """52 images of 1 × 6 × 6 pixels, and their masks."""
    x = torch.linspace(-2, 2, 52 * 36, dtype=torch.get_default_dtype()).mul(40).sin().reshape(52, 1, 6, 6)
    return x, (x.roll(1, dims=3) + x > 0.3).to(x.dtype)


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 3, padding=1), nn.Sigmoid()
    )


def sums_of(p: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """(n, 1, h, w) twice → (n, 2): what each image adds to the numerator and to the denominator."""
    return torch.stack([2 * (p * y).sum((1, 2, 3)), (p + y).sum((1, 2, 3))], dim=1)


def loss_of(sums: torch.Tensor) -> torch.Tensor:
    overlap, size = sums.sum(0)
    return 1 - (overlap + 1) / (size + 1)


def plain() -> nn.Module:
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(EPOCHS):
        for x, y in zip(*(column.split(BATCH) for column in data()), strict=True):
            loss_of(sums_of(net(x), y)).backward()
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
        sums = run.gather(sums_of(model(x), y))  # two numbers for each image, not its pixels
        run.backward(loss_of(sums), reduction="global")
        run.step(opt)
    return net


if __name__ == "__main__":
    trained = plain() if "--plain" in sys.argv else with_rankup()
    print(f"norm of the weights: {nn.utils.parameters_to_vector(trained.parameters()).norm():.6f}")
