"""Models whose parts are shared, routed, many-headed or tied."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from programs.layers import Model
from programs.program import perceptron


class Tied(nn.Module):
    """(n, 4) → (n, 4) and its mean: encoder and decoder share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 4), nn.Linear(4, 4)
        self.decoder.weight = self.encoder.weight
        self.last = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.decoder(torch.tanh(self.encoder(x))))
        return found


class TiedWeights(Model):
    """Two layers that share a weight."""

    @staticmethod
    def network() -> nn.Module:
        return Tied()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.blocks = nn.ModuleList([self.block, self.block, nn.Sequential(nn.Linear(4, 4), nn.Tanh())])
        self.last = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        found: torch.Tensor = self.last(x)
        return found


class SharedModule(Model):
    """One module that is called several times (ALBERT)."""

    @staticmethod
    def network() -> nn.Module:
        return Recurrent()


class Experts(nn.Module):
    """Each sample goes to one of three experts; a batch need not reach all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)
        self.experts = nn.ModuleList([perceptron(4, 1, 4) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = self.gate(x).softmax(1)
        chosen = shares.argmax(1)
        output = x.new_zeros(len(x), 1)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero().squeeze(1)
            if len(mine):
                output = output.index_add(0, mine, shares[mine, number : number + 1] * expert(x[mine]))
        return output


class MixtureOfExperts(Model):
    """A mixture of experts, routed per sample, with find_unused_parameters=True."""

    options: ClassVar[dict[str, Any]] = {"find_unused_parameters": True}

    @staticmethod
    def optimizer(parameters: Any) -> Any:
        return torch.optim.SGD(parameters, lr=0.1)

    @staticmethod
    def network() -> nn.Module:
        return Experts()


class Heads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = perceptron(4, 4)
        self.heads = nn.ModuleDict(
            {"value": nn.Linear(4, 1), "sign": nn.Linear(4, 1), "size": nn.Linear(4, 1)}
        )

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        shared = self.body(x)
        return {name: head(shared) for name, head in self.heads.items()}


class MultiTask(Model):
    """Multi-task heads in a ModuleDict, a dict of losses with weights."""

    @staticmethod
    def network() -> nn.Module:
        return Heads()

    @staticmethod
    def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        output = model(x)
        losses = {
            "value": F.mse_loss(output["value"], y),
            "sign": 0.5 * F.binary_cross_entropy_with_logits(output["sign"], (y > 0).to(y.dtype)),
            "size": 0.1 * F.l1_loss(output["size"], y.abs()),
        }
        return torch.stack(list(losses.values())).sum()
