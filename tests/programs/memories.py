"""Buffers that training changes: a queue, a codebook, counters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.layers import Model
from programs.program import OWN, How, Program, Result, batches, expect, perceptron, points, weights


class MemoryBank(Program):
    """MoCo: a queue of keys in a buffer, fed with the keys of all ranks by run.gather."""

    expected = expect(any_world="gather-in-parts")

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, _ = points(18)  # whole batches: the queue takes 6 keys at a time
        model = Queued().double()
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                model(x[i]).mean().backward()
                opt.step()
                model.push(model.keys)
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = Queued()
        model, opt, data = run.prepare(
            network,
            lambda p: torch.optim.SGD(p, lr=0.1),
            rankup.ResidentData(points(18)[0]),
            global_batch=self.batch,
        )
        for x in run.steps(data, epochs=self.epochs):
            how.update(run, opt, model(x).mean())
            network.push(run.gather(network.keys))
        return weights(model)


class Queued(nn.Module):
    """A loss per sample (n,) of queries against a queue of 12 keys."""

    queue: torch.Tensor
    at: torch.Tensor
    keys: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder = perceptron(4, 3)
        self.register_buffer("queue", F.normalize(torch.randn(12, 3), dim=1))
        self.register_buffer("at", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = F.normalize(self.encoder(x), dim=1)
        self.keys = F.normalize(q.detach().flip(1), dim=1)
        near = (q * self.keys).sum(1, keepdim=True)
        logits = torch.cat([near, q @ self.queue.T], 1) / 0.5
        return F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.int64), reduction="none")

    def push(self, keys: torch.Tensor) -> None:
        with torch.no_grad():
            start = int(self.at)
            self.queue[start : start + len(keys)] = keys
            self.at.fill_((start + len(keys)) % 12)


class Rotary(nn.Module):
    """A counter and a cache in buffers that are not in the state_dict."""

    seen: torch.Tensor
    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_buffer("table", torch.linspace(0.5, 1.5, 4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen += 1
        found: torch.Tensor = self.last(torch.tanh(self.first(x)) * self.table * (1 + 0.1 * self.seen))
        return found


class NonPersistentBuffers(Model):
    """Buffers with persistent=False that training changes."""

    @staticmethod
    def network() -> nn.Module:
        return Rotary()


class Quantizer(nn.Module):
    """VQ-VAE: a codebook that follows its codes by EMA, in buffers."""

    codes: torch.Tensor
    sizes: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 1)
        self.register_buffer("codes", torch.randn(5, 2))
        self.register_buffer("sizes", torch.ones(5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = self.encoder(x)
        nearest = torch.cdist(z, self.codes).argmin(1)
        if self.training:
            with torch.no_grad():
                hot = F.one_hot(nearest, 5).to(z.dtype)
                self.sizes.lerp_(hot.sum(0), 0.1)
                self.codes.lerp_(hot.T @ z / self.sizes.clamp(min=1)[:, None], 0.1)
        q = self.codes[nearest]
        return self.decoder(z + (q - z).detach()), (z - q.detach()).square().mean()


class VqVae(Model):
    """VQ-VAE: an EMA codebook in buffers, which each rank would update from its share."""

    expected = expect(ddp="buffers-differ", fsdp="buffers-differ", any_world=OWN)

    @staticmethod
    def network() -> nn.Module:
        return Quantizer()

    @staticmethod
    def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        output, commitment = model(x)
        return F.mse_loss(output, y) + 0.25 * commitment
