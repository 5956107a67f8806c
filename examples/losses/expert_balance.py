"""A product of batch means: the load balance of a mixture of experts multiplies two means over the batch.

python expert_balance.py                              one process
rankup run --nproc-per-node 3 expert_balance.py       three, and the same model
python expert_balance.py --plain                      the same loop without rankup
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional as F

import rankup

BATCH, EPOCHS, EXPERTS = 25, 3, 3


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """52 samples of 4 features, 3 classes."""
    x = torch.linspace(-2, 2, 52 * 4, dtype=torch.get_default_dtype()).sin().reshape(52, 4) * 3
    return x, torch.arange(52) % 3


class Mixture(nn.Module):
    """Each sample goes to the expert with the largest probability."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(4, 3) for _ in range(EXPERTS))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(n, 4) → logits (n, 3), and the probabilities of the experts (n, EXPERTS)."""
        probabilities = self.gate(x).softmax(1)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)  # (n, EXPERTS, 3)
        weight, chosen = probabilities.max(1)
        return outputs[torch.arange(len(x)), chosen] * weight[:, None], probabilities


def network() -> nn.Module:
    torch.manual_seed(1)
    return Mixture()


def chosen(probabilities: torch.Tensor) -> torch.Tensor:
    """One row per sample: 1 for its expert, 0 for the others. Without a gradient."""
    return F.one_hot(probabilities.argmax(1), EXPERTS).to(probabilities.dtype)


def loss_of(
    logits: torch.Tensor, y: torch.Tensor, probabilities: torch.Tensor, load: torch.Tensor
) -> torch.Tensor:
    """``load``, (EXPERTS,): each expert's share of the samples of the global batch. For a fixed load both terms are
    means over the samples."""
    return F.cross_entropy(logits, y) + EXPERTS * (load * probabilities.mean(0)).sum()


def plain() -> nn.Module:
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(EPOCHS):
        for x, y in zip(*(column.split(BATCH) for column in data()), strict=True):
            logits, probabilities = net(x)
            loss_of(logits, y, probabilities, chosen(probabilities).mean(0)).backward()
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
        logits, probabilities = model(x)
        load = run.gather(chosen(probabilities)).mean(0)
        run.backward(loss_of(logits, y, probabilities, load))
        run.step(opt)
    return net


if __name__ == "__main__":
    trained = plain() if "--plain" in sys.argv else with_rankup()
    print(f"norm of the weights: {nn.utils.parameters_to_vector(trained.parameters()).norm():.6f}")
