"""Samples per second from MNIST-shaped images: uint8 in memory, shuffled, batches of 64 and of 256, one epoch a round.

All contenders give the same: float32 (n, 1, 28, 28), normalised, and its labels. "per sample" transforms each sample
in ``__getitem__``, as tutorials do; the others normalise the batch, by the same arithmetic. The hand-written loop
gathers by ``index_select``, which is twice as fast here as the usual ``images[chosen]``. One thread; the DataLoader
with workers has two more processes, which it keeps from epoch to epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.contest import Claim, Result, Rounds, contest
from benchmarks.worker import Play

MEAN, STD = 0.1307, 0.3081


def tensors(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(0, 256, (samples, 28, 28), dtype=torch.uint8, generator=generator)
    return images, torch.randint(0, 10, (samples,), generator=generator)


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """uint8 (n, 28, 28) → float32 (n, 1, 28, 28)."""
    return pixels.to(torch.float32).mul_(1 / (255 * STD)).sub_(MEAN / STD).unsqueeze(1)


class PerSample(Dataset[Any]):
    """As in tutorials: each sample is transformed by itself."""

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


def per_sample(samples: int, batch: int) -> Play:
    return _consume(DataLoader(PerSample(*tensors(samples)), batch_size=batch, shuffle=True), as_is)


def two_workers(samples: int, batch: int) -> Play:
    return _consume(
        DataLoader(
            PerSample(*tensors(samples)),
            batch_size=batch,
            shuffle=True,
            num_workers=2,
            persistent_workers=True,
        ),
        as_is,
    )


def normalised_later(samples: int, batch: int) -> Play:
    return _consume(DataLoader(TensorDataset(*tensors(samples)), batch_size=batch, shuffle=True), normalised)


def batched(samples: int, batch: int) -> Play:
    data = Batched(*tensors(samples))
    return _consume(DataLoader(data, batch_size=batch, shuffle=True, collate_fn=as_is), normalised)


def hand_written(samples: int, batch: int) -> Play:
    images, labels = tensors(samples)

    def play() -> None:
        for chosen in torch.split(torch.randperm(samples), batch):
            held = normalised(images.index_select(0, chosen)), labels.index_select(0, chosen)
        del held

    return play


def ours_per_sample(samples: int, batch: int) -> Play:
    return _ours(PerSample(*tensors(samples)), batch, as_is)


def ours_batched(samples: int, batch: int) -> Play:
    # No random numbers are drawn per sample. Declare it, because detecting it fetches samples one by one.
    return _ours(Batched(*tensors(samples)), batch, normalised, collate_fn=as_is, sample_rng=False)


def ours_resident(samples: int, batch: int) -> Play:
    from rankup.runtime.data.resident import ResidentData

    def transform(columns: tuple[torch.Tensor, ...], random: object) -> tuple[torch.Tensor, ...]:
        return normalised(columns[0]), columns[1]

    return _ours(ResidentData(*tensors(samples), transform=transform), batch, as_is)


def _ours(dataset: Any, batch: int, transform: Callable[[torch.Tensor], torch.Tensor], **loader: Any) -> Play:
    from rankup.runtime.init import init

    run = init(device="cpu")
    unused = nn.Linear(1, 1)
    _, _, data = run.prepare(
        unused, lambda p: torch.optim.SGD(p, lr=0.1), dataset, global_batch=batch, **loader
    )

    batches, steps = iter(run.steps(data, epochs=1_000_000)), len(data)

    def play() -> None:  # an epoch of one loop
        for x, y in itertools.islice(batches, steps):
            held = transform(x), y
        del held

    return play


def _consume(batches: Iterable[Any], transform: Callable[[torch.Tensor], torch.Tensor]) -> Play:
    def play() -> None:
        for x, y in batches:
            held = transform(x), y
        del held

    return play


CONTENDERS: dict[str, Callable[[int, int], Play]] = {
    "DataLoader, per sample": per_sample,
    "DataLoader, per sample, 2 workers": two_workers,
    "DataLoader, normalised later": normalised_later,
    "DataLoader, batched fetch": batched,
    "hand-written resident loop": hand_written,
    "ours, Dataset per sample": ours_per_sample,
    "ours, Dataset batched fetch": ours_batched,
    "ours, resident": ours_resident,
}


def run(quick: bool) -> Result:
    samples = 6_400 if quick else 60_000  # as MNIST has
    rounds: Rounds = {}
    claims = []
    hand, ours = "hand-written resident loop", "ours, resident"
    for batch in (64, 256):
        settings = {"samples": samples, "batch": batch}
        seconds = contest(
            "loader",
            [name for name in CONTENDERS if name != hand],
            settings,
            threads=1,
            rounds=3 if quick else 7,
            processes=1 if quick else 2,
        )
        # Two that are nearly as fast, and no more at a time: so a machine whose speed varies is as fast for both.
        pair = contest(
            "loader",
            [hand, ours],
            settings,
            threads=1,
            rounds=3 if quick else 21,
            processes=1 if quick else 5,
        )
        seconds |= {hand: pair[hand], f"{ours}, beside it": pair[ours]}
        rounds |= {f"{name}, {batch}": [samples / value for value in row] for name, row in seconds.items()}
        for name, against, target in (
            (ours, "DataLoader, per sample", 10),
            (ours, "DataLoader, normalised later", None),
            (f"{ours}, beside it", hand, 0.95),
        ):
            claims.append(
                Claim(
                    f"ours resident / {against}, batch {batch}",
                    f"{name}, {batch}",
                    f"{against}, {batch}",
                    target,
                    at_most=False,
                )
            )
    settings = {"samples": samples, "threads": 1}
    return Result("loader", "Reading MNIST-shaped images", "samples/s", settings, rounds, claims)
