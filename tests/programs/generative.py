"""Models whose loss draws random numbers in the loop's body."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from programs.program import OWN, How, Program, Result, batches, expect, perceptron, points, weights
from rankup.runtime.seed import SampleRandom, derive  # random numbers as data, as the order is


class Drawn(Program):
    """A loss that needs noise per sample; ``loss`` is the program."""

    abstract = True
    width = 2

    @staticmethod
    def network() -> nn.Module:
        raise NotImplementedError

    def loss(self, model: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, _ = points()
        model = self.network().double()
        opt = torch.optim.Adam(model.parameters(), lr=0.02)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                noise = SampleRandom(derive(0, "augment", epoch), i).uniform(self.width).double()
                opt.zero_grad()
                self.loss(model, x[i], noise).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        data = rankup.ResidentData(
            points()[0], transform=lambda columns, random: (columns[0], random.uniform(self.width))
        )
        model, opt, feed = run.prepare(
            self.network(), lambda p: torch.optim.Adam(p, lr=0.02), data, global_batch=self.batch
        )
        for x, noise in run.steps(feed, epochs=self.epochs):
            how.update(run, opt, self.loss(model, x, noise))
        return weights(model)


class DrawnPerRank(Drawn):
    """The same with numbers of the global generators, as in most papers' code."""

    abstract = True
    expected = expect(none=OWN, ddp=OWN, fsdp=OWN, any_world=OWN)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        model, opt, feed = run.prepare(
            self.network(),
            lambda p: torch.optim.Adam(p, lr=0.02),
            rankup.ResidentData(points()[0]),
            global_batch=self.batch,
        )
        for x in run.steps(feed, epochs=self.epochs):
            noise = torch.rand(len(x), self.width, dtype=x.dtype)
            how.update(run, opt, self.loss(model, x, noise))
        return weights(model)


class Variational(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = perceptron(4, 4), perceptron(2, 4)

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = self.encoder(x).chunk(2, 1)
        divergence = 0.5 * (mean.square() + spread.exp() - spread - 1).sum(1).mean()
        return self.decoder(mean + (0.5 * spread).exp() * (noise - 0.5)), divergence


def elbo(model: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    output, divergence = model(x, noise)
    return F.mse_loss(output, x) + 0.1 * divergence


class Vae(Drawn):
    """VAE; its noise is drawn per sample, in a transform."""

    @staticmethod
    def network() -> nn.Module:
        return Variational()

    def loss(self, model: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return elbo(model, x, noise)


class VaePerRank(DrawnPerRank):
    """VAE; its noise is drawn in the loop's body."""

    @staticmethod
    def network() -> nn.Module:
        return Variational()

    def loss(self, model: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return elbo(model, x, noise)


def denoising(model: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    level, wanted = noise[:, :1], noise[:, 1:] - 0.5
    return F.mse_loss(model(torch.cat([(1 - level) * x + level * wanted, level], 1)), wanted)


class Diffusion(Drawn):
    """Diffusion; timestep and noise are drawn per sample, in a transform."""

    width = 5

    @staticmethod
    def network() -> nn.Module:
        return perceptron(5, 4)

    def loss(self, model: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return denoising(model, x, noise)


class DiffusionPerRank(DrawnPerRank):
    """Diffusion; timestep and noise are drawn in the loop's body."""

    width = 5

    @staticmethod
    def network() -> nn.Module:
        return perceptron(5, 4)

    def loss(self, model: Any, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return denoising(model, x, noise)
