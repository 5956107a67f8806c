"""A small model that every strategy can train, its data, and one loop for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional as F

import rankup
from rankup.strategies import Strategy, make_strategy
from rankup.strategies.clipping import whole
from rankup.strategies.state import whole_weights

GLOBAL_BATCH = 8
Optimizer = Callable[[Any], torch.optim.Optimizer]


class Toy(nn.Module):
    """(n, 6) → (n, 3), in four blocks: column-wise and row-wise pairs, or up to four stages."""

    def __init__(self, norm: bool = False) -> None:
        super().__init__()
        middle = nn.BatchNorm1d(16) if norm else nn.Tanh()
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(6, 16), nn.Tanh()),
                nn.Sequential(nn.Linear(16, 16), middle),
                nn.Sequential(nn.Linear(16, 16), nn.Tanh()),
                nn.Linear(16, 3),
            ]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def plan(model: Toy) -> dict[str, Any]:
    # The last two layers lie whole on every rank: sharded and plain parameters in one optimizer.
    return {"blocks.0.0": ColwiseParallel(), "blocks.1.0": RowwiseParallel()}


def stages(model: Toy, n: int) -> list[nn.Module]:
    each = len(model.blocks) // n
    return [nn.Sequential(*model.blocks[i * each : (i + 1) * each]) for i in range(n)]


def strategy(name: str, **options: Any) -> Strategy:
    if name == "tp":
        options["plan"] = plan
    if name == "pp":
        options |= {"stages": stages, "loss": F.mse_loss}
    return make_strategy(name, **options)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.02, fused=True)  # its kernel takes a whole group at once


def data(samples: int) -> rankup.ResidentData:
    x = torch.linspace(-1, 1, samples * 6).reshape(samples, 6).sin() * 2
    return rankup.ResidentData(x, torch.stack([x.sum(1), x[:, 0] * 3, x[:, 1].square() - 1], dim=1))


def prepared(
    run: rankup.Run, samples: int, optimizer: Optimizer = sgd, *, norm: bool = False, **options: Any
):
    net = Toy(norm)
    if run.world.rank and run.strategy.name == "fsdp":
        nn.init.zeros_(net.blocks[0][0].weight)  # ranks are to start from rank 0's
    return run.prepare(net, optimizer, data(samples), global_batch=GLOBAL_BATCH, **options)


def gradients(run: rankup.Run) -> dict[str, torch.Tensor]:
    tensors = run._context.strategy.tensors(run._context.models[0])
    return {name: whole(p.grad).clone() for name, p in tensors.items() if p.grad is not None}


def everywhere(pieces: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    """One dictionary from the ranks', where each holds other names."""
    if name != "pp":
        return pieces
    all_pieces: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(all_pieces, pieces)
    return {key: value for each in all_pieces for key, value in each.items()}


def trained(
    name: str,
    precision: str = "fp64",
    samples: int = 22,
    epochs: int = 1,
    optimizer: Optimizer = sgd,
    norm: bool = False,
    options: dict[str, Any] | None = None,
    **strategy_options: Any,
) -> dict[str, Any]:
    """Gradients of the first step, weights of rank 0 in the end, the loss of each step, what was counted."""
    run = rankup.init(seed=2, precision=precision, strategy=strategy(name, **strategy_options))
    model, opt, feed = prepared(run, samples, optimizer, norm=norm, **(options or {}))
    first: dict[str, torch.Tensor] = {}
    losses, counted, norms = [], 0, []
    for x, y in run.steps(feed, epochs=epochs):
        loss, _ = run.strategy.forward_backward(model, F.mse_loss, x, y)
        if not first and run.batch.last:
            first = everywhere(gradients(run), name)
        counted += run.batch.samples
        if (step := run.step(opt)) and step.grad_norm is not None:
            norms.append(step.grad_norm.item())
        losses.append(run.mean(loss.item() if run.batch.samples else 0.0))
    return {
        "gradients": first,
        "weights": whole_weights(run._context.strategy, run._context.models[0]),
        "losses": losses,
        "counted": run.sum(counted),
        "norms": norms,
    }


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max((a[name] - b[name]).abs().max().item() for name in a)
