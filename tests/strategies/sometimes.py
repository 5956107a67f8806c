"""Models of which a forward computes a part only, or one part twice; and the plain loop beside them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import rankup
from rankup.strategies.state import whole_weights

GLOBAL_BATCH = 6
SAMPLES = (
    37  # the last step has one sample: the others compute on a dummy batch, whose experts nobody else may use
)


class Now:
    step = 0  # set by the loops


now = Now()


class Routed(nn.Module):
    """Each sample goes to one expert: ``count`` of them, by its first feature. A rank runs those that it has samples
    for, in their order; an expert without samples in the whole batch is not used at all."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.stem = nn.Linear(6, 8)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(count))
        self.head = nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.ones(3))  # directly on the root

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.stem(x)
        place = (x[:, 0].sin().abs() * 7).long() % len(self.experts)
        out = torch.zeros_like(h)
        for index, expert in enumerate(self.experts):
            mine = place == index
            if mine.any():
                out = out.index_put((mine.nonzero()[:, 0],), expert(h[mine]))
        return self.head(out) * self.scale


class Layered(nn.Module):
    """Experts inside of the layers of a ``ModuleList``, as in a transformer; every layer runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = (x[:, 0].abs() * 9).long() % 4
        out = x
        for index, expert in enumerate(self.experts):
            mine = (place == index).nonzero()[:, 0]
            if len(mine):
                out = out.index_add(0, mine, torch.tanh(expert(x[mine])))
        return out


class Tasks(nn.Module):
    """A head for each task of a ``ModuleDict``; which tasks a batch has depends on its samples."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8))
        self.heads = nn.ModuleDict(
            {name: nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3)) for name in ("a", "b", "c")}
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.body(x)
        out = torch.zeros(len(x), 3, dtype=h.dtype)
        for index, head in enumerate(self.heads.values()):
            mine = ((x[:, 1].abs() * 5).long() % 4 == index).nonzero()[:, 0]  # a fourth task has no head
            if len(mine):
                out = out.index_add(0, mine, head(h[mine]))
        return out + h[:, :3]


class LayerDrop(nn.Module):
    """Layers that are left out at random, by the number of the step: alike on all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        draw = random.Random(now.step)
        for layer in self.layers:
            if draw.random() > 0.4:
                x = x + layer(x)
        return self.head(x)


class Shared(nn.Module):
    """One layer that runs three times, under two names, and a block that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Linear(6, 6)
        self.layers = nn.ModuleList([layer, nn.Tanh(), layer])
        self.again = layer
        self.blocks = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in (*self.layers, self.again, *self.blocks, self.blocks[0]):
            x = layer(x)
        return self.head(x)


class Tied(nn.Module):
    """An embedding that is also the last layer, tokens from the features, and a frozen block in between."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 6)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3))
        self.out = nn.Linear(6, 5, bias=False)
        self.out.weight = self.embed.weight
        self.blocks[1].requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed((x.abs() * 10).long() % 5).mean(1)
        for block in self.blocks:
            h = block(h)
        return self.out(h)[:, :3]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "two experts": lambda: Routed(2),
    "four experts": lambda: Routed(4),
    "experts in layers": Layered,
    "ModuleDict": Tasks,
    "LayerDrop": LayerDrop,
    "shared modules": Shared,
    "tied embedding": Tied,
}
#: Those that no rank passes over a part of, and that need not say so.
ALWAYS_WHOLE = ("shared modules", "tied embedding")


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.linspace(-1, 1, SAMPLES * 6, dtype=torch.float32).reshape(SAMPLES, 6).mul(37).sin() * 2
    return x, torch.stack([x.sum(1), x[:, 0] * 3, x[:, 1].square() - 1], dim=1)


def made(name: str) -> nn.Module:
    torch.manual_seed(3)
    return MODELS[name]()


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        parameters, lr=0.02, weight_decay=0.1
    )  # moves what has a gradient, also one of zero


def plain(name: str, clip: float | None = None, epochs: int = 1) -> dict[str, torch.Tensor]:
    """Torch alone, in one process."""
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    model = made(name)
    x, y = (column.double() for column in samples())
    opt = adamw([p for p in model.parameters() if p.requires_grad])
    now.step = 0
    for _ in range(epochs):
        for start in range(0, SAMPLES, GLOBAL_BATCH):
            F.mse_loss(model(x[start : start + GLOBAL_BATCH]), y[start : start + GLOBAL_BATCH]).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            opt.step()
            opt.zero_grad()
            now.step += 1
    return model.state_dict()


def trained(name: str, strategy: str, clip: float | None = None, accumulate: int = 1, **options: Any) -> Any:
    """The weights of rank 0."""
    if strategy == "any-world":
        run = rankup.init(precision="fp64", exact="any-world")
    else:
        run = rankup.init(precision="fp64", strategy=strategy)
    torch.set_default_dtype(torch.float64)
    model = made(name)
    torch.set_default_dtype(torch.float32)
    model, opt, feed = run.prepare(
        model,
        adamw,
        rankup.ResidentData(*samples()),
        global_batch=GLOBAL_BATCH,
        shuffle=False,
        clip=clip,
        accumulate=accumulate,
        **options,
    )
    for x, y in run.steps(feed, epochs=1):
        now.step = run.global_step
        run.backward(F.mse_loss(model(x), y))
        run.step(opt)
    return whole_weights(run._context.strategy, run._context.models[0])
