"""Samples per second from MNIST-shaped images: 60,000 of uint8, batches of 64, shuffled, one epoch a round.

Everyone ends with the same thing: float32 (64, 1, 28, 28), normalised, and its labels. All but "transform per sample",
which is what tutorials write, normalise the batch with the same function, so that only the fetching differs. One
thread; the DataLoader with workers has two processes beside it, kept from epoch to epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.contest import Claim, Result, contest
from benchmarks.worker import Play

BATCH = 64
MEAN, STD = 0.1307, 0.3081


def tensors(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (samples, 28, 28), dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 10, (samples,), generator=generator)


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """uint8 (n, 28, 28) → float32 (n, 1, 28, 28)."""
    return pixels.to(torch.float32).mul_(1 / (255 * STD)).sub_(MEAN / STD).unsqueeze(1)


class PerSample(Dataset[Any]):
    """The tutorials' way: each sample goes through the transform alone."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return normalised(self.images[index : index + 1])[0], self.labels[index]


class Batched(PerSample):
    """Fetches a whole batch by one indexing."""

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.tensor(indices)
        return self.images.index_select(0, chosen), self.labels.index_select(0, chosen)


def as_is(batch: Any) -> Any:
    return batch


def transform_per_sample(samples: int) -> Play:
    return _consume(DataLoader(PerSample(*tensors(samples)), batch_size=BATCH, shuffle=True), as_is)


def per_sample(samples: int) -> Play:
    return _consume(DataLoader(TensorDataset(*tensors(samples)), batch_size=BATCH, shuffle=True), normalised)


def two_workers(samples: int) -> Play:
    return _consume(
        DataLoader(
            TensorDataset(*tensors(samples)),
            batch_size=BATCH,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        ),
        normalised,
    )


def batched(samples: int) -> Play:
    data = Batched(*tensors(samples))
    return _consume(DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=as_is), normalised)


def hand_written(samples: int) -> Play:
    images, labels = tensors(samples)

    def play() -> None:
        for chosen in torch.split(torch.randperm(samples), BATCH):
            normalised(images.index_select(0, chosen))
            labels.index_select(0, chosen)

    return play


def ours_resident(samples: int) -> Play:
    from rankup.runtime.data import ResidentData

    data = ResidentData(
        *tensors(samples), transform=lambda columns, random: (normalised(columns[0]), columns[1])
    )
    return _ours(data, as_is)


def ours_per_sample(samples: int) -> Play:
    return _ours(TensorDataset(*tensors(samples)), normalised)


def ours_batched(samples: int) -> Play:
    # Nothing is drawn per sample: said here, since looking for it takes samples one by one.
    return _ours(Batched(*tensors(samples)), normalised, collate_fn=as_is, sample_rng=False)


def _consume(batches: Iterable[Any], transform: Callable[[torch.Tensor], torch.Tensor]) -> Play:
    def play() -> None:
        for x, _ in batches:
            transform(x)

    return play


def _ours(dataset: Any, transform: Callable[[torch.Tensor], torch.Tensor], **loader: Any) -> Play:
    from rankup.runtime.run import init

    run = init(device="cpu")
    unused = nn.Linear(1, 1)
    _, _, data = run.prepare(
        unused, lambda p: torch.optim.SGD(p, lr=0.1), dataset, global_batch=BATCH, **loader
    )

    def play() -> None:
        for x, _ in run.steps(data, epochs=run.position.epoch + 1):
            transform(x)

    return play


CONTENDERS: dict[str, Callable[[int], Play]] = {
    "DataLoader, transform per sample": transform_per_sample,
    "DataLoader, per sample": per_sample,
    "DataLoader, per sample, 2 workers": two_workers,
    "DataLoader, batched fetch": batched,
    "hand-written resident loop": hand_written,
    "ours, Dataset per sample": ours_per_sample,
    "ours, Dataset batched fetch": ours_batched,
    "ours, resident": ours_resident,
}


def run(quick: bool) -> Result:
    settings = {"samples": 6_000 if quick else 60_000}
    seconds = contest(
        "loader", CONTENDERS, settings, threads=1, rounds=3 if quick else 7, processes=1 if quick else 2
    )
    rounds = {name: [settings["samples"] / value for value in values] for name, values in seconds.items()}
    claims = [
        Claim(
            "ours resident / per-sample DataLoader",
            "ours, resident",
            "DataLoader, per sample",
            10,
            at_most=False,
        ),
        Claim(
            "ours resident / hand-written resident loop",
            "ours, resident",
            "hand-written resident loop",
            0.95,
            at_most=False,
        ),
    ]
    return Result(
        "loader",
        "Reading MNIST-shaped images",
        "samples/s",
        {**settings, "batch": BATCH, "threads": 1},
        rounds,
        claims,
    )
