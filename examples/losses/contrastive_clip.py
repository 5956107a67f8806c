"""Contrastive, by anchors: each sample's own pair against all pairs of the global batch (CLIP, InfoNCE).

python contrastive_clip.py                              one process
rankup run --nproc-per-node 3 contrastive_clip.py       three, and the same model
python contrastive_clip.py --plain                      the same loop without rankup
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

import rankup

BATCH, EPOCHS = 25, 3


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """52 pairs: two views of 4 features each."""
    x = torch.linspace(-2, 2, 52 * 4, dtype=torch.get_default_dtype()).sin().reshape(52, 4) * 3
    return x, x.roll(1, dims=1) + 0.1


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 5))


def loss_of(a: torch.Tensor, all_b: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The mean over the anchors ``a``, (n, 5), whose pairs are ``rows`` of ``all_b``, (N, 5)."""
    return F.cross_entropy(F.normalize(a) @ F.normalize(all_b).T / 0.2, rows)


def plain() -> nn.Module:
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(EPOCHS):
        for a, b in zip(*(column.split(BATCH) for column in data()), strict=True):
            loss_of(net(a), net(b), torch.arange(len(a))).backward()
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
    for a, b in run.steps(feed, epochs=EPOCHS):
        first, second = model(torch.cat([a, b])).chunk(2)
        everyones, rows = run.gather(second, rows=True)
        run.backward(loss_of(first, everyones, rows))
        run.step(opt)
    return net


if __name__ == "__main__":
    trained = plain() if "--plain" in sys.argv else with_rankup()
    print(f"norm of the weights: {nn.utils.parameters_to_vector(trained.parameters()).norm():.6f}")
