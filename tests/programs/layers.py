"""Models of all kinds: the loop is the plain one, what is trained is the program."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

import rankup
from programs.program import (
    NOT_FOR,
    OWN,
    RAISED,
    How,
    Program,
    Result,
    batches,
    expect,
    perceptron,
    points,
    weights,
)


class Model(Program):
    """A regression; ``network`` is the program."""

    abstract = True
    options: ClassVar[dict[str, Any]] = {}  # of prepare

    @staticmethod
    def network() -> nn.Module:
        raise NotImplementedError

    @staticmethod
    def optimizer(parameters: Any) -> Any:
        return torch.optim.Adam(parameters, lr=0.02)

    @staticmethod
    def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(model(x), y)

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = self.network().double()
        opt = self.optimizer([p for p in model.parameters() if p.requires_grad])
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch, drop_last=self.options.get("drop_last", False)):
                opt.zero_grad()
                self.loss(model, x[i], y[i]).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        data = rankup.ResidentData(*points())
        model, opt, feed = run.prepare(
            self.network(), self.optimizer, data, global_batch=self.batch, **self.options
        )
        for x, y in run.steps(feed, epochs=self.epochs):
            how.update(run, opt, self.loss(model, x, y))
        return weights(model)


class Dropout(Model):
    """Dropout: each rank draws its own."""

    expected = expect(none=OWN, ddp=OWN, fsdp=OWN, any_world=OWN)

    @staticmethod
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))


class BatchNorm(Model):
    """BatchNorm: each rank has the statistics of its share."""

    expected = expect(ddp=OWN, fsdp=OWN, any_world=OWN)
    epochs, batch = 6, 10  # no share of a single sample, which BatchNorm refuses: see BatchNormDropLast

    @staticmethod
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


class BatchNormDropLast(BatchNorm):
    """BatchNorm with drop_last=True: the last batch would leave shares of one sample."""

    epochs, batch = 4, 9
    options: ClassVar[dict[str, Any]] = {"drop_last": True}


class GroupNorm(Model):
    """GroupNorm and LayerNorm."""

    @staticmethod
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.GroupNorm(2, 8), nn.SiLU(), nn.LayerNorm(8), nn.Linear(8, 1))


class SpectralNorm(Model):
    """Spectral norm: power iteration in buffers, in each forward pass."""

    expected = expect(any_world=OWN)

    @staticmethod
    def network() -> nn.Module:
        return nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))


class WeightNorm(Model):
    """Weight norm as a parametrization."""

    @staticmethod
    def network() -> nn.Module:
        return nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 8)), nn.Tanh(), nn.Linear(8, 1))


class Orthogonal(Model):
    """An orthogonal weight as a parametrization (Householder)."""

    @staticmethod
    def network() -> nn.Module:
        made = parametrizations.orthogonal(nn.Linear(4, 4), orthogonal_map="householder")
        return nn.Sequential(made, nn.Tanh(), nn.Linear(4, 1))


class Spectrum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5, dtype=torch.complex128) * 0.3)
        self.last = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last((torch.fft.rfft(x).to(self.weight.dtype) @ self.weight).abs())
        return found


class Complex(Model):
    """Complex parameters behind an FFT."""

    expected = expect(fsdp=RAISED)

    @staticmethod
    def network() -> nn.Module:
        return Spectrum()


class FrozenLayers(Model):
    """Fine-tuning: the first layer is frozen before prepare."""

    @staticmethod
    def network() -> nn.Module:
        made = perceptron(4, 1)
        next(iter(made.children())).requires_grad_(False)
        return made


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.last = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.body(x.reshape(-1, 1, 2, 2)))
        return found


class SmallCnn(Model):
    """A convolutional network with adaptive pooling."""

    @staticmethod
    def network() -> nn.Module:
        return Convolutions()


class Groups(Model):
    """Weight decay for weights, none for biases and norms: two groups by dimension."""

    @staticmethod
    def network() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 1))

    @staticmethod
    def optimizer(parameters: Any) -> Any:
        return torch.optim.AdamW(
            [
                {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.2},
                {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
            ],
            lr=0.02,
        )


class LayerRates(Program):
    """Layer-wise learning rates: an optimizer with groups, built before prepare."""

    expected = expect(fsdp=NOT_FOR)  # an optimizer is made after sharding

    @staticmethod
    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        children = [child for child in model.children() if list(child.parameters())]
        groups = [
            {"params": list(child.parameters()), "lr": 0.02 * 0.5**depth}
            for depth, child in enumerate(reversed(children))
        ]
        return torch.optim.Adam(groups)

    def plain(self) -> Result:
        torch.manual_seed(0)
        x, y = points()
        model = perceptron().double()
        opt = self.optimizer(model)
        for epoch in range(self.epochs):
            for i in batches(len(x), self.batch, epoch):
                opt.zero_grad()
                F.mse_loss(model(x[i]), y[i]).backward()
                opt.step()
        return weights(model)

    def with_rankup(self, how: How) -> Result:
        run = how.init()
        network = perceptron()
        model, opt, data = run.prepare(
            network, self.optimizer(network), rankup.ResidentData(*points()), global_batch=self.batch
        )
        for x, y in run.steps(data, epochs=self.epochs):
            how.update(run, opt, F.mse_loss(model(x), y))
        return weights(model)


class ClippedByHooks(Model):
    """Gradients clipped by hooks on the parameters, which see the share of a rank alone."""

    expected = expect(ddp="gradient-hook", fsdp="gradient-hook", any_world="gradient-hook")

    @staticmethod
    def network() -> nn.Module:
        model = perceptron()
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-0.02, 0.02))
        return model


class ClippedByAccumulatedHooks(ClippedByHooks):
    """Gradients clipped in place by hooks that run after their accumulation."""

    @staticmethod
    def network() -> nn.Module:
        def clip(parameter: torch.Tensor) -> None:
            assert parameter.grad is not None
            parameter.grad.clamp_(-0.02, 0.02)

        model = perceptron()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(clip)
        return model


class MaskedByHooks(ClippedByHooks):
    """Hooks on the parameters that mask gradients, multiply them by a constant, or only look at them."""

    expected = expect(fsdp="gradient-hook")

    @staticmethod
    def network() -> nn.Module:
        model = perceptron()
        first, bias, last, _ = model.parameters()
        mask = (torch.arange(first.numel()).reshape(first.shape) % 3 > 0).double()
        first.register_hook(lambda gradient: gradient * mask)
        bias.register_hook(lambda gradient: gradient * 0.1)
        last.register_hook(lambda gradient: None if gradient.isfinite().all() else gradient.nan_to_num())
        return model
