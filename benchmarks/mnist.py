"""The MNIST network end to end: the textbook script and rankup; fp32, all cores, no evaluation.

The textbook script makes each image a float tensor and normalises it in ``__getitem__``, and uses a shuffling
DataLoader, ReLU before the pool, and torch's default Adam. Unlike torchvision, it makes no PIL image per sample.
Ours: the built-in network, resident data, fused Adam, denormals flushed to zero as in ``rankup train``. Layers, initial
weights, images and number of steps per round are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from benchmarks.contest import Claim, Result, Rounds, contest
from benchmarks.machine import cores
from benchmarks.worker import Play

MEAN, STD = 0.1307, 0.3081


def images(source: str, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 (samples, 28, 28) and int64 (samples,), repeated if the data set is smaller."""
    from rankup.workloads.data import load_images

    pixels, labels = load_images(source, train=True)
    chosen = torch.arange(samples) % len(labels)
    return pixels[chosen], labels[chosen]


class TextbookData(Dataset[Any]):
    def __init__(self, pixels: torch.Tensor, labels: torch.Tensor) -> None:
        self.pixels, self.labels = pixels, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        image = self.pixels[index].unsqueeze(0).float().div(255)
        return image.sub(MEAN).div(STD), self.labels[index]


class TextbookNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dense1 = nn.Linear(9216, 128)
        self.dense2 = nn.Linear(128, 10)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout1(F.max_pool2d(x, 2)).flatten(1)
        x = self.dropout2(F.relu(self.dense1(x)))
        return F.log_softmax(self.dense2(x), dim=1)


def textbook(source: str, batch: int, steps: int) -> Play:
    model = TextbookNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TextbookData(*images(source, batch * steps)), batch_size=batch, shuffle=True)

    def play() -> None:
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return play


def ours(source: str, batch: int, steps: int) -> Play:
    from rankup.runtime.data.resident import ResidentData
    from rankup.runtime.init import init
    from rankup.workloads.mnist_cnn import MnistNet, normalised

    torch.set_flush_denormal(True)
    run = init(device="cpu")
    model, optimizer, data = run.prepare(
        MnistNet(),
        lambda p: torch.optim.Adam(p, lr=1e-3, fused=True),
        ResidentData(*images(source, batch * steps), transform=normalised),
        global_batch=batch,
    )
    batches = iter(run.steps(data, epochs=1_000_000))

    def play() -> None:  # an epoch of one loop
        for x, y in itertools.islice(batches, steps):
            loss = F.nll_loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return play


CONTENDERS: dict[str, Callable[[str, int, int], Play]] = {"textbook": textbook, "ours": ours}


def run(quick: bool) -> Result:
    from rankup.workloads.data import is_present

    source = "fashion-mnist" if is_present("fashion-mnist") else "digits"
    steps = {16: 20 if quick else 200, 64: 10 if quick else 100}
    rounds: Rounds = {}
    claims = []
    for batch, count in steps.items():
        settings = {"source": source, "batch": batch, "steps": count}
        seconds = contest(
            "mnist",
            CONTENDERS,
            settings,
            threads=cores(),
            rounds=3 if quick else 4,
            processes=1 if quick else 2,
        )
        for name, values in seconds.items():
            rounds[f"{name}, batch {batch}"] = [batch * count / value for value in values]
        claims.append(
            Claim(
                f"ours / textbook, batch {batch}",
                f"ours, batch {batch}",
                f"textbook, batch {batch}",
                1.4,
                at_most=False,
            )
        )
    settings = {"data": source, "precision": "fp32", "threads": cores(), "steps by batch": steps}
    return Result("mnist", "The MNIST network", "images/s", settings, rounds, claims)
